//! Real file systems that are nearly full, in a mount namespace that only the test sees.
//!
//! A test starts its role with [`in_own_mounts`], which fails with the reason where nothing can be mounted; the role
//! mounts a [`SmallDisk`] wherever it wants.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::statvfs::statvfs;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Memory: blocks are taken when they are written.
    Tmpfs,
    /// A disk in a file: blocks are taken late, freed ones come back with the next commit, folders take blocks as well.
    Ext4,
}

/// What is running out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scarce {
    Blocks,
    Inodes,
}

pub(crate) const EVERYWHERE: [(FileSystem, Scarce); 4] = [
    (FileSystem::Tmpfs, Scarce::Blocks),
    (FileSystem::Tmpfs, Scarce::Inodes),
    (FileSystem::Ext4, Scarce::Blocks),
    (FileSystem::Ext4, Scarce::Inodes),
];

/// Runs an ignored test of this program where its mounts are its own, and gives what it printed.
///
/// # Panics
/// When it failed, or nothing can be mounted, with what was said.
pub(crate) fn in_own_mounts(role: &str) -> String {
    // Loop devices belong to the real root alone.
    let root = nix::unistd::geteuid().is_root();
    let mut command = Command::new("unshare");
    command.args(if root { &["--mount"][..] } else { &["--map-root-user", "--mount"] });
    command.arg(std::env::current_exe().unwrap()).args(["--exact", role, "--ignored", "--nocapture"]);
    let output = command.output().expect("unshare of util-linux is needed to mount file systems");
    let said = said(&output);
    assert!(output.status.success() && said.contains("1 passed"), "{role}: {said}");
    said
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A mounted file system of a few MiB.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    at: PathBuf,
    scarce: Scarce,
    _image: Option<tempfile::NamedTempFile>,
}

impl SmallDisk {
    /// Mounts an empty one over the folder `at`, private to its owner.
    pub(crate) fn mount(kind: FileSystem, scarce: Scarce, at: &Path) -> Self {
        let image = match kind {
            FileSystem::Tmpfs => {
                run("mount", &["-t", "tmpfs", "-o", "size=4m,nr_inodes=400,mode=700", "none", text(at)]);
                None
            }
            FileSystem::Ext4 => {
                // In memory: nothing here outlives a power cut.
                let image = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
                image.as_file().set_len(8 << 20).unwrap();
                let path = text(image.path());
                run("mkfs.ext4", &["-q", "-F", "-b", "1024", "-m", "0", "-N", "400", "-O", "^resize_inode", path]);
                run("mount", &["-o", "loop", path, text(at)]);
                std::fs::remove_dir(at.join("lost+found")).unwrap();
                std::fs::set_permissions(at, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
                Some(image)
            }
        };
        Self { at: at.to_owned(), scarce, _image: image }
    }

    /// Fills it until at most so many blocks or inodes are left.
    pub(crate) fn leave(&self, left: u64) {
        let ballast = self.at.join("ballast");
        std::fs::create_dir(&ballast).unwrap();
        match self.scarce {
            Scarce::Blocks => self.fill_blocks(&ballast.join("blocks"), left),
            Scarce::Inodes => {
                for number in left..self.free() {
                    crate::testing::write(ballast.join(number.to_string()), "");
                }
            }
        }
        assert!(self.free() <= left + 2, "{self:?} has {} left", self.free());
    }

    /// Gives the room back.
    pub(crate) fn give_back(&self) {
        std::fs::remove_dir_all(self.at.join("ballast")).unwrap();
        // What is freed on a disk with a journal comes back when that is written.
        nix::unistd::syncfs(File::open(&self.at).unwrap()).unwrap();
    }

    fn free(&self) -> u64 {
        let found = statvfs(&self.at).unwrap();
        match self.scarce {
            Scarce::Blocks => found.blocks_available(),
            Scarce::Inodes => found.files_available(),
        }
    }

    /// Block by block towards the end: a long file takes blocks for its own index.
    fn fill_blocks(&self, path: &Path, left: u64) {
        let block = usize::try_from(statvfs(&self.at).unwrap().fragment_size()).unwrap();
        let mut file = File::create(path).unwrap();
        while let Some(more @ 1..) = self.free().checked_sub(left) {
            let blocks = usize::try_from(more).unwrap();
            let written = file.write_all(&vec![1; block * if blocks > 32 { blocks - 16 } else { 1 }]);
            match written.and_then(|()| file.sync_all()) {
                // The last blocks may be needed for the index of this very file.
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return,
                written => written.unwrap(),
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &[text(&self.at)]);
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs a program of the system to its good end.
pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} is needed for this test: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}, needed for this test: {}", said(&output));
}
