use std::os::unix::fs::{MetadataExt as _, symlink};

use palisade_core::limits::MSB_ANSWER_MAX_BYTES;
use palisade_core::microsandbox::native::Context;
use palisade_core::wire::payload::Diagnostic;
use palisade_microsandbox::{Machine, MicrosandboxHost};

use super::lab::{Lab, answer, image, text};

async fn told(host: &MicrosandboxHost) -> Option<Diagnostic> {
    host.probe().await.err().map(|refused| refused.diagnostic)
}

/// H 221. A store that is open to others, is a link or is missing is refused, left as it is, and accepted again after a
/// repair by whoever may.
#[tokio::test]
async fn the_store_is_private_or_refused() {
    let lab = Lab::new();
    let host = lab.generation();
    let store = ".oac/m/0123456789ab";
    for mode in [0o755, 0o770, 0o500, 0o000] {
        lab.set_mode(store, mode);
        assert_eq!(told(&host).await, Some(Diagnostic::ProviderUnavailable), "{mode:o}");
        assert_eq!(lab.store().metadata().unwrap().mode() & 0o7777, mode);
    }
    lab.set_mode(store, 0o700);
    assert_eq!(told(&host).await, None);
    std::fs::rename(lab.store(), lab.path("elsewhere")).unwrap();
    assert_eq!(told(&host).await, Some(Diagnostic::ProviderUnavailable));
    assert!(!lab.store().exists(), "a probe makes nothing");
    symlink(lab.path("elsewhere"), lab.store()).unwrap();
    assert_eq!(told(&host).await, Some(Diagnostic::ProviderUnavailable));
    lab.remove(store);
    std::fs::rename(lab.path("elsewhere"), lab.store()).unwrap();
    assert_eq!(told(&host).await, None);
}

/// H 222. KVM comes first, then the size of the machine, then the programs, the store and the image.
#[tokio::test]
async fn the_first_failing_check_is_the_answer() {
    let lab = Lab::new();
    let state = text(&lab.path("state"));
    let construct = |machine: Machine| lab.construct(Context::Generation { state: &state }, machine).unwrap();
    let small = Machine { cpus: 1, ..lab.machine() };
    lab.remove("kvm");
    lab.remove("firmware");
    lab.set_mode("helper", 0o600);
    lab.set_mode(".oac/m/0123456789ab", 0o755);
    lab.write("image-inspect", "");
    assert_eq!(told(&construct(small.clone())).await, Some(Diagnostic::KvmUnavailable));
    lab.write("kvm", "");
    assert_eq!(told(&construct(small)).await, Some(Diagnostic::CapacityInsufficient));
    let little = Machine { memory_bytes: (1 << 30) - 1, ..lab.machine() };
    assert_eq!(told(&construct(little)).await, Some(Diagnostic::CapacityInsufficient));
    let host = construct(lab.machine());
    assert_eq!(told(&host).await, Some(Diagnostic::MicrosandboxArtifactsUnavailable));
    lab.write("firmware", "a firmware");
    assert_eq!(told(&host).await, Some(Diagnostic::MicrosandboxArtifactsUnavailable), "the helper cannot be run");
    lab.set_mode("helper", 0o700);
    assert_eq!(told(&host).await, Some(Diagnostic::ProviderUnavailable));
    lab.set_mode(".oac/m/0123456789ab", 0o700);
    assert_eq!(told(&host).await, Some(Diagnostic::RuntimeImageUnavailable));
    lab.write("image-inspect", &answer());
    assert_eq!(told(&host).await, None);
}

/// H 222. A device that cannot be opened for writing is none.
#[tokio::test]
async fn the_device_must_open() {
    let lab = Lab::new();
    lab.remove("kvm");
    std::fs::create_dir(lab.path("kvm")).unwrap();
    assert_eq!(told(&lab.generation()).await, Some(Diagnostic::KvmUnavailable));
}

/// H 223. Missing, changed or linked programs fail, also after they were right once, and count again as soon as they are
/// repaired, in the same process.
#[tokio::test]
async fn repaired_programs_count_without_a_restart() {
    let lab = Lab::new();
    let host = lab.generation();
    let unavailable = Some(Diagnostic::MicrosandboxArtifactsUnavailable);
    assert_eq!(told(&host).await, None);
    for name in ["msb", "firmware"] {
        std::fs::rename(lab.path(name), lab.path("kept")).unwrap();
        assert_eq!(told(&host).await, unavailable, "{name} is missing");
        lab.write(name, "something else");
        assert_eq!(told(&host).await, unavailable, "{name} is another file");
        lab.remove(name);
        symlink(lab.path("kept"), lab.path(name)).unwrap();
        assert_eq!(told(&host).await, unavailable, "{name} is a link");
        lab.remove(name);
        std::fs::rename(lab.path("kept"), lab.path(name)).unwrap();
        assert_eq!(told(&host).await, None, "{name} is repaired");
    }
    std::fs::rename(lab.path("helper"), lab.path("kept")).unwrap();
    assert_eq!(told(&host).await, unavailable);
    std::fs::rename(lab.path("kept"), lab.path("helper")).unwrap();
    assert_eq!(told(&host).await, None);
}

/// H 224. `msb` is asked in exactly one way, with exactly one environment.
#[tokio::test]
async fn the_image_is_asked_for_with_exact_words() {
    let lab = Lab::new();
    lab.generation().probe().await.unwrap();
    assert_eq!(lab.read("calls"), format!("image inspect {} --format json\n", image()));
    let mut found: Vec<_> = lab.read("environment").lines().map(str::to_owned).collect();
    found.sort();
    let expected = [
        format!("HOME={}", text(&lab.path("")).trim_end_matches('/')),
        "MSB_BACKEND=local".to_owned(),
        format!("MSB_HOME={}", text(&lab.store())),
        format!("MSB_LIBKRUNFW_PATH={}", text(&lab.path("firmware"))),
        format!("MSB_PATH={}", text(&lab.path("msb"))),
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
    ];
    assert_eq!(found, expected);
}

/// H 224. Every malformed answer, a failure and one byte too many are refused with the image's class, and the next good
/// answer counts.
#[tokio::test]
async fn every_wrong_answer_about_the_image_is_refused() {
    let lab = Lab::new();
    let host = lab.generation();
    let long = answer() + &" ".repeat(MSB_ANSWER_MAX_BYTES + 1 - answer().len());
    let wrong = [
        "",
        "null",
        "[]",
        "image found",
        &answer()[1..],
        &answer()[..answer().len() - 1],
        &format!("{}{}", answer(), answer()),
        &format!("[{}]", answer()),
        &answer().replace("amd64", "arm64"),
        &answer().replace("\"linux\"", "\"freebsd\""),
        &answer().replace("\"linux\"", "null"),
        &answer().replace("22860558", "00000000"),
        &answer().replace("sha256:22860558", "sha512:22860558"),
        &long,
    ];
    for text in wrong {
        lab.write("image-inspect", text);
        assert_eq!(told(&host).await, Some(Diagnostic::RuntimeImageUnavailable), "{text:.200}");
        lab.write("image-inspect", &answer());
        assert_eq!(told(&host).await, None, "after {text:.200}");
    }
    lab.write("image-inspect", &long[..MSB_ANSWER_MAX_BYTES]);
    assert_eq!(told(&host).await, None, "64 KiB are read");
    lab.write("image-inspect-status", "1");
    assert_eq!(told(&host).await, Some(Diagnostic::RuntimeImageUnavailable), "a good answer with a bad end");
}

/// H 225. When anything before it fails, the image is not asked for, and the earlier class is the answer.
#[tokio::test]
async fn an_earlier_failure_passes_through() {
    let lab = Lab::new();
    let host = lab.generation();
    lab.remove("kvm");
    assert_eq!(told(&host).await, Some(Diagnostic::KvmUnavailable));
    lab.write("kvm", "");
    lab.write("firmware", "changed");
    assert_eq!(told(&host).await, Some(Diagnostic::MicrosandboxArtifactsUnavailable));
    lab.write("firmware", "a firmware");
    lab.set_mode(".oac/m/0123456789ab", 0o750);
    assert_eq!(told(&host).await, Some(Diagnostic::ProviderUnavailable));
    assert_eq!(lab.read("calls"), "", "msb was never started");
}

/// This machine can be measured.
#[test]
fn the_real_machine_has_a_size() {
    let machine = Machine::this();
    assert!(machine.cpus > 0 && machine.memory_bytes > 1 << 28, "{machine:?}");
    assert_eq!(text(&machine.kvm), "/dev/kvm");
}
