use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::process::Stdio;

use palisade_core::generation::recovery::{Cause, Difference, Object, Refusal, admit_helper};
use palisade_microsandbox::{Helper, LeaseUnavailable};
use rstest::rstest;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use super::*;
use crate::files::disk::System;
use crate::files::faults::{Faults, Stop};
use crate::generations::Records;
use crate::generations::testing::{self, Place, number, numbered, owner, reference};

impl Place {
    fn lock(&self, mode: Mode) -> Held<Lease> {
        Lease::open(&self.layout.generations(), number(3), mode).unwrap()
    }

    fn is_free(&self) -> bool {
        // Another thread may be starting a process, which has a copy of every lock until it becomes another program.
        (0..100).any(|_| {
            let free = matches!(self.lock(Mode::Exclusive), Held::Yes(_));
            free || {
                std::thread::sleep(std::time::Duration::from_millis(2));
                false
            }
        })
    }

    fn inode(&self) -> u64 {
        self.path("3.lease").metadata().unwrap().ino()
    }

    /// What a helper that already has the lock would be told.
    fn admitted(&self, held: &Held<Lease>) -> Result<(), Refusal> {
        let directory = self.layout.generations();
        let records = Records::read(&directory, &numbered(3)).unwrap();
        let claim = held.claim(Lock::Open, &directory, records.directory(), &owner(3).expected());
        admit_helper(&claim, &records.of(number(3)).journals)
    }

    fn refusal(&self) -> Refusal {
        HelperLease::acquire(self.layout.root(), reference(3)).unwrap_err();
        self.admitted(&self.lock(Mode::Shared)).unwrap_err()
    }

    /// Lets go of the lease, and makes another one of the same look.
    fn recreate(&self) {
        let (lease, old) = (self.path("3.lease"), self.path("old"));
        std::fs::rename(&lease, &old).unwrap();
        drop(System.create(&lease).unwrap());
    }
}

/// A helper that says that it runs, and runs until its input ends.
fn helper() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "test -e /proc/self/fd/$OAC_NODE_GENERATION_LEASE_FD && echo ready; read line; exit 7"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

async fn ready(helper: &mut Helper) {
    let line = BufReader::new(helper.stdout.as_mut().unwrap()).lines().next_line().await.unwrap();
    assert_eq!(line.as_deref(), Some("ready"), "the helper has the lease as descriptor 3");
}

/// H 129, H 130, H 160, H 171. Promise 7. A helper that lives keeps every collector out, and the same inode is free again
/// once it has really ended, whatever became of its caller.
#[tokio::test]
async fn a_lease_is_held_until_the_helper_really_ends() {
    let place = Place::enrolled();
    let inode = place.inode();
    let lease = HelperLease::acquire(place.layout.root(), reference(3)).unwrap();
    let mut helper = lease.spawn(helper()).unwrap();
    ready(&mut helper).await;
    assert!(matches!(place.lock(Mode::Exclusive), Held::Busy));
    assert!(matches!(place.lock(Mode::Shared), Held::Yes(_)), "helpers run beside one another");

    let mut input = helper.stdin.take().unwrap();
    helper.exited.abort();
    assert!(matches!(place.lock(Mode::Exclusive), Held::Busy), "a cancelled caller lets nobody in");
    input.write_all(b"end\n").await.unwrap();
    drop(input);
    while !place.is_free() {
        tokio::task::yield_now().await;
    }
    assert_eq!(place.inode(), inode);
}

/// H 160. The count of helpers goes down only when the process has ended.
#[tokio::test]
async fn the_lock_is_given_back_after_the_end_was_seen() {
    let place = Place::enrolled();
    let lease = HelperLease::acquire(place.layout.root(), reference(3)).unwrap();
    let mut helper = lease.spawn(helper()).unwrap();
    ready(&mut helper).await;
    drop(helper.stdin.take());
    assert_eq!(helper.exited.await.unwrap().unwrap().code(), Some(7));
    assert!(place.is_free());
}

/// H 160. No other child of the node gets the lease, which would hold it for as long as that one lives.
#[tokio::test]
async fn no_other_child_gets_the_lease() {
    let place = Place::enrolled();
    let lease = HelperLease::acquire(place.layout.root(), reference(3)).unwrap();
    let mut other = std::process::Command::new("/bin/sleep").arg("600").spawn().unwrap();
    drop(lease);
    let free = place.is_free();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(free);
}

/// H 168. The node is killed; its helper lives on and keeps the collector out. A lease that was put in the place of the
/// one that the orphan holds is refused meanwhile and afterwards, and the inode is the same at the end.
#[test]
fn a_lease_survives_the_end_of_the_node() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let place = Place::enrolled();
    let inode = place.inode();
    let root = place.layout.root().to_str().unwrap();
    let mut node = testing::process("generations::lease::tests::a_node_with_a_helper", &[("PALISADE_TEST_ROOT", root)]);
    let mut node = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // The helper of the node has its standard input and output from us, so that it outlives the node.
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("ready")));
    let mut input = node.stdin.take().unwrap();
    node.kill().unwrap();
    node.wait().unwrap();
    assert!(matches!(place.lock(Mode::Exclusive), Held::Busy), "the orphan keeps the generation");

    place.recreate();
    assert_eq!(place.refusal(), Refusal { object: Object::LeaseRecord, cause: Cause::Foreign(Difference::Inode) });
    std::fs::rename(place.path("old"), place.path("3.lease")).unwrap();

    input.write_all(b"end\n").unwrap();
    while !place.is_free() {
        std::thread::yield_now();
    }
    assert_eq!(place.inode(), inode);
    HelperLease::acquire(place.layout.root(), reference(3)).unwrap();
}

#[tokio::test]
#[ignore = "the node of a_lease_survives_the_end_of_the_node, started by it as a process of its own"]
async fn a_node_with_a_helper() {
    let root = testing::argument("PALISADE_TEST_ROOT");
    let lease = HelperLease::acquire(Path::new(&root), reference(3)).unwrap();
    let mut command = helper();
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit());
    let helper = lease.spawn(command).unwrap();
    helper.exited.await.unwrap().unwrap();
}

/// H 129, H 150. Preparation, repair and collection exclude one another and every helper.
#[test]
fn exclusive_work_excludes_everybody() {
    let place = Place::enrolled();
    let held = place.lock(Mode::Exclusive);
    assert!(matches!(held, Held::Yes(_)));
    assert!(matches!(place.lock(Mode::Exclusive), Held::Busy));
    assert_eq!(place.refusal(), Refusal { object: Object::Lease, cause: Cause::Busy });
    drop(held);
    HelperLease::acquire(place.layout.root(), reference(3)).unwrap();
}

/// H 170. A lease of the same look in the place of the recorded one is refused, the original is accepted again, and a
/// lease without its record is refused for good.
#[test]
fn only_the_recorded_inode_is_the_lease() {
    let place = Place::enrolled();
    place.recreate();
    assert_eq!(place.refusal(), Refusal { object: Object::LeaseRecord, cause: Cause::Foreign(Difference::Inode) });
    std::fs::rename(place.path("old"), place.path("3.lease")).unwrap();
    HelperLease::acquire(place.layout.root(), reference(3)).unwrap();
    std::fs::remove_file(place.path("3.lease-identity")).unwrap();
    assert_eq!(place.refusal(), Refusal { object: Object::Lease, cause: Cause::Unrecorded });
}

/// H 131, H 169, H 171, H 175. Whatever only looks like a lease or its record is refused with its class.
#[rstest]
#[case::open_to_others("3.lease", Damage::Access, |path: &Path| chmod(path, 0o644))]
#[case::with_content("3.lease", Damage::Size, |path: &Path| append(path, "x"))]
#[case::with_two_names("3.lease", Damage::HardLink, |path: &Path| std::fs::hard_link(path, path.with_extension("x")).unwrap())]
#[case::record_open_to_others("3.lease-identity", Damage::Access, |path: &Path| chmod(path, 0o640))]
#[case::record_with_more("3.lease-identity", Damage::Content, |path: &Path| append(path, "{}"))]
#[case::record_too_long("3.lease-identity", Damage::Size, |path: &Path| append(path, &" ".repeat(MARKER_MAX_BYTES)))]
#[case::record_with_two_names("3.lease-identity", Damage::HardLink, |path: &Path| std::fs::hard_link(path, path.with_extension("x")).unwrap())]
#[case::record_behind_a_link("3.lease-identity", Damage::Link, elsewhere)]
#[case::record_is_a_pipe("3.lease-identity", Damage::Kind, pipe)]
fn a_look_alike_is_refused(#[case] name: &str, #[case] damage: Damage, #[case] spoil: fn(&Path)) {
    let place = Place::enrolled();
    spoil(&place.path(name));
    let object = if name == "3.lease" { Object::Lease } else { Object::LeaseRecord };
    let refusal = place.refusal();
    assert_eq!(refusal, Refusal { object, cause: Cause::Damaged(damage) });
    let exclusive = place.lock(Mode::Exclusive);
    assert_eq!(place.admitted(&exclusive), Err(refusal), "a collector is told the same");
}

/// H 131, H 140, H 169. A link in the place of a lease is not followed, a pipe is not waited for.
#[test]
fn what_cannot_be_a_lease_is_not_opened_as_one() {
    let place = Place::enrolled();
    elsewhere(&place.path("3.lease"));
    let refused = Lease::open(&place.layout.generations(), number(3), Mode::Exclusive).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ELOOP as i32));
    HelperLease::acquire(place.layout.root(), reference(3)).unwrap_err();
    std::fs::remove_file(place.path("3.lease")).unwrap();
    pipe(&place.path("3.lease"));
    assert_eq!(place.refusal(), Refusal { object: Object::Lease, cause: Cause::Damaged(Damage::Kind) });
}

/// H 169, H 172. No helper starts beside anything unfinished, whatever stands there, nor without a final configuration.
#[rstest]
#[case("3.preparing")]
#[case("3.collecting")]
#[case("3.dropped")]
fn nothing_unfinished_may_stand_beside(#[case] name: &str) {
    let place = Place::enrolled();
    for contents in ["", "{}"] {
        place.write(name, contents.as_bytes());
        HelperLease::acquire(place.layout.root(), reference(3)).unwrap_err();
    }
    std::fs::remove_file(place.path(name)).unwrap();
    HelperLease::acquire(place.layout.root(), reference(3)).unwrap();
}

/// H 172, H 173. The original generation is configured by `provider.json`; any other needs its own final file, and
/// another generation's does not do.
#[test]
fn a_helper_needs_the_final_configuration_of_its_generation() {
    let place = Place::enrolled();
    place.lease(4);
    let acquire = || HelperLease::acquire(place.layout.root(), reference(4)).map(drop);
    assert_eq!(acquire(), Err(LeaseUnavailable));
    place.write("4.json", &numbered(5).to_bytes());
    assert_eq!(acquire(), Err(LeaseUnavailable));
    place.write("4.json", &numbered(4).to_bytes());
    assert_eq!(acquire(), Ok(()));
    let specification_digest = palisade_core::units::Digest::of(b"another specification");
    let other = palisade_core::wire::payload::GenerationReference { specification_digest, ..reference(4) };
    assert_eq!(HelperLease::acquire(place.layout.root(), other).map(drop), Err(LeaseUnavailable));
}

/// H 129, H 169, H 172. What starts the helpers of microsandbox starts them under this lease, and none while a collector
/// has it or beside a journal.
#[tokio::test]
async fn helpers_of_microsandbox_start_under_the_lease() {
    use palisade_core::microsandbox::helper::Operation;
    use palisade_core::outcome::Failure;
    let place = Place::enrolled();
    // Whatever is asked, it says the same.
    let native = r#"{"helper_path":"/bin/cat","runtime_path":"/m","firmware_path":"/f","runtime_home":"/s",
        "network":{"default_egress":"deny","default_ingress":"deny","rules":[]}}"#;
    let native = palisade_core::strict::object(native.as_bytes()).unwrap();
    let lease = GenerationLease::new(place.layout.root(), reference(3));
    let helpers = palisade_microsandbox::Helpers::new(&native, Some(std::sync::Arc::new(lease)), []);
    assert!(place.is_free());
    let ask = async || helpers.ask(Operation::Kill, br#"{"Version":3}"#.to_vec()).await.map(drop);
    assert_eq!(ask().await, Ok(()));
    assert!(place.is_free());
    let collector = place.lock(Mode::Exclusive);
    assert_eq!(ask().await, Err(Failure::Unconfirmed));
    drop(collector);
    place.write("3.preparing", b"{}");
    assert_eq!(ask().await, Err(Failure::Unconfirmed));
}

/// Decision 24. Whatever system call a creation is interrupted at, with or without what was not synced: the lease and its
/// record are both durable, or the record is not there and the lease is never adopted.
#[test]
fn an_interrupted_creation_is_finished_or_refused() {
    let mut outcomes = [0; 3];
    for (calls, kept) in (0..16).flat_map(|calls| (0..5).map(move |kept| (calls, kept))) {
        let (place, attic) = (Place::new(), tempfile::tempdir().unwrap());
        let directory = place.layout.generations();
        let mut disk = Faults::after(calls, Stop::Power).remembering(attic.path());
        let created = Lease::create(&mut disk, &directory, number(3));
        let recorded =
            matches!(&created, Ok(Held::Yes(lease)) if lease.record(&mut disk, &directory, &owner(3)).is_ok());
        drop(created);
        disk.lose(kept);
        let records = Records::read(&directory, &numbered(3)).unwrap();
        let claim = Held::No.claim(Lock::Held, &directory, records.directory(), &owner(3).expected());
        match (claim.lease, claim.record) {
            (recovery::Lease::Absent, Entry::Absent) => outcomes[0] += 1,
            (recovery::Lease::Present, Entry::Absent) => outcomes[1] += 1,
            (recovery::Lease::Present, Entry::Ours(())) => outcomes[2] += 1,
            other => panic!("after {calls} calls with {kept} names kept: {other:?}"),
        }
        assert!(!recorded || claim.record == Entry::Ours(()), "a recorded lease is durable");
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn append(path: &Path, text: &str) {
    use std::io::Write as _;
    File::options().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn elsewhere(path: &Path) {
    let other = path.with_extension("elsewhere");
    std::fs::rename(path, &other).unwrap();
    symlink(other, path).unwrap();
}

fn pipe(path: &Path) {
    if path.exists() {
        std::fs::remove_file(path).unwrap();
    }
    let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
    nix::unistd::mkfifo(path, mode).unwrap();
}
