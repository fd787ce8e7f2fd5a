//! Files and disks.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use palisade_control::CoreKeys;

use crate::control::config::{Config, Source};
use crate::findings::Finding;
use crate::operator::table::bytes;

/// Free bytes below which the disk is a problem, and below which it is worth a look.
const DISK_PROBLEM_BYTES: u64 = 256 << 20;
const DISK_WARNING_BYTES: u64 = 2 << 30;

/// Whether everything is understood, and whether secrets in the file are private.
pub(super) fn configuration(config: &Config) -> Finding {
    const CHECK: &str = "configuration";
    if let Err(error) = config.options().map(drop).and_then(|()| config.log_format().map(drop)) {
        return Finding::problem(CHECK, error.to_string(), "`palisade core config` shows where each value came from");
    }
    let Some(file) = config.file() else { return Finding::ok(CHECK, "from options, variables and defaults") };
    let secret = config.all().any(|(setting, value)| {
        setting.secret && value.is_some_and(|value| matches!(value.source, Source::File { .. }))
    });
    if secret && open_to_others(file) {
        let found = format!("{} holds a secret, and other users may read it", file.display());
        return Finding::warning(CHECK, found, format!("chmod 600 {}", file.display()));
    }
    Finding::ok(CHECK, format!("{} is understood", file.display()))
}

/// The keys of the file and of the database.
pub(super) fn keys(config: &Config, stored: Option<usize>) -> Finding {
    const CHECK: &str = "core keys";
    let file = config.text("admin_key_file").map(PathBuf::from);
    let read = file.as_ref().map(std::fs::read_to_string).transpose();
    let text = match (read, &file) {
        (Err(error), Some(file)) => {
            let found = format!("cannot read {}: {error}", file.display());
            return Finding::problem(CHECK, found, "name a file that this user may read, or none");
        }
        (read, _) => read.unwrap_or_default(),
    };
    let fixed = match CoreKeys::read(text.as_deref(), config.text("admin_key_sha256s").as_deref()) {
        Ok(keys) => keys,
        Err(error) => return Finding::problem(CHECK, error.to_string(), "correct it, or use `palisade core keys add`"),
    };
    match (&file, stored) {
        (Some(file), _) if open_to_others(file) => {
            let found = format!("other users may read {}", file.display());
            Finding::warning(CHECK, found, format!("chmod 600 {}, and replace the keys", file.display()))
        }
        (_, None | Some(0)) if fixed.is_empty() => {
            Finding::problem(CHECK, "there is no core key", "make one with `palisade core keys add --name NAME`")
        }
        (_, stored) => {
            let stored = stored.map_or_else(|| "stored ones unknown".to_owned(), |stored| format!("{stored} stored"));
            Finding::ok(CHECK, format!("{stored}{}", if fixed.is_empty() { "" } else { ", and fixed ones" }))
        }
    }
}

/// Whether this user may work in the folder, and nobody else.
pub(super) fn folder(folder: &Path) -> Finding {
    const CHECK: &str = "data folder";
    let shown = folder.display();
    let metadata = match std::fs::metadata(folder) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::warning(CHECK, format!("{shown} does not exist"), "core makes it when it first starts");
        }
        Err(error) => {
            return Finding::problem(
                CHECK,
                format!("cannot enter {shown}: {error}"),
                "name a folder this user may enter",
            );
        }
    };
    judge_folder(CHECK, folder, &metadata)
}

fn judge_folder(check: &'static str, folder: &Path, metadata: &Metadata) -> Finding {
    let (shown, user) = (folder.display(), nix::unistd::geteuid().as_raw());
    let readonly = statvfs(folder).is_ok_and(|disk| disk.flags().contains(nix::sys::statvfs::FsFlags::ST_RDONLY));
    if !metadata.is_dir() {
        return Finding::problem(check, format!("{shown} is no folder"), "name a folder with --data");
    }
    if readonly {
        return Finding::problem(check, format!("{shown} is on a read-only file system"), "mount it writable");
    }
    if metadata.uid() != user {
        let found = format!("{shown} belongs to user {}, and this is user {user}", metadata.uid());
        return Finding::warning(check, found, "run the doctor and core as the user who owns the folder");
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Finding::warning(check, format!("other users may enter {shown}"), format!("chmod 700 {shown}"));
    }
    Finding::ok(check, format!("{shown} is private to this user"))
}

/// Room for the database, its log, and one write more.
pub(super) fn disk(folder: &Path) -> Finding {
    const CHECK: &str = "disk";
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let disk = match statvfs(existing) {
        Ok(disk) => disk,
        Err(error) => {
            return Finding::warning(CHECK, format!("cannot measure {}: {error}", existing.display()), "look with df");
        }
    };
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    let found = format!("{} free below {}", bytes(Some(free)), existing.display());
    match free {
        ..DISK_PROBLEM_BYTES => Finding::problem(CHECK, found, "make room: core stops to write when the disk is full"),
        DISK_PROBLEM_BYTES..DISK_WARNING_BYTES => {
            Finding::warning(CHECK, found, "make room: outputs of commands are kept in the database")
        }
        DISK_WARNING_BYTES.. => Finding::ok(CHECK, found),
    }
}

fn open_to_others(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}
