use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::files::faults::Faults;
use crate::testing::{Host, fingerprint, parsed};

fn registered(host: &Host) -> (State, Stored) {
    let state = State::create(&host.path("state")).unwrap();
    let core_url = Origin::parse("https://core.example").unwrap();
    let stored = state.adopt_or_create(&parsed(), fingerprint(), &core_url, false).unwrap();
    (state, stored)
}

/// W 140. Opening again gives the stored identity, unchanged, though no capacity was approved yet.
#[test]
fn an_identity_is_made_once() {
    let host = Host::new();
    let (state, first) = registered(&host);
    let bytes = host.identity();
    drop(state);
    let (_state, second) = registered(&host);
    assert_eq!((first, host.identity()), (second, bytes));
}

/// H 252. The lock belongs to one process for its whole life; a second opener and a copy of the path fail.
#[test]
fn a_second_opener_is_refused_while_the_first_lives() {
    let host = Host::new();
    let (state, _) = registered(&host);
    for _ in 0..2 {
        let refused = State::open(&host.path("state")).unwrap_err();
        assert!(matches!(refused, IdentityError::InUse(_)), "{refused}");
    }
    assert!(is_in_use(&host.path("state")).unwrap());
    drop(state);
    assert!(!is_in_use(&host.path("state")).unwrap());
    State::open(&host.path("state")).unwrap();
}

#[test]
fn the_state_is_private() {
    let host = Host::new();
    let (_state, stored) = registered(&host);
    let mode = |name| host.path(name).metadata().unwrap().mode() & 0o7777;
    assert_eq!([mode("state"), mode("state/identity.json"), mode("state/identity.lock")], [0o700, 0o600, 0o600]);
    assert!(!format!("{stored:?}").contains(stored.credential.as_str()));
    for path in ["state", "state/identity.json"] {
        let before = host.path(path).metadata().unwrap().permissions();
        std::fs::set_permissions(host.path(path), PermissionsExt::from_mode(0o755)).unwrap();
        assert!(matches!(peek(&host.path("state")), Err(IdentityError::File(_))));
        std::fs::set_permissions(host.path(path), before).unwrap();
    }
}

/// W 149. Promise 15. E36. A node that was killed between a change and its sync leaves what the next one finds, tells
/// Core of and works with: that is durable as soon as it has the lock, whether an identity, an epoch or a generation.
#[test]
fn what_a_start_finds_is_not_taken_back_by_a_loss_of_power() {
    let (host, attic) = (Host::new(), tempfile::tempdir().unwrap());
    let (state, stored) = registered(&host);
    drop(state);
    let (directory, epoch) = (host.path("state"), OwnerEpoch::new(7));
    let generations = directory.join(GENERATIONS);
    let next = Stored { owner_epoch: epoch, ..stored }.encode();
    let mut disk = Faults::none().remembering(attic.path());
    disk.make_directory(&generations).unwrap();
    disk.create(&generations.join("4.json")).unwrap();
    let mut disk = stopped_before_its_sync(disk, &directory, &next);
    assert_eq!(disk.names_at_risk(), 4, "{:?}", disk.names());
    let _state = State::lock(&mut disk, &directory).unwrap();
    assert_eq!(peek(&directory).unwrap().unwrap().owner_epoch, epoch);
    disk.lose(0);
    assert_eq!(peek(&directory).unwrap().unwrap().owner_epoch, epoch);
    assert!(generations.join("4.json").exists());
}

/// Everything of a write but the sync of the directory.
fn stopped_before_its_sync(mut disk: Faults, directory: &Path, contents: &[u8]) -> Faults {
    let temporary = directory.join(TEMPORARY);
    let file = disk.create(&temporary).unwrap();
    disk.write(&file, contents).unwrap();
    disk.sync(&file).unwrap();
    disk.rename(&temporary, &directory.join(IDENTITY)).unwrap();
    disk
}

#[test]
fn a_missing_state_directory_is_no_node() {
    let host = Host::new();
    assert!(matches!(State::open(&host.path("state")), Err(IdentityError::Unregistered(_))));
    assert_eq!(peek(&host.path("state")).unwrap(), None);
    assert!(!host.path("state").exists());
}

#[test]
fn an_epoch_is_durable_when_it_is_recorded() {
    let host = Host::new();
    let (state, mut stored) = registered(&host);
    let epoch = OwnerEpoch::new(7).unwrap();
    state.record_epoch(&mut stored, epoch).unwrap();
    assert_eq!(stored.owner_epoch, Some(epoch));
    assert_eq!(peek(&host.path("state")).unwrap(), Some(stored.clone()));
    std::fs::create_dir(host.path("state").join(TEMPORARY)).unwrap();
    state.record_epoch(&mut stored, OwnerEpoch::new(8).unwrap()).unwrap_err();
    assert_eq!(stored.owner_epoch, Some(epoch), "what is not on disk is not remembered");
}

/// W 36. A connection that is gone cannot bring a lower epoch back, whichever of the two stores last.
#[test]
fn a_lower_epoch_is_never_recorded_over_a_higher_one() {
    let host = Host::new();
    let (state, mut stored) = registered(&host);
    state.record_epoch(&mut stored, OwnerEpoch::new(9).unwrap()).unwrap();
    let refused = state.record_epoch(&mut stored, OwnerEpoch::new(8).unwrap()).unwrap_err();
    assert!(matches!(refused, IdentityError::LowerEpoch), "{refused}");
    assert_eq!(peek(&host.path("state")).unwrap().unwrap().owner_epoch, OwnerEpoch::new(9));
}

/// A status must not wait for the other end of a pipe.
#[test]
fn a_pipe_in_place_of_the_lock_is_refused() {
    let host = Host::new();
    drop(registered(&host));
    let lock = host.path("state").join(LOCK);
    std::fs::remove_file(&lock).unwrap();
    nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    is_in_use(&host.path("state")).unwrap_err();
    State::open(&host.path("state")).unwrap_err();
}

#[rstest]
#[case("credential", json!("A".repeat(64)))]
#[case("credential", json!("a".repeat(63)))]
#[case("credential", Value::Null)]
#[case("core_url", json!("https://core.example/api/v1"))]
#[case("owner_epoch", json!(-1))]
#[case("owner_epoch", json!(9_223_372_036_854_775_808_u64))]
#[case("owner_epoch", json!(1.0))]
#[case("allow_insecure_origin", Value::Null)]
#[case("allow_insecure_origin", json!("true"))]
#[case("other", json!(1))]
#[case("identity", json!([]))]
#[case("identity.node_id", json!("6F1C2B1E-5F0A-4A55-9D0E-0A1B2C3D4E5F"))]
#[case("identity.provider", json!("e2b"))]
#[case("identity.deployment_generation", json!(0))]
#[case("identity.backend_fingerprint", json!("1"))]
#[case("identity.max_active", json!(-1))]
#[case("identity.max_retained", json!(1))]
#[case("identity.other", json!(1))]
/// W 152. A value that cannot be right is damage: the file is refused and stays.
fn a_wrong_value_is_damage(#[case] name: &str, #[case] value: Value) {
    let host = Host::new();
    drop(registered(&host));
    let mut file: Value = serde_json::from_slice(&host.identity()).unwrap();
    match name.strip_prefix("identity.") {
        Some(inner) => file["identity"][inner] = value,
        None => file[name] = value,
    }
    crate::testing::write(host.path("state/identity.json"), file.to_string());
    let refused = peek(&host.path("state")).unwrap_err();
    assert!(matches!(refused, IdentityError::Damaged { .. }), "{refused}");
    assert_eq!(host.identity(), file.to_string().into_bytes());
}

/// W 146. A file without the opt-in is strict: plain http to another host is refused when it is read.
/// W 144. With it the address is used.
#[test]
fn a_file_without_the_opt_in_is_strict() {
    let host = Host::new();
    drop(registered(&host));
    let mut file: Value = serde_json::from_slice(&host.identity()).unwrap();
    file["core_url"] = json!("http://core.example");
    for (opt_in, permitted) in [(None, false), (Some(false), false), (Some(true), true)] {
        if let Some(opt_in) = opt_in {
            file["allow_insecure_origin"] = json!(opt_in);
        }
        crate::testing::write(host.path("state/identity.json"), file.to_string());
        match peek(&host.path("state")) {
            Ok(Some(stored)) => assert!(permitted && stored.allow_insecure_origin),
            Err(IdentityError::Insecure(_)) => assert!(!permitted),
            other => panic!("{other:?}"),
        }
    }
}
