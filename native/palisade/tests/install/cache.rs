//! The private folder of downloads: what is not as it must be is refused before any request, and left as it is.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::Mode;
use palisade_core::units::Digest;

use crate::host::{Host, SHELLS, Who, expect, install, said};
use crate::server::{Answer, Server};

/// Makes something on a host that has an empty private folder, and expects a refusal that names it and changes nothing.
fn refused(make: impl Fn(&Host), suspicious: impl Fn(&Host) -> std::path::PathBuf, told: &str) {
    for (shell, who) in SHELLS.into_iter().flat_map(|shell| [Who::User, Who::Root].map(|who| (shell, who))) {
        let host = Host::new(who);
        host.make_cache();
        make(&host);
        let path = suspicious(&host);
        let look = |path: &Path| {
            let metadata = path.symlink_metadata().unwrap();
            (metadata.ino(), metadata.mode(), metadata.uid(), metadata.len(), metadata.mtime_nsec())
        };
        let before = look(&path);
        let installer = host.installer(0);
        let server = Server::start(Answer::File(installer.clone()));
        let output = host.run(shell, &install(&server, &installer));
        expect(&output, 1, shell);
        let message = said(&output);
        assert!(message.contains(told) && message.contains(&path.display().to_string()), "{shell:?}: {message}");
        assert_eq!(look(&path), before, "{shell:?}");
        assert!(server.requests().is_empty() && host.started().is_none(), "{shell:?}");
    }
}

fn cache(host: &Host) -> std::path::PathBuf {
    host.cache()
}

/// H 38. A folder that somebody else may write to, or that leads elsewhere, holds no installer.
#[test]
fn a_folder_that_is_not_private_is_refused() {
    const TOLD: &str = "must be a folder of yours, no link, with mode 0700";
    for mode in [0o755, 0o750, 0o1700, 0o500] {
        let change = |host: &Host| std::fs::set_permissions(host.cache(), Permissions::from_mode(mode)).unwrap();
        refused(change, cache, TOLD);
    }
    refused(|host| chown(host.cache(), Some(1), None).unwrap(), cache, TOLD);
    let link = |host: &Host| {
        std::fs::rename(host.cache(), host.path("home/.oac/real")).unwrap();
        symlink(host.path("home/.oac/real"), host.cache()).unwrap();
    };
    refused(link, cache, TOLD);
}

/// H 38. Nor is anything made behind a link that stands for the folder above.
#[test]
fn a_link_above_the_folder_is_refused() {
    let link = |host: &Host| {
        std::fs::rename(host.path("home/.oac"), host.path("home/real")).unwrap();
        std::fs::remove_dir(host.path("home/real/node-bootstrap")).unwrap();
        symlink(host.path("home/real"), host.path("home/.oac")).unwrap();
    };
    refused(link, |host| host.path("home/.oac"), "is a link");
}

/// H 38. A name in the folder that stands for something else than a plain file of the operator is refused.
#[test]
fn a_name_that_is_no_plain_file_is_refused() {
    const TOLD: &str = "no plain file of yours";
    let names = ["download.lock".to_owned(), "download.partial".to_owned()];
    let kept = |host: &Host| format!("node-install-{}", Digest::of(&host.installer(0)));
    for name in names.into_iter().map(Some).chain([None]) {
        let path = |host: &Host| host.cache().join(name.clone().unwrap_or_else(|| kept(host)));
        refused(|host| symlink(host.path("tmp/target"), path(host)).unwrap(), path, TOLD);
        refused(|host| std::fs::create_dir(path(host)).unwrap(), path, TOLD);
        refused(|host| nix::unistd::mkfifo(&path(host), Mode::from_bits_truncate(0o600)).unwrap(), path, TOLD);
        let foreign = |host: &Host| {
            std::fs::write(path(host), "").unwrap();
            chown(path(host), Some(1), None).unwrap();
        };
        refused(foreign, path, TOLD);
    }
}

/// H 38. Two commands at once: the second ends with 1 and touches nothing.
#[test]
fn a_second_command_at_once_ends_with_1() {
    for shell in SHELLS {
        let host = Host::new(Who::User);
        host.make_cache();
        for name in ["download.lock", "download.partial"] {
            std::fs::write(host.cache().join(name), "of the first").unwrap();
            host.give(&host.cache().join(name));
        }
        let lock = std::fs::File::open(host.cache().join("download.lock")).unwrap();
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error).unwrap();
        let installer = host.installer(0);
        let server = Server::start(Answer::File(installer.clone()));
        let output = host.run(shell, &install(&server, &installer));
        expect(&output, 1, shell);
        assert!(said(&output).contains("another download is under way"), "{}", said(&output));
        assert!(server.requests().is_empty() && host.partial().exists(), "{shell:?}");
        drop(lock);
        expect(&host.run(shell, &install(&server, &installer)), 0, shell);
    }
}

/// H 38. An installer of an earlier run that is still being executed keeps its bytes: the new one is another file.
#[test]
fn a_kept_installer_is_replaced_and_never_written_to() {
    let host = Host::new(Who::User);
    let installer = host.installer(0);
    let server = Server::start(Answer::File(installer.clone()));
    let text = install(&server, &installer);
    let kept = host.cache().join(format!("node-install-{}", Digest::of(&installer)));
    expect(&host.run(SHELLS[0], &text), 0, SHELLS[0]);
    let before = std::fs::File::open(&kept).unwrap();
    expect(&host.run(SHELLS[0], &text), 0, SHELLS[0]);
    assert_ne!(before.metadata().unwrap().ino(), kept.metadata().unwrap().ino());
    assert_eq!(before.metadata().unwrap().len(), installer.len() as u64);
}
