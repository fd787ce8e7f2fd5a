use serde_json::{Value, json};

use super::*;
use crate::deployment::contract::Provider;
use crate::deployment::specification::Specification;

const COMMIT: &str = "abababababababababababababababababababab";

fn artifact(suffix: &str) -> Value {
    json!({
        "filename": format!("oac-{COMMIT}-linux-amd64-{suffix}"),
        "sha256": Digest::of(suffix.as_bytes()),
        "size": 7,
    })
}

/// A release for Docker nodes.
fn docker() -> Value {
    let mut image = artifact("runtime.tar.gz");
    image["unpacked_sha256"] = json!(Digest::of(b"unpacked"));
    image["unpacked_size"] = json!(9);
    json!({
        "artifact_base_url": format!("https://files.example/build-{COMMIT}"),
        "artifacts": {
            "images/runtime.tar.gz": image,
            "native/bin/oac-node": artifact("sandbox-node"),
            "runtime/seccomp.json": artifact("seccomp.json"),
        },
        "image_manifest_digests": { "runtime": format!("sha256:{}", Digest::of(b"manifest")) },
        "images": { "runtime": format!("sha256:{}", Digest::of(b"config")) },
        "microsandbox": { "firmware_sha256": NOT_BUILT, "runtime_sha256": NOT_BUILT, "version": "0.7.2" },
        "platform": "linux/amd64",
        "runtime_ref": format!("oac-runtime@sha256:{}", Digest::of(b"manifest")),
        "source_commit": COMMIT,
        "source_tree": COMMIT,
    })
}

/// A release for nodes of both providers.
fn microsandbox() -> Value {
    let mut release = docker();
    release["artifacts"]["native/bin/oac-microsandbox-provider"] = artifact("microsandbox-provider");
    release["artifacts"][MSB] = artifact("msb");
    release["artifacts"][FIRMWARE] = artifact("libkrunfw.so.5.6.1");
    release["microsandbox"]["runtime_sha256"] = json!(Digest::of(b"msb"));
    release["microsandbox"]["firmware_sha256"] = json!(Digest::of(b"libkrunfw.so.5.6.1"));
    release
}

fn parse(manifest: &Value) -> Result<Manifest, InvalidManifest> {
    Manifest::parse(manifest.to_string().as_bytes())
}

fn specification(runtime: &Runtime) -> Specification {
    let document = json!({ "resources": { "cpus": 1, "memory_mib": 512 }, "runtime": runtime });
    Specification::parse(Provider::Docker, document.to_string().as_bytes()).unwrap()
}

#[test]
fn a_manifest_is_written_sorted_and_reads_back() {
    for document in [docker(), microsandbox()] {
        let manifest = parse(&document).unwrap();
        let bytes = manifest.to_bytes();
        assert_eq!(Manifest::parse(&bytes).unwrap(), manifest);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("{\n  \"artifact_base_url\": \"") && text.ends_with("}\n"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
    }
}

/// H 11, H 19, H 25, H 35. One wrong member is enough, whichever it is.
#[test]
fn a_manifest_with_one_wrong_member_is_refused() {
    let digest = Digest::of(b"x").to_string();
    let cases = [
        ("/platform", json!("linux/arm64")),
        ("/source_commit", json!("HEAD")),
        ("/source_tree", json!(COMMIT.to_uppercase())),
        ("/artifact_base_url", json!("http://files.example/v1")),
        ("/artifact_base_url", json!("https://files.example/latest")),
        ("/images", json!({})),
        ("/images/runtime", json!(digest)),
        ("/images/runtime", json!(format!("sha256:{}", digest.to_uppercase()))),
        ("/images/runtime", json!(format!("sha256:{digest}\n"))),
        ("/image_manifest_digests", json!({})),
        ("/image_manifest_digests/runtime", json!("runtime:latest")),
        ("/runtime_ref", json!("oac-runtime:latest")),
        ("/microsandbox/version", json!(null)),
        ("/microsandbox/runtime_sha256", json!(digest)),
        ("/artifacts/native~1bin~1oac-node/filename", json!("../oac-node")),
        ("/artifacts/native~1bin~1oac-node/filename", json!(format!("oac-{COMMIT}-linux-amd64-other"))),
        ("/artifacts/native~1bin~1oac-node/filename", json!("oac-node")),
        ("/artifacts/native~1bin~1oac-node/size", json!(0)),
        ("/artifacts/native~1bin~1oac-node/size", json!(-1)),
        ("/artifacts/native~1bin~1oac-node/size", json!(ARTIFACT_MAX_BYTES + 1)),
        ("/artifacts/native~1bin~1oac-node/size", json!(true)),
        ("/artifacts/native~1bin~1oac-node/sha256", json!(digest.to_uppercase())),
        ("/artifacts/native~1bin~1oac-node", json!(["a", digest, 7])),
        ("/artifacts/images~1runtime.tar.gz/unpacked_size", json!(null)),
        ("/artifacts/images~1runtime.tar.gz/unpacked_size", json!(0)),
    ];
    for (pointer, value) in cases {
        let mut document = docker();
        *document.pointer_mut(pointer).unwrap() = value.clone();
        assert!(parse(&document).is_err(), "{pointer} {value}");
    }
    let mut extra = docker();
    extra["other"] = json!(1);
    assert!(parse(&extra).is_err());
    let mut unpacked = docker();
    unpacked["artifacts"]["native/bin/oac-node"]["unpacked_size"] = json!(1);
    assert!(parse(&unpacked).is_err());
    let text = docker().to_string();
    let padded = |length: usize| text.clone() + &" ".repeat(length - text.len());
    assert!(Manifest::parse(padded(METADATA_MAX_BYTES).as_bytes()).is_ok());
    assert!(matches!(Manifest::parse(padded(METADATA_MAX_BYTES + 1).as_bytes()), Err(InvalidManifest::Size)));
    let text = docker().to_string();
    let repeated = text.replacen("\"images\":{", &format!("\"images\":{{\"runtime\":\"sha256:{digest}\","), 1);
    assert!(Manifest::parse(repeated.as_bytes()).is_err(), "a repeated member of a map");
    let listed = text.replacen("\"images\":{", "\"images\":[{", 1);
    let said = Manifest::parse(listed.as_bytes()).unwrap_err().to_string();
    assert!(said.contains("expected an object"), "{said}");
}

/// H 25. A file that no catalogue knows is named as safely as every other one, after the commit of its release.
#[test]
fn every_file_name_is_safe_and_names_its_commit() {
    let mut document = docker();
    document["artifacts"]["console/app.js"] = artifact("app.js");
    assert!(parse(&document).is_ok());
    for name in ["app.js".to_owned(), format!("../{COMMIT}-app.js"), format!("{}-app.js", COMMIT.to_uppercase())] {
        document["artifacts"]["console/app.js"]["filename"] = json!(name);
        assert!(
            matches!(parse(&document), Err(InvalidManifest::Member(path, _)) if path == "console/app.js"),
            "{name}"
        );
    }
}

/// H 25. A provider's files are all there, or the release does not know the provider.
#[test]
fn a_release_has_all_files_of_a_provider_or_none_of_its_own() {
    for path in ["images/runtime.tar.gz", "native/bin/oac-node", "runtime/seccomp.json"] {
        let mut document = docker();
        document["artifacts"].as_object_mut().unwrap().remove(path);
        assert!(matches!(parse(&document), Err(InvalidManifest::Missing { .. })), "{path}");
    }
    for path in [MSB, FIRMWARE, "native/bin/oac-microsandbox-provider"] {
        let mut document = microsandbox();
        document["artifacts"].as_object_mut().unwrap().remove(path);
        assert!(matches!(parse(&document), Err(InvalidManifest::Missing { .. })), "{path}");
    }
    let mut other = microsandbox();
    other["microsandbox"]["runtime_sha256"] = json!(Digest::of(b"other"));
    assert!(parse(&other).is_err(), "the digest is not that of the file");
}

/// H 29, H 64. A provider gets its own files, and one that runs on no node gets none.
#[test]
fn a_provider_gets_exactly_its_files() {
    let (catalogue, small, both) = (Catalogue::bundled(), parse(&docker()).unwrap(), parse(&microsandbox()).unwrap());
    let paths = |manifest: &Manifest, provider| -> Option<Vec<String>> {
        let wanted = manifest.wanted(provider, &catalogue).ok()?;
        Some(wanted.iter().map(|(declared, _)| declared.path.to_owned()).collect())
    };
    assert_eq!(paths(&small, "docker"), paths(&both, "docker"));
    assert_eq!(paths(&both, "microsandbox").unwrap().len(), 6);
    assert_eq!((paths(&small, "microsandbox"), paths(&both, "e2b")), (None, None));
}

/// H 31. A declared file that the catalogue does not know is published to nobody.
#[test]
fn only_catalogued_files_are_published() {
    let mut document = docker();
    document["artifacts"]["console/app.js"] = artifact("app.js");
    let (manifest, catalogue) = (parse(&document).unwrap(), Catalogue::bundled());
    let name = |suffix: &str| format!("oac-{COMMIT}-linux-amd64-{suffix}");
    assert_eq!(manifest.published(&name("sandbox-node"), &catalogue).unwrap().size, 7);
    assert_eq!(manifest.published(&name("app.js"), &catalogue), None);
    assert_eq!(manifest.published("other", &catalogue), None);
}

/// H 34. The place on the net is the declared folder and the declared name.
#[test]
fn a_remote_address_is_the_folder_and_the_name() {
    let mut document = docker();
    let expected = format!("https://files.example/build-{COMMIT}/oac-{COMMIT}-linux-amd64-sandbox-node");
    for base in ["", "/"] {
        document["artifact_base_url"] = json!(format!("https://files.example/build-{COMMIT}{base}"));
        let manifest = parse(&document).unwrap();
        assert_eq!(manifest.remote(&manifest.artifacts["native/bin/oac-node"]), Some(expected.clone()));
    }
    document["artifact_base_url"] = json!("");
    let manifest = parse(&document).unwrap();
    assert_eq!(manifest.remote(&manifest.artifacts["native/bin/oac-node"]), None);
}

/// H 60. Every identity of the release is compared with the specification, like with like. E34.
#[test]
fn a_release_is_compared_with_the_specification_in_every_member() {
    let manifest = parse(&docker()).unwrap();
    assert_eq!(manifest.differs_from(&specification(&manifest.runtime())), None);
    for member in RuntimeMember::ALL {
        let mut document = serde_json::to_value(manifest.runtime()).unwrap();
        let (prefix, digits) = member.pattern();
        document[member.name()] = json!(format!("{prefix}{}", "1".repeat(digits)));
        let other: Runtime = serde_json::from_value(document).unwrap();
        assert_eq!(manifest.differs_from(&specification(&other)), Some(member));
    }
    let mut swapped = manifest.runtime();
    std::mem::swap(&mut swapped.image_id, &mut swapped.image_manifest_digest);
    assert_eq!(manifest.differs_from(&specification(&swapped)), Some(RuntimeMember::ImageId));
}
