//! What may be believed of a file: the whole of it, or nothing.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::generation::configuration::Configuration;
use crate::units::{Digest, Generation, Id};

const INSTALLATION: &str = "6f1c2b1e-5f0a-4a55-9d0e-0a1b2c3d4e5f";
const OTHER: &str = "7f1c2b1e-5f0a-4a55-9d0e-0a1b2c3d4e5f";

const PRIVATE: Status = Status { kind: FileKind::File, owned: true, mode: 0o600, links: 1, device: 2_049, inode: 77 };

fn generation(number: u64) -> Generation {
    Generation::new(number).unwrap()
}

fn native(image: &str) -> Value {
    json!({"host": "unix:///var/run/docker.sock", "image": image, "network": "oac-node", "seccomp_file": "/s.json"})
}

fn document(provider: &str, number: u64, native: &Value) -> Value {
    let hex = |digit: &str, length| digit.repeat(length);
    let disks = json!({"cpus": 2, "memory_mib": 4096, "root_disk_mib": 4096, "environment_disk_mib": 4096});
    let plain = json!({"cpus": 2, "memory_mib": 4096});
    json!({
        "installation_id": INSTALLATION,
        "provider": provider,
        "core_url": "https://core.example/api/v1",
        "generation": number,
        "specification": {
            "resources": if provider == "docker" { plain } else { disks },
            "runtime": {
                "source_commit": hex("a", 40),
                "image_id": format!("sha256:{}", hex("b", 64)),
                "image_manifest_digest": format!("sha256:{}", hex("c", 64)),
                "microsandbox_ref": format!("oac-runtime@sha256:{}", hex("d", 64)),
                "runtime_sha256": hex("e", 64),
                "firmware_sha256": hex("f", 64),
            },
        },
        "native": native,
    })
}

fn configuration(number: u64) -> Configuration {
    Configuration::parse(document("docker", number, &native("sha256:b")).to_string().as_bytes()).unwrap()
}

fn opened(bytes: &[u8]) -> Look<'_> {
    Look::Opened(PRIVATE, bytes)
}

/// Which record, with a way to read it as that of generation 3 with the configuration of [`configuration`].
#[derive(Clone, Copy, Debug)]
enum Kind {
    Lease,
    Configuration,
    Preparing,
    Collecting,
    Dropped,
}

const KINDS: [Kind; 5] = [Kind::Lease, Kind::Configuration, Kind::Preparing, Kind::Collecting, Kind::Dropped];

impl Kind {
    fn good(self) -> Vec<u8> {
        let configuration = configuration(3);
        let owner = Owner::of(&configuration.envelope);
        match self {
            Self::Lease => owner.lease_record(PRIVATE),
            Self::Configuration => configuration.to_bytes(),
            Self::Preparing => Plan { import_started: true, configuration }.to_bytes(),
            Self::Collecting => owner.collecting(Collecting { native_complete: true }),
            Self::Dropped => owner.dropped(),
        }
    }

    fn read(self, look: Look<'_>) -> Entry<()> {
        let base = configuration(1).envelope;
        let expected = Owner::of(&configuration(3).envelope).expected();
        match self {
            Self::Lease => look.lease_record(&expected, PRIVATE),
            Self::Configuration => look.configuration(&base, generation(3)).to(|_| ()),
            Self::Preparing => look.preparing(&base, generation(3), None).to(|plan| assert!(plan.import_started)),
            Self::Collecting => look.collecting(&expected).to(|journal| assert!(journal.native_complete)),
            Self::Dropped => look.dropped(&expected),
        }
    }

    const fn max(self) -> usize {
        match self {
            Self::Lease | Self::Collecting | Self::Dropped => 4_096,
            Self::Configuration | Self::Preparing => 16_384,
        }
    }

    fn with(self, change: impl FnOnce(&mut Value)) -> Entry<()> {
        let mut document: Value = serde_json::from_slice(&self.good()).unwrap();
        change(&mut document);
        self.read(opened(document.to_string().as_bytes()))
    }
}

#[test]
fn what_is_written_is_read_again() {
    for kind in KINDS {
        assert_eq!(kind.read(opened(&kind.good())), Entry::Ours(()), "{kind:?}");
        assert_eq!(kind.read(Look::Absent), Entry::Absent);
        assert_eq!(kind.good().iter().position(|byte| *byte == b'\n'), Some(kind.good().len() - 1), "one line");
    }
}

/// W 156. H 140, H 151. Open permissions, another owner, several names, a FIFO or a directory are refused; so is what
/// the file system would not show.
#[rstest]
#[case(Status { kind: FileKind::Other, ..PRIVATE }, Damage::Kind)]
#[case(Status { kind: FileKind::Directory, ..PRIVATE }, Damage::Kind)]
#[case(Status { mode: 0o640, ..PRIVATE }, Damage::Access)]
#[case(Status { mode: 0o604, ..PRIVATE }, Damage::Access)]
#[case(Status { mode: 0o400, ..PRIVATE }, Damage::Access)]
#[case(Status { mode: 0o700, ..PRIVATE }, Damage::Access)]
#[case(Status { mode: 0o4600, ..PRIVATE }, Damage::Access)]
#[case(Status { owned: false, ..PRIVATE }, Damage::Access)]
#[case(Status { links: 2, ..PRIVATE }, Damage::HardLink)]
#[case(Status { links: 0, ..PRIVATE }, Damage::HardLink)]
fn a_file_that_is_not_private_is_damaged(#[case] status: Status, #[case] damage: Damage) {
    for kind in KINDS {
        assert_eq!(kind.read(Look::Opened(status, &kind.good())), Entry::Damaged(damage), "{kind:?}");
    }
    assert_eq!(Look::Opened(status, b"").lease(), Lease::Damaged(damage));
}

#[test]
fn what_could_not_be_read_is_damaged() {
    for damage in [Damage::Link, Damage::Replaced, Damage::Unreadable] {
        for kind in KINDS {
            assert_eq!(kind.read(Look::Failed(damage)), Entry::Damaged(damage));
        }
        assert_eq!(Look::Failed(damage).lease(), Lease::Damaged(damage));
        assert_eq!(Look::Failed(damage).directory(), Entry::Damaged(damage));
        assert_eq!(Look::Failed(damage).base().to(|_| ()), Entry::Damaged(damage));
    }
}

#[test]
fn a_record_is_bounded() {
    for kind in KINDS {
        let padded = |length| {
            let mut bytes = kind.good();
            bytes.resize(length, b' ');
            bytes
        };
        for length in [kind.max() - 1, kind.max()] {
            assert_eq!(kind.read(opened(&padded(length))), Entry::Ours(()), "{kind:?}");
        }
        assert_eq!(kind.read(opened(&padded(kind.max() + 1))), Entry::Damaged(Damage::Size), "{kind:?}");
    }
    assert_eq!(opened(b"").lease(), Lease::Present);
    assert_eq!(opened(b"x").lease(), Lease::Damaged(Damage::Size));
}

/// W 156. H 151. Every member is there exactly once, of its type and never null; nothing else is, and nothing follows.
/// E36. An empty file and one of NUL bytes, as a lost write leaves them, are damage and not absence.
#[test]
fn a_record_holds_exactly_its_members() {
    let damaged = Entry::Damaged(Damage::Content);
    for kind in KINDS {
        let document: Value = serde_json::from_slice(&kind.good()).unwrap();
        for name in document.as_object().unwrap().keys() {
            assert_eq!(kind.with(|document| document[name] = Value::Null), damaged, "{kind:?} {name}");
            assert_eq!(kind.with(|document| document[name] = json!([])), damaged, "{kind:?} {name}");
            assert_eq!(kind.with(|document| drop(document.as_object_mut().unwrap().remove(name))), damaged);
            let repeated = document.to_string().replacen('{', &format!("{{\"{name}\":{},", document[name]), 1);
            assert_eq!(kind.read(opened(repeated.as_bytes())), damaged, "{kind:?} {name}");
        }
        assert_eq!(kind.with(|document| document["other"] = json!(1)), damaged, "{kind:?}");
        let trailing = [kind.good(), b"{}".to_vec()].concat();
        let half = kind.good()[..kind.good().len() / 2].to_vec();
        for bytes in [trailing, half, Vec::new(), vec![0; 200], b"null".to_vec(), b"[]".to_vec()] {
            assert_eq!(kind.read(opened(&bytes)), damaged, "{kind:?}");
        }
    }
    for boolean in [json!(true), json!(1.0), json!("1"), json!(-1)] {
        assert_eq!(Kind::Lease.with(|document| document["device"] = boolean.clone()), damaged);
        assert_eq!(Kind::Lease.with(|document| document["inode"] = boolean.clone()), damaged);
    }
    for phase in [json!(0), json!("true")] {
        assert_eq!(Kind::Collecting.with(|document| document["native_complete"] = phase.clone()), damaged);
        assert_eq!(Kind::Preparing.with(|document| document["import_started"] = phase.clone()), damaged);
    }
}

/// W 156. H 151. Each record binds installation, generation and specification.
#[test]
fn a_record_of_something_else_is_foreign() {
    for kind in [Kind::Lease, Kind::Preparing, Kind::Collecting, Kind::Dropped] {
        let foreign = |name: &str, value: Value| kind.with(|document| document[name] = value);
        assert_eq!(foreign("installation_id", json!(OTHER)), Entry::Foreign(Difference::Installation), "{kind:?}");
        assert_eq!(foreign("generation", json!(4)), Entry::Foreign(Difference::Generation), "{kind:?}");
        let digest = json!(Digest::of(b"other"));
        assert_eq!(foreign("specification_digest", digest), Entry::Foreign(Difference::Specification), "{kind:?}");
    }
}

/// A configuration agrees with the base in installation, provider and Core, and with its own name in the number.
#[test]
fn a_configuration_of_something_else_is_foreign() {
    let with = |name: &str, value: Value| Kind::Configuration.with(|document| document[name] = value);
    assert_eq!(with("installation_id", json!(OTHER)), Entry::Foreign(Difference::Installation));
    assert_eq!(with("core_url", json!("https://other.example/api/v1")), Entry::Foreign(Difference::Core));
    assert_eq!(with("generation", json!(4)), Entry::Foreign(Difference::Generation));
    let micro = document("microsandbox", 3, &json!({}));
    assert_eq!(Kind::Configuration.read(opened(micro.to_string().as_bytes())), Entry::Foreign(Difference::Provider));
    let planned = |name: &str, value: Value| Kind::Preparing.with(|document| document["configuration"][name] = value);
    assert_eq!(planned("installation_id", json!(OTHER)), Entry::Foreign(Difference::Installation));
    assert_eq!(planned("core_url", json!("https://other.example/api/v1")), Entry::Foreign(Difference::Core));
    assert_eq!(planned("generation", json!(4)), Entry::Foreign(Difference::Generation));
}

/// H 170, H 171. A lease record names the very inode that is locked: a lease that was made again is refused although
/// owner, mode and content match.
#[test]
fn a_lease_record_names_the_locked_inode() {
    let expected = Owner::of(&configuration(3).envelope).expected();
    let record = Kind::Lease.good();
    for lease in [Status { inode: 78, ..PRIVATE }, Status { device: 1, ..PRIVATE }] {
        assert_eq!(opened(&record).lease_record(&expected, lease), Entry::Foreign(Difference::Inode));
    }
    assert_eq!(opened(&record).lease_record(&expected, PRIVATE), Entry::Ours(()));
}

/// Where neither configuration nor plan names a generation any more, its record still names installation and number.
#[test]
fn a_lone_record_is_bound_to_installation_and_number() {
    let lone = Expected {
        installation: Id::parse(INSTALLATION).unwrap(),
        generation: generation(3),
        specification_digest: None,
    };
    let record = Kind::Dropped.good();
    assert_eq!(opened(&record).dropped(&lone), Entry::Ours(()));
    let other = Expected { generation: generation(4), ..lone };
    assert_eq!(opened(&record).dropped(&other), Entry::Foreign(Difference::Generation));
}

/// W 158. H 154. A resolved image of Docker may differ from the plan's, and nothing else may.
#[test]
fn only_a_resolved_image_may_differ_from_the_plan() {
    let base = configuration(1).envelope;
    let read = |plan: &Value, last: &Value| {
        let [plan, last] = [plan, last].map(|document| Configuration::parse(document.to_string().as_bytes()).unwrap());
        let journal = Plan { import_started: true, configuration: plan }.to_bytes();
        opened(&journal).preparing(&base, generation(3), Some(&last)).to(|_| ())
    };
    let plan = document("docker", 3, &native("sha256:b"));
    assert_eq!(read(&plan, &document("docker", 3, &native("sha256:c"))), Entry::Ours(()));
    for name in ["host", "network", "seccomp_file", "other"] {
        let mut changed = plan.clone();
        changed["native"][name] = json!("changed");
        assert_eq!(read(&plan, &changed), Entry::Foreign(Difference::Native), "{name}");
        assert_eq!(read(&changed, &plan), Entry::Foreign(Difference::Native), "{name}");
    }
    let mut resized = plan.clone();
    resized["specification"]["resources"]["cpus"] = json!(3);
    assert_eq!(read(&plan, &resized), Entry::Foreign(Difference::Specification));
    let mut numbered = plan.clone();
    numbered["generation"] = json!(4);
    assert_eq!(read(&plan, &numbered), Entry::Foreign(Difference::Generation));
}

#[test]
fn nothing_native_of_microsandbox_is_resolved_later() {
    let read = |image: &str| {
        Configuration::parse(document("microsandbox", 3, &json!({"image": image})).to_string().as_bytes()).unwrap()
    };
    assert_eq!(read("a").difference_from_plan(&read("a")), None);
    assert_eq!(read("a").difference_from_plan(&read("b")), Some(Difference::Native));
}

/// W 159. H 155. The generations directory is a real one, ours, and mode 0700 exactly.
#[test]
fn the_generations_directory_is_private() {
    let directory = Status { kind: FileKind::Directory, mode: 0o700, links: 2, ..PRIVATE };
    let read = |status| Look::Opened(status, b"").directory();
    assert_eq!(read(directory), Entry::Ours(()));
    assert_eq!(Look::Absent.directory(), Entry::Absent);
    for mode in [0o755, 0o750, 0o701, 0o1700, 0o500, 0o600] {
        assert_eq!(read(Status { mode, ..directory }), Entry::Damaged(Damage::Access), "{mode:o}");
    }
    assert_eq!(read(Status { owned: false, ..directory }), Entry::Damaged(Damage::Access));
    assert_eq!(read(Status { kind: FileKind::File, ..directory }), Entry::Damaged(Damage::Kind));
    assert_eq!(Look::Failed(Damage::Link).directory(), Entry::Damaged(Damage::Link));
}

/// The enrolled configuration holds no secret: others may read it, and nobody else may write it.
#[test]
fn the_base_may_be_read_by_others_and_written_by_nobody_else() {
    let bytes = configuration(1).to_bytes();
    let read = |status| Look::Opened(status, &bytes).base().to(|base| base.envelope.generation);
    for mode in [0o600, 0o644] {
        assert_eq!(read(Status { mode, ..PRIVATE }), Entry::Ours(generation(1)));
    }
    for mode in [0o646, 0o664, 0o602, 0o620] {
        assert_eq!(read(Status { mode, ..PRIVATE }), Entry::Damaged(Damage::Access), "{mode:o}");
    }
    assert_eq!(read(Status { owned: false, ..PRIVATE }), Entry::Damaged(Damage::Access));
    assert_eq!(opened(b"{}").base().to(|_| ()), Entry::Damaged(Damage::Content));
}

/// The records of one number are read together: each unsound one shows, and a marker is compared with what the
/// configuration or the plan says.
#[test]
fn the_records_of_a_generation_are_read_together() {
    let (base, last) = (configuration(1), configuration(3));
    let owner = Owner::of(&last.envelope);
    let plan = Plan { import_started: false, configuration: last.clone() }.to_bytes();
    let (file, collecting, dropped) =
        (last.to_bytes(), owner.collecting(Collecting { native_complete: false }), owner.dropped());
    let all = Looks {
        configuration: opened(&file),
        preparing: opened(&plan),
        collecting: opened(&collecting),
        dropped: opened(&dropped),
    };
    let read = |looks: Looks<'_>| looks.read(&base, generation(3));
    let recorded = read(all);
    assert_eq!(
        recorded.journals,
        Journals {
            enrolled: false,
            configuration: Entry::Ours(()),
            preparing: Entry::Ours(Preparing { import_started: false }),
            collecting: Entry::Ours(Collecting { native_complete: false }),
            dropped: Entry::Ours(()),
        }
    );
    assert_eq!(recorded.specification_digest, Some(last.envelope.digest()));
    let planned = read(Looks { configuration: Look::Absent, ..all });
    assert_eq!(
        (planned.journals.dropped, planned.specification_digest),
        (Entry::Ours(()), Some(last.envelope.digest()))
    );
    let nothing = read(Looks::NONE);
    assert_eq!((nothing.journals, nothing.specification_digest), (Journals::NONE, None));

    let mut resized = document("docker", 3, &native("sha256:b"));
    resized["specification"]["resources"]["cpus"] = json!(3);
    let resized = Configuration::parse(resized.to_string().as_bytes()).unwrap().to_bytes();
    let other = read(Looks { configuration: opened(&resized), ..all }).journals;
    let foreign = Difference::Specification;
    assert_eq!((other.preparing, other.dropped), (Entry::Foreign(foreign), Entry::Foreign(foreign)));
    assert_eq!(other.collecting, Entry::Foreign(foreign));
}

/// H 173. The enrolled generation serves with `provider.json`, and its `<g>.json` must say the same.
#[test]
fn the_enrolled_generation_has_two_sources_that_agree() {
    let base = configuration(3);
    let read = |document: &Value| {
        let bytes = document.to_string().into_bytes();
        Looks { configuration: opened(&bytes), ..Looks::NONE }.read(&base, generation(3)).journals.configuration
    };
    let alone = Looks::NONE.read(&base, generation(3));
    assert_eq!((alone.journals.enrolled, alone.journals.configuration), (true, Entry::Absent));
    assert_eq!(alone.configuration.map(|last| last.envelope), Some(base.envelope.clone()));
    let mut document = document("docker", 3, &native("sha256:c"));
    assert_eq!(read(&document), Entry::Ours(()));
    document["specification"]["resources"]["cpus"] = json!(3);
    assert_eq!(read(&document), Entry::Foreign(Difference::Specification));
}
