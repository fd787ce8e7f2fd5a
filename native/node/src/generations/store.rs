//! The folder in which microsandbox keeps everything of an installation (node-host §1.6).

use std::path::Path;

use palisade_core::generation::recovery::{Damage, Difference, Entry};
use palisade_core::strict;
use palisade_core::units::Id;
use serde::{Deserialize, Serialize};

use crate::files::disk::Disk;
use crate::files::{FileError, look, writer};
use crate::limits::OWNER_MAX_BYTES;

/// Says whose store it is. Written before anything else.
const OWNER: &str = "oac-installation.json";

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Owner {
    installation_id: Id,
}

/// A store with its owner's record; a folder that is empty but for an interrupted write is none yet, and one that holds
/// anything without the record is somebody else's.
pub(super) fn look(path: &Path, installation: Id) -> Entry<()> {
    match look::look(path, 0).borrow().directory() {
        Entry::Ours(()) => {}
        other => return other,
    }
    let seen = look::look(&path.join(OWNER), OWNER_MAX_BYTES);
    match seen.borrow().private(OWNER_MAX_BYTES) {
        Entry::Ours(bytes) => match strict::object::<Owner>(bytes) {
            Ok(owner) if owner.installation_id == installation => Entry::Ours(()),
            Ok(_) => Entry::Foreign(Difference::Installation),
            Err(_) => Entry::Damaged(Damage::Content),
        },
        Entry::Absent if is_empty(path) => Entry::Absent,
        Entry::Absent => Entry::Foreign(Difference::Installation),
        Entry::Damaged(damage) => Entry::Damaged(damage),
        Entry::Foreign(difference) => Entry::Foreign(difference),
    }
}

/// Makes the store, or finishes making it.
pub(super) fn make(disk: &mut dyn Disk, path: &Path, installation: Id) -> Result<(), FileError> {
    let home = path.ancestors().nth(3).unwrap_or(Path::new("/"));
    writer::ensure_private_directories(disk, home, path)?;
    let mut bytes = serde_json::to_vec(&Owner { installation_id: installation }).expect("an identifier serialises");
    bytes.push(b'\n');
    writer::record(disk, path, OWNER, &bytes)
}

fn is_empty(path: &Path) -> bool {
    let partial = writer::partial(OWNER);
    path.read_dir().is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| entry.file_name().to_str() == Some(&partial)))
    })
}
