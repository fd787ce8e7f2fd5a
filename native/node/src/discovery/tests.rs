use std::os::unix::fs::{PermissionsExt as _, symlink};

use palisade_core::generation::configuration::Configuration as Record;
use palisade_core::generation::recovery::{Cause, Collecting, Damage, Difference, Object, Owner, Plan};
use rstest::rstest;
use serde_json::json;

use super::*;
use palisade_core::limits::MARKER_MAX_BYTES;

use crate::files;
use crate::identity::State;
use crate::origin::Origin;
use crate::testing::{Host, configuration, fingerprint, parsed, ready};

/// A node of generation 3 that is registered, with a directory of generations.
struct Site {
    host: Host,
    stored: Stored,
    _state: State,
}

impl Site {
    fn new() -> Self {
        let host = Host::new();
        let core_url = Origin::parse("https://core.example").unwrap();
        let state = State::create(&host.path("state")).unwrap();
        let stored = state.adopt_or_create(&parsed(), fingerprint(), &core_url, false).unwrap();
        let site = Self { host, stored, _state: state };
        files::ensure_private_directory(&site.directory()).unwrap();
        site
    }

    fn directory(&self) -> std::path::PathBuf {
        self.host.path("state").join(GENERATIONS)
    }

    fn write(&self, name: &str, contents: &[u8]) {
        files::replace(&self.directory(), name, ".partial", contents).unwrap();
    }

    fn discover(&self) -> Result<Local, DiscoveryError> {
        Local::discover(&self.host.path("state"), &parsed(), &self.stored, |_| Ok(ready()))
    }

    /// The generations that enter the table, with how they do.
    fn found(&self) -> Vec<(u64, &'static str)> {
        let local = self.discover().unwrap();
        let kind = |found: &Found| match found {
            Found::Provider(_) => "provider",
            Found::Recovery => "recovery",
            Found::Collecting => "collecting",
        };
        local.found.iter().map(|(reference, found)| (reference.generation.get(), kind(found))).collect()
    }

    fn refusal(&self) -> Refused {
        match self.discover().err().expect("the start is refused") {
            DiscoveryError::Refused(refused) => refused,
            other => panic!("refused otherwise: {other}"),
        }
    }
}

fn numbered(generation: u64) -> Record {
    let mut document = configuration();
    document["generation"] = json!(generation);
    Record::parse(document.to_string().as_bytes()).unwrap()
}

fn owner(generation: u64) -> Owner {
    Owner::of(&numbered(generation).envelope)
}

fn plan(generation: u64, import_started: bool) -> Vec<u8> {
    Plan { import_started, configuration: numbered(generation) }.to_bytes()
}

#[test]
fn a_node_without_records_has_the_enrolled_generation() {
    let site = Site::new();
    assert_eq!(site.found(), [(3, "provider")]);
    std::fs::remove_dir(site.directory()).unwrap();
    let local = site.discover().unwrap();
    assert_eq!(local.recorded, BTreeSet::from([parsed().generation()]));
    assert_eq!(local.found[0].0.specification_digest, parsed().digest());
}

/// W 88, W 157. H 153. What is unfinished is recovered, what is half collected only waits, what is dropped is gone.
#[test]
fn every_generation_enters_as_its_records_say() {
    let site = Site::new();
    for generation in [3, 4, 6, 7, 8] {
        site.write(&format!("{generation}.json"), &numbered(generation).to_bytes());
    }
    site.write("5.preparing", &plan(5, false));
    site.write("6.preparing", &plan(6, true));
    site.write("7.collecting", &owner(7).collecting(Collecting { native_complete: true }));
    site.write("8.collecting", &owner(8).collecting(Collecting { native_complete: true }));
    site.write("8.dropped", &owner(8).dropped());
    site.write("9.lease", b"");
    let expected = [(3, "provider"), (4, "provider"), (5, "recovery"), (6, "recovery"), (7, "collecting")];
    assert_eq!(site.found(), expected);
    let local = site.discover().unwrap();
    let numbers = |set: Vec<&Generation>| set.into_iter().map(|generation| generation.get()).collect::<Vec<_>>();
    assert_eq!(numbers(local.recorded.iter().collect()), [3, 4, 5, 6, 7], "what has files is never forgotten");
    assert_eq!(numbers(local.providers.keys().collect()), [3, 4]);
}

/// Promise 15. W 156. H 140, H 151. E36. A record that is empty, torn, of another generation, open to others, linked or
/// a pipe stops the start with its path; nothing is read for ever.
#[test]
fn a_record_that_cannot_be_believed_stops_the_start() {
    let damage = |spoil: &dyn Fn(&Site, &Path)| {
        let site = Site::new();
        site.write("4.json", &numbered(4).to_bytes());
        let path = site.directory().join("4.dropped");
        spoil(&site, &path);
        let refused = site.refusal();
        assert!(refused.to_string().starts_with("state/node/generations/4.dropped: "), "{refused}");
        assert_eq!((refused.generation, refused.refusal.object), (Generation::new(4), Object::Dropped));
        refused.refusal.cause
    };
    let record = owner(4).dropped();
    let content = |bytes: &[u8]| damage(&|site, _| site.write("4.dropped", bytes));
    assert_eq!(content(b""), Cause::Damaged(Damage::Content));
    assert_eq!(content(&record[..record.len() / 2]), Cause::Damaged(Damage::Content));
    assert_eq!(content(&vec![b' '; MARKER_MAX_BYTES + 1]), Cause::Damaged(Damage::Size));
    assert_eq!(content(&owner(5).dropped()), Cause::Foreign(Difference::Generation));
    let opened = damage(&|site, path| {
        site.write("4.dropped", &record);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    });
    assert_eq!(opened, Cause::Damaged(Damage::Access));
    let linked = damage(&|site, path| {
        site.write("kept", &record);
        symlink(site.directory().join("kept"), path).unwrap();
    });
    assert_eq!(linked, Cause::Damaged(Damage::Link));
    let dangling = damage(&|site, path| symlink(site.directory().join("nowhere"), path).unwrap());
    assert_eq!(dangling, Cause::Damaged(Damage::Link));
    let hard = damage(&|site, path| {
        site.write("kept", &record);
        std::fs::hard_link(site.directory().join("kept"), path).unwrap();
    });
    assert_eq!(hard, Cause::Damaged(Damage::HardLink));
    let pipe = damage(&|_, path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap());
    assert_eq!(pipe, Cause::Damaged(Damage::Kind));
    let directory = damage(&|_, path| files::ensure_private_directory(path).unwrap());
    assert_eq!(directory, Cause::Damaged(Damage::Kind));
}

/// W 159. H 155. The directory is private and not reached through a link, neither itself nor a parent.
#[test]
fn an_unsafe_directory_stops_the_start() {
    let site = Site::new();
    let set = |mode| std::fs::set_permissions(site.directory(), std::fs::Permissions::from_mode(mode)).unwrap();
    let refused = |site: &Site| site.refusal().refusal;
    set(0o750);
    assert_eq!(refused(&site).cause, Cause::Damaged(Damage::Access));
    set(0o700);
    assert_eq!(site.found(), [(3, "provider")]);

    let moved = site.host.path("elsewhere");
    std::fs::rename(site.directory(), &moved).unwrap();
    symlink(&moved, site.directory()).unwrap();
    assert_eq!(refused(&site).cause, Cause::Damaged(Damage::Link));
    std::fs::remove_file(site.directory()).unwrap();
    symlink(site.host.path("nowhere"), site.directory()).unwrap();
    assert_eq!(refused(&site).cause, Cause::Damaged(Damage::Link));
    std::fs::remove_file(site.directory()).unwrap();
    std::fs::rename(&moved, site.directory()).unwrap();

    symlink(site.host.path("state"), site.host.path("alias")).unwrap();
    let through = || Local::discover(&site.host.path("alias"), &parsed(), &site.stored, |_| Ok(ready()));
    let error = through().err().expect("a linked parent").to_string();
    assert!(error.contains("symbolic link"), "{error}");
    std::fs::remove_dir(site.directory()).unwrap();
    assert!(through().is_err(), "a link that leads to nothing does not prove that there was nothing");
}

#[rstest]
#[case("04.json")]
#[case("0.preparing")]
#[case("x.json")]
fn a_name_that_resembles_a_record_stops_the_start(#[case] name: &str) {
    let site = Site::new();
    site.write(name, b"{}");
    let told = site.discover().err().expect("the start stops").to_string();
    let path = site.directory().join(name);
    assert!(
        told.contains(path.to_str().unwrap()) && told.contains("such as 7.json") && told.contains("rename"),
        "{told}"
    );
}

#[test]
fn leftovers_of_interrupted_writes_are_ignored() {
    let site = Site::new();
    for name in [".4.json.partial", "notes"] {
        site.write(name, b"half");
    }
    assert_eq!(site.found(), [(3, "provider")]);
}

/// A generation whose files are missing is recovered; one that fails otherwise, or works elsewhere, stops the start.
#[test]
fn a_failed_construction_is_a_recovery_only_for_a_missing_file() {
    let site = Site::new();
    site.write("4.json", &numbered(4).to_bytes());
    let start = |fourth: fn() -> Result<Backend, ConfigurationError>| {
        let build = |configuration: &Configuration| match configuration.generation().get() {
            4 => fourth(),
            _ => Ok(ready()),
        };
        Local::discover(&site.host.path("state"), &parsed(), &site.stored, build)
    };
    let missing = start(|| Err(palisade_docker::Refused::SeccompMissing("/gone".into()).into())).unwrap();
    assert!(matches!(&missing.found[1], (reference, Found::Recovery) if reference.generation.get() == 4));
    assert_eq!((missing.providers.len(), missing.recorded.len()), (1, 2));
    let failed = start(|| Err(ConfigurationError::NoProvider("microsandbox"))).err().unwrap();
    assert!(matches!(failed, DiscoveryError::Provider { .. }), "{failed}");
    let elsewhere = || {
        let fingerprint = palisade_core::units::Digest::of(b"another engine");
        Ok(Backend { fingerprint, ..ready() })
    };
    let foreign = start(elsewhere).err().unwrap();
    assert!(matches!(foreign, DiscoveryError::Backend { .. }), "{foreign}");
}
