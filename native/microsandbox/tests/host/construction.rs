use std::os::unix::fs::{MetadataExt as _, symlink};

use palisade_core::microsandbox::native::Context;
use palisade_core::units::Digest;
use palisade_core::wire::payload::Diagnostic;
use palisade_microsandbox::Refused;

use super::lab::{Lab, text};

fn construct(lab: &Lab, state: &str) -> Result<(), Refused> {
    let state = text(&lab.path(state));
    lab.construct(Context::Generation { state: &state }, lab.machine()).map(drop)
}

/// H 176. The folder of generations is made private when it is missing; whatever else stands there is refused and left as
/// it is.
#[test]
fn the_folder_of_generations_is_private_or_refused() {
    let lab = Lab::new();
    construct(&lab, "state").unwrap();
    assert_eq!(lab.path("state/generations").metadata().unwrap().mode() & 0o7777, 0o700);
    construct(&lab, "state").unwrap();

    for mode in [0o755, 0o770, 0o500] {
        lab.set_mode("state/generations", mode);
        assert!(matches!(construct(&lab, "state"), Err(Refused::Generations(_))), "{mode:o}");
        assert_eq!(lab.path("state/generations").metadata().unwrap().mode() & 0o7777, mode);
    }
    std::fs::remove_dir(lab.path("state/generations")).unwrap();
    lab.write("state/generations", "");
    assert!(matches!(construct(&lab, "state"), Err(Refused::Generations(_))));
    lab.remove("state/generations");
    std::fs::create_dir(lab.path("elsewhere")).unwrap();
    lab.set_mode("elsewhere", 0o700);
    symlink(lab.path("elsewhere"), lab.path("state/generations")).unwrap();
    assert!(matches!(construct(&lab, "state"), Err(Refused::Generations(_))));
    lab.remove("state/generations");

    symlink(lab.path("state"), lab.path("linked")).unwrap();
    assert!(matches!(construct(&lab, "linked"), Err(Refused::Generations(_))));
    assert!(matches!(construct(&lab, "missing"), Err(Refused::Generations(_))));
    assert!(!lab.path("missing").exists());
}

/// H 178. Standalone touches no state directory at all.
#[test]
fn standalone_construction_makes_nothing() {
    let lab = Lab::new();
    let host = lab.construct(Context::Standalone, lab.machine()).unwrap();
    assert!(!lab.path("state/generations").exists());
    let place = format!("microsandbox\0{}", text(&lab.store()));
    assert_eq!(host.fingerprint(), Digest::of(place.as_bytes()));
    assert_eq!(host.config().image, super::lab::image().to_string());
}

/// H 179. Only readiness of a generation asks for the image.
#[tokio::test]
async fn only_a_generation_needs_its_image() {
    let lab = Lab::new();
    lab.write("image-inspect-status", "1");
    lab.write("image-inspect", "");
    let alone = lab.construct(Context::Standalone, lab.machine()).unwrap();
    alone.probe().await.unwrap();
    assert_eq!(lab.read("calls"), "");
    let refused = lab.generation().probe().await.unwrap_err();
    assert_eq!(refused.diagnostic, Diagnostic::RuntimeImageUnavailable);
}
