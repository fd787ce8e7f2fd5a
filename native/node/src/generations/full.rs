//! Real disks that run out of blocks or inodes at every write of a run: what serves goes on serving, the class of the
//! failure is the fixed one, everything written is accounted for, and with room again the next run finishes.

use std::path::{Path, PathBuf};

use palisade_core::deployment::contract::Provider as Kind;
use palisade_core::distribution::catalogue::Catalogue;
use palisade_core::generation::preparer::{Ended, conclude};
use palisade_core::generation::recovery::Name;
use palisade_core::units::OwnerEpoch;
use palisade_core::wire::payload::Diagnostic;

use super::crashes::{ALL, Work};
use super::enroll::enroll;
use super::layout::Layout;
use super::outside::Failure;
use super::testing::{Site, numbered};
use crate::files::disk::System;
use crate::files::writer;
use crate::identity::{self, State};
use crate::origin::Origin;
use crate::testing::small_disk::{EVERYWHERE, SmallDisk, in_own_mounts};
use crate::testing::{fingerprint, parsed};

/// A run that still fails with this much room is not limited by it.
const ROOM_MAX: u64 = 200;

/// E33. Promise 15. Blocks or inodes end at every write of preparation, repair and collection, on tmpfs and on ext4.
#[test]
fn a_full_disk_ends_no_generation_and_leaves_nothing_unknown() {
    let said = in_own_mounts("generations::full::runs_on_small_disks");
    let rows: Vec<_> = said.lines().filter(|line| line.contains(" left: ")).collect();
    for row in &rows {
        println!("{row}");
    }
    assert!(rows.len() > 100, "every write is met: {said}");
}

/// E33. The same for the enrollment, whose lease is never without its record, and for the identity and the epoch.
#[test]
fn a_full_disk_loses_no_identity() {
    in_own_mounts("generations::full::records_on_small_disks");
}

/// Calls `point` with ever more room, until it says that the room was enough.
fn with_ever_more_room(mut point: impl FnMut(u64) -> bool) -> u64 {
    let enough = (0..ROOM_MAX).find(|&left| point(left));
    enough.expect("with room everything succeeds")
}

#[test]
#[ignore = "mounts file systems; started by a_full_disk_ends_no_generation_and_leaves_nothing_unknown"]
fn runs_on_small_disks() {
    let (folder, world) = (short_folder(), short_folder());
    for (file_system, scarce) in EVERYWHERE {
        let disk = SmallDisk::mount(file_system, scarce, folder.path());
        for (work, kind) in ALL.into_iter().flat_map(|work| [Kind::Docker, Kind::Microsandbox].map(|kind| (work, kind)))
        {
            with_ever_more_room(|left| {
                let home = Home::new(folder.path(), world.path());
                let failed = starve(&disk, &home.install(kind), work, left);
                let what = format!("{file_system:?} {scarce:?}");
                println!(
                    "{what:<14} {:<12} {work:?} · {left:>3} left: {}",
                    kind.name(),
                    failed.as_deref().unwrap_or("enough")
                );
                failed.is_none()
            });
        }
    }
}

/// A home on the small disk, whose engines and servers are elsewhere. Gone with this.
struct Home<'a> {
    home: PathBuf,
    world: &'a Path,
}

impl<'a> Home<'a> {
    fn new(disk: &Path, world: &'a Path) -> Self {
        let home = disk.join("h");
        writer::ensure_private_directory(&mut System, &home).unwrap();
        std::os::unix::fs::symlink(world, home.join("world")).unwrap();
        Self { home, world }
    }

    fn install(&self, kind: Kind) -> Site {
        Site::install(&self.home, kind)
    }
}

impl Drop for Home<'_> {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.home).unwrap();
        for entry in self.world.read_dir().unwrap() {
            std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
        }
    }
}

/// Runs with so much room left; gives why the run failed, after everything that must hold then was checked.
fn starve(disk: &SmallDisk, site: &Site, work: Work, left: u64) -> Option<String> {
    work.set_up(site);
    let before = site.everything();
    disk.leave(left);
    let failure = work.run(site, &mut System).err();
    let others = site.admits(work.other());
    let strange: Vec<_> = site.everything().into_keys().filter(|path| !before.contains_key(path)).collect();
    let strange: Vec<_> = strange.iter().filter(|path| !is_accounted_for(site, path)).collect();
    disk.give_back();
    assert!(others || work == Work::Repair, "{work:?}, {left} left: the other generation serves on");
    let failure = failure?;
    assert_eq!(strange, Vec::<&PathBuf>::new(), "{work:?}, {left} left: {failure}");
    assert!(failure.to_string().contains("No space left on device"), "{work:?}, {left} left: {failure}");
    assert_eq!(class(&failure), Err(Diagnostic::ProviderUnavailable), "{failure}");
    let again = work.run(site, &mut System);
    again.unwrap_or_else(|again| panic!("{work:?}, {left} left: {failure}; with room: {again}"));
    assert_eq!(site.local(work.generation()), work.end());
    Some(failure.to_string().replace(site.root().to_str().unwrap(), ""))
}

/// What Core is told.
fn class(failure: &Failure) -> Result<(), Diagnostic> {
    conclude(Ended::Exit(failure.exit_code().into()), false)
}

/// A file that the next run, a start or `palisade node generations` knows by its name.
fn is_accounted_for(site: &Site, path: &Path) -> bool {
    let name = path.file_name().unwrap().to_str().unwrap();
    if path.parent() == Some(&site.layout.generations()) {
        return Name::parse(name).is_ok_and(|name| name != Name::Unknown);
    }
    let of_a_release = Catalogue::bundled().all().values().any(|declared| site.root().join(declared.path) == *path);
    let known = of_a_release
        || path.starts_with(site.layout.releases())
        || path.starts_with(site.stores())
        || name == Layout::LOCK;
    known && !name.contains(".partial")
}

#[test]
#[ignore = "mounts file systems; started by a_full_disk_loses_no_identity"]
fn records_on_small_disks() {
    let folder = short_folder();
    for (file_system, scarce) in EVERYWHERE {
        let disk = SmallDisk::mount(file_system, scarce, folder.path());
        let enrolled = with_ever_more_room(|left| enrolls(&disk, folder.path(), left));
        let identified = with_ever_more_room(|left| identifies(&disk, folder.path(), left));
        println!("{file_system:?} {scarce:?}: an enrollment takes {enrolled}, an identity {identified}");
        assert!(enrolled > 0 && identified > 0);
    }
}

/// Whether an enrollment had enough room; when it had not, the next one has.
fn enrolls(disk: &SmallDisk, folder: &Path, left: u64) -> bool {
    let root = folder.join("root");
    writer::ensure_private_directory(&mut System, &root).unwrap();
    let layout = Layout::new(&root);
    writer::ensure_private_directories(&mut System, &root, &layout.state()).unwrap();
    let base = numbered(3);
    writer::record(&mut System, &root, Layout::BASE, &base.to_bytes()).unwrap();
    disk.leave(left);
    let enrolled = enroll(&mut System, &layout, &base);
    disk.give_back();
    if let Err(failure) = &enrolled {
        assert!(failure.to_string().contains("No space left on device"), "{left} left: {failure}");
        let again = enroll(&mut System, &layout, &base);
        again.unwrap_or_else(|again| panic!("{left} left: {failure}; with room: {again}"));
    }
    assert_eq!(crate::testing::files_below(&layout.generations()), ["3.lease", "3.lease-identity"]);
    std::fs::remove_dir_all(root).unwrap();
    enrolled.is_ok()
}

/// Whether a new identity and its epoch had enough room; when they had not, what is stored stays, and the next try has.
fn identifies(disk: &SmallDisk, folder: &Path, left: u64) -> bool {
    let directory = folder.join("state");
    let core_url = Origin::parse("https://core.example").unwrap();
    let create = || State::create(&directory)?.adopt_or_create(&parsed(), fingerprint(), &core_url, false);
    disk.leave(left);
    let created = create();
    disk.give_back();
    let first = created.is_ok();
    let mut stored = created.unwrap_or_else(|_| {
        assert!(!directory.join("identity.json").exists(), "half an identity is none");
        create().unwrap()
    });
    let before = identity::peek(&directory).unwrap();
    let state = State::open(&directory).unwrap();
    disk.leave(left);
    let recorded = state.record_epoch(&mut stored, OwnerEpoch::new(7).unwrap());
    disk.give_back();
    if recorded.is_err() {
        assert_eq!(identity::peek(&directory).unwrap(), before, "the identity is as it was");
        state.record_epoch(&mut stored, OwnerEpoch::new(7).unwrap()).unwrap();
    }
    assert_eq!(identity::peek(&directory).unwrap().unwrap().owner_epoch, OwnerEpoch::new(7));
    assert_eq!(crate::testing::files_below(&directory), ["identity.json", "identity.lock"]);
    drop(state);
    std::fs::remove_dir_all(directory).unwrap();
    first && recorded.is_ok()
}

/// A store's path has at most 48 bytes.
fn short_folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("f").rand_bytes(4).tempdir_in("/tmp").unwrap()
}
