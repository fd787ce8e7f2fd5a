//! Whatever only looks like a file of ours, in every place that is read, written or deleted: refused, and left as it is.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use palisade_core::deployment::contract::Provider as Kind;

use super::report::generations;
use super::testing::Site;
use crate::files::faults::{Faults, Stop};
use crate::testing::small_disk::{in_own_mounts, run};
use crate::testing::{INSTALLATION, write};

/// What stands in a place instead of our file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fake {
    /// A symbolic link to it.
    Link,
    /// It, with a second name elsewhere.
    HardLink,
    /// A FIFO.
    Pipe,
    /// A folder where a file belongs, a file where a folder belongs.
    Other,
    /// It, with permissions for others.
    Open,
    /// It, of another account.
    Owned,
    /// A copy of it that is mounted there.
    Mounted,
    /// A copy of it, which is another inode.
    Copied,
    /// The same of another installation.
    Foreign,
}

const FAKES: [Fake; 9] = [
    Fake::Link,
    Fake::HardLink,
    Fake::Pipe,
    Fake::Other,
    Fake::Open,
    Fake::Owned,
    Fake::Mounted,
    Fake::Copied,
    Fake::Foreign,
];

/// A place below the home, the work that meets it, and the fakes that are as good as ours there, with the reason.
struct Place {
    path: &'static str,
    state: State,
    harmless: &'static [Fake],
}

/// What was done before the fake is put in the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Generation 5 has a release of its own.
    Prepared,
    /// The preparation of generation 5 ended half-way.
    Unfinished,
    /// The collection of generation 5 ended half-way.
    Collecting,
    /// Generation 5 is gone.
    Dropped,
    /// Generation 3, whose files stand below ROOT, is not needed any more.
    Original,
}

const ROOT: &str = ".oac/nodes/n";
const RELEASE: &str = ".oac/nodes/n/releases/1111111111111111111111111111111111111111";

/// A file that is only read may be another inode, and may be mounted: it is compared as a whole each time.
const READ: &[Fake] = &[Fake::Mounted, Fake::Copied];
/// It is replaced or removed, which a mount does not allow.
const REPLACED: &[Fake] = &[Fake::Copied];
/// Its own content is all that counts, and it names no installation.
const CONTENT: &[Fake] = &[Fake::Copied, Fake::Foreign];

const PLACES: &[Place] = &[
    Place { path: "provider.json", state: State::Prepared, harmless: &[Fake::HardLink, Fake::Mounted, Fake::Copied] },
    // Nothing is ever written to it; whoever has it locked has it, under whichever name.
    Place {
        path: "install.lock",
        state: State::Prepared,
        harmless: &[Fake::HardLink, Fake::Mounted, Fake::Copied, Fake::Foreign],
    },
    Place { path: "runtime-artifacts.json", state: State::Original, harmless: READ },
    Place { path: "runtime/seccomp.json", state: State::Original, harmless: CONTENT },
    Place { path: "state/node/generations", state: State::Prepared, harmless: &[Fake::HardLink, Fake::Foreign] },
    Place { path: "state/node/generations/5.lease", state: State::Prepared, harmless: &[Fake::Foreign] },
    Place { path: "state/node/generations/5.lease-identity", state: State::Prepared, harmless: READ },
    Place { path: "state/node/generations/5.json", state: State::Prepared, harmless: READ },
    Place { path: "state/node/generations/5.preparing", state: State::Unfinished, harmless: REPLACED },
    Place { path: "state/node/generations/5.collecting", state: State::Collecting, harmless: REPLACED },
    Place { path: "state/node/generations/5.dropped", state: State::Dropped, harmless: READ },
    // A folder has one name, and names nobody.
    Place {
        path: "releases",
        state: State::Prepared,
        harmless: &[Fake::HardLink, Fake::Foreign, Fake::Copied, Fake::Open, Fake::Owned, Fake::Mounted],
    },
    Place { path: "RELEASE", state: State::Prepared, harmless: &[Fake::HardLink, Fake::Foreign, Fake::Copied] },
    Place { path: "RELEASE/manifest.json", state: State::Prepared, harmless: CONTENT },
    Place { path: "RELEASE/runtime/seccomp.json", state: State::Prepared, harmless: CONTENT },
    Place { path: "RELEASE/native/microsandbox/msb", state: State::Prepared, harmless: CONTENT },
];

impl Place {
    fn path(&self, home: &Path) -> PathBuf {
        match self.path.strip_prefix("RELEASE") {
            Some(rest) => home.join(format!("{RELEASE}{rest}")),
            None => home.join(ROOT).join(self.path),
        }
    }

    /// The generation that is worked on.
    fn generation(&self) -> u64 {
        if self.state == State::Original { 3 } else { 5 }
    }

    fn set_up(&self, kind: Kind) -> Site {
        let site = Site::new(kind);
        let until = |call: &str, work: &dyn Fn(&Site, &mut Faults)| {
            let (other, mut all) = (Site::new(kind), Faults::none());
            other.prepare(4).unwrap();
            work(&other, &mut all);
            site.prepare(4).unwrap();
            let calls = all.calls.iter().position(|made| made == call).unwrap();
            work(&site, &mut Faults::after(calls + 2, Stop::Power));
        };
        match self.state {
            State::Prepared | State::Original => drop(site.prepare(5).unwrap()),
            State::Unfinished => until("rename 5.preparing", &|site, disk| drop(site.prepare_on(disk, 5))),
            State::Collecting => until("rename 5.collecting", &|site, disk| {
                site.prepare(5).unwrap();
                drop(site.collect_on(disk, 5));
            }),
            State::Dropped => {
                site.prepare(5).unwrap();
                site.collect(5).unwrap();
            }
        }
        site
    }
}

/// Puts the fake in the place of what is there; `attic` is elsewhere on the same disk. `false` where there is no such fake.
fn put(fake: Fake, path: &Path, attic: &Path) -> bool {
    let (is_folder, real) = (path.is_dir(), attic.join("real"));
    match fake {
        Fake::Link => {
            std::fs::rename(path, &real).unwrap();
            symlink(&real, path).unwrap();
        }
        Fake::HardLink if is_folder => return false,
        Fake::HardLink => std::fs::hard_link(path, &real).unwrap(),
        Fake::Pipe => {
            std::fs::rename(path, &real).unwrap();
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
        }
        Fake::Other => {
            std::fs::rename(path, &real).unwrap();
            if is_folder { write(path, "a file") } else { std::fs::create_dir(path).unwrap() }
        }
        Fake::Open => std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap(),
        Fake::Owned => {
            chown(path, Some(65_534), None).expect("another owner takes the right of root to give files away");
        }
        Fake::Mounted => {
            run("cp", &["-a", path.to_str().unwrap(), real.to_str().unwrap()]);
            run("mount", &["--bind", real.to_str().unwrap(), path.to_str().unwrap()]);
        }
        Fake::Copied => {
            std::fs::rename(path, &real).unwrap();
            run("cp", &["-a", real.to_str().unwrap(), path.to_str().unwrap()]);
        }
        Fake::Foreign => return !is_folder && name_another_installation(path),
    }
    true
}

fn name_another_installation(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap();
    let other = text.replace(INSTALLATION, &INSTALLATION.replace('0', "1"));
    write(path, &other);
    other != text
}

/// Everything below the home and the attic, by kind, permissions, owner, inode and content.
fn everything(home: &Path) -> BTreeMap<PathBuf, String> {
    let list = "find .oac attic -exec stat -c '%n %F %a %u %i' {} + ; find .oac attic -type f -exec sha256sum {} +";
    let listed = std::process::Command::new("sh").args(["-c", list]).current_dir(home).output().unwrap();
    let mut found: BTreeMap<PathBuf, String> = BTreeMap::new();
    for line in String::from_utf8(listed.stdout).unwrap().lines() {
        let (first, rest) = line.split_once(' ').unwrap();
        let (path, fact) = if first.len() == 64 { (rest.trim(), first) } else { (first, rest) };
        found.entry(path.into()).or_default().push_str(fact);
    }
    found
}

/// H 131, H 140, H 141, H 155. Places × fakes: each is refused with its class, by preparation or collection or both, and
/// whatever refused left everything byte for byte as it was; what is as good as ours is named in the table, and nothing
/// elsewhere is touched through it.
#[test]
fn no_look_alike_is_taken_for_ours() {
    let said = in_own_mounts("generations::lookalikes::every_fake_in_every_place");
    said.lines().filter(|line| line.contains(" → ")).for_each(|line| println!("{line}"));
}

#[test]
#[ignore = "mounts; started by no_look_alike_is_taken_for_ours"]
fn every_fake_in_every_place() {
    let mut wrong = Vec::new();
    for (place, fake) in PLACES.iter().flat_map(|place| FAKES.map(|fake| (place, fake))) {
        let kind = Kind::Microsandbox;
        let site = place.set_up(kind);
        let home = site.root().ancestors().nth(3).unwrap().to_owned();
        std::fs::create_dir(home.join("attic/elsewhere")).unwrap();
        let path = place.path(&home);
        assert!(path.exists(), "{}", path.display());
        if !put(fake, &path, &home.join("attic/elsewhere")) {
            continue;
        }
        let (told, refused) = meet(&site, place, fake, &home);
        if fake == Fake::Mounted {
            run("umount", &[path.to_str().unwrap()]);
        }
        println!("{:<44} {fake:<9?} → {told}", place.path);
        if refused == place.harmless.contains(&fake) {
            wrong.push(format!("{} {fake:?}: {told}", place.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Prepares and collects; whether one of them refused.
fn meet(site: &Site, place: &Place, fake: Fake, home: &Path) -> (String, bool) {
    let generation = place.generation();
    let elsewhere = |found: &BTreeMap<PathBuf, String>| {
        found
            .iter()
            .filter(|(path, _)| path.starts_with("attic"))
            .map(|(path, fact)| (path.clone(), fact.clone()))
            .collect::<Vec<_>>()
    };
    let before = everything(home);
    let mut told = Vec::new();
    let mut refused = false;
    let done = place.state == State::Dropped || place.state == State::Collecting;
    for work in ["prepare", "collect"] {
        let here = everything(home);
        let outcome = if work == "prepare" { site.prepare(generation) } else { site.collect(generation) };
        let after = everything(home);
        if let Err(failure) = &outcome {
            // A collected or half-collected generation is never prepared, whatever stands there.
            refused |= !(done && work == "prepare");
            let lost: Vec<_> = here.iter().filter(|(path, fact)| after.get(*path) != Some(fact)).collect();
            assert!(lost.is_empty(), "{}: {failure}: {lost:#?}", place.path);
        }
        // Whoever keeps all releases on another disk wants them collected there.
        let on_another_disk = fake == Fake::Mounted && place.path == "releases";
        assert!(on_another_disk || elsewhere(&before) == elsewhere(&after), "{} {fake:?}: {work}", place.path);
        told.push(format!("{work}: {}", outcome.map_or_else(|failure| failure.to_string(), |_| "done".to_owned())));
    }
    let start = generations(&site.root()).map(|held| format!("{} generations", held.len()));
    told.push(format!("start: {}", start.unwrap_or_else(|refused| refused.to_string())));
    (told.join(" · "), refused)
}
