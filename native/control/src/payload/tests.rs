#![expect(clippy::disallowed_methods, reason = "a test writes throw-away files")]

use std::path::Path;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use palisade_core::distribution::catalogue::{Catalogue, IMAGE, NODE, SECCOMP};
use palisade_core::distribution::manifest::{Artifact, Manifest, Microsandbox, PLATFORM, filename};
use palisade_core::distribution::{Commit, Pointer};
use palisade_core::units::Digest;
use tempfile::TempDir;
use tower::ServiceExt as _;

use super::*;

const BASE: &str = "https://files.example/v1.0.0";

fn commit(pair: &str) -> Commit {
    Commit::parse(&pair.repeat(20)).unwrap()
}

/// The bytes of a declared file.
fn bytes_of(path: &str) -> Vec<u8> {
    format!("the bytes of {path}").into_bytes()
}

fn manifest(commit: &Commit, base: &str) -> Manifest {
    let catalogue = Catalogue::bundled();
    let declared = catalogue.of("docker").unwrap().iter().map(|declared| {
        let bytes = bytes_of(declared.path);
        let unpacked = declared.path == IMAGE;
        let artifact = Artifact {
            filename: filename(commit, declared),
            sha256: Digest::of(&bytes),
            size: bytes.len() as u64,
            unpacked_sha256: unpacked.then(|| Digest::of(b"unpacked")),
            unpacked_size: unpacked.then_some(8),
        };
        (declared.path.to_owned(), artifact)
    });
    let digest = format!("sha256:{}", Digest::of(b"image"));
    let manifest = Manifest {
        artifact_base_url: base.to_owned(),
        artifacts: declared.collect(),
        image_manifest_digests: [("runtime".to_owned(), digest.clone())].into(),
        images: [("runtime".to_owned(), digest.clone())].into(),
        microsandbox: Microsandbox::not_built(),
        platform: PLATFORM.to_owned(),
        runtime_ref: format!("oac-runtime@{digest}"),
        source_commit: commit.clone(),
        source_tree: commit.clone(),
    };
    manifest.check().unwrap();
    manifest
}

/// Writes all files of a release.
fn put(folder: &Path, manifest: &Manifest) {
    std::fs::create_dir_all(folder.join("artifacts")).unwrap();
    std::fs::create_dir_all(folder.join("runtime")).unwrap();
    for (path, artifact) in &manifest.artifacts {
        std::fs::write(folder.join("artifacts").join(&artifact.filename), bytes_of(path)).unwrap();
    }
    std::fs::write(folder.join("artifacts/undeclared"), "x").unwrap();
    std::fs::write(folder.join(SECCOMP), bytes_of(SECCOMP)).unwrap();
    for fixed in ["SHA256SUMS", "node-install"] {
        std::fs::write(folder.join(fixed), fixed).unwrap();
    }
    std::fs::write(folder.join("manifest.json"), manifest.to_bytes()).unwrap();
}

/// A payload folder with an old and a current release.
struct Lab {
    folder: TempDir,
    router: Router,
}

/// An answer with its whole body.
struct Got {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Lab {
    fn new() -> Self {
        Self::with("")
    }

    fn with(base: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lab = Self { router: routes(Payload::new(folder.path())), folder };
        put(&lab.release("aa"), &manifest(&commit("aa"), base));
        put(&lab.release("bb"), &manifest(&commit("bb"), base));
        lab.point(&Pointer { source_commit: commit("bb") }.to_bytes());
        lab
    }

    fn release(&self, pair: &str) -> std::path::PathBuf {
        self.folder.path().join("releases").join(commit(pair).as_str())
    }

    fn artifact(&self, pair: &str, path: &str) -> std::path::PathBuf {
        self.release(pair).join("artifacts").join(&manifest(&commit(pair), "").artifacts[path].filename)
    }

    fn point(&self, bytes: &[u8]) {
        std::fs::write(self.folder.path().join("active.json"), bytes).unwrap();
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Got {
        let mut request = Request::builder().method(method).uri(format!("/node-install/{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Got { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    async fn get(&self, path: &str) -> Got {
        self.ask(Method::GET, path, &[]).await
    }
}

fn name(pair: &str, path: &str) -> String {
    format!("artifacts/{}", manifest(&commit(pair), "").artifacts[path].filename)
}

/// H 31. The four fixed names and the declared artifacts, with GET and HEAD and the headers of a download.
#[tokio::test]
async fn a_release_is_served_by_its_exact_names() {
    let lab = Lab::new();
    let release = lab.release("bb");
    for path in ["manifest.json", "SHA256SUMS", "node-install", SECCOMP, &name("bb", NODE), &name("bb", IMAGE)] {
        let expected = std::fs::read(release.join(path)).unwrap();
        let got = lab.get(path).await;
        assert_eq!((got.status, &got.body), (200, &expected), "{path}");
        for (header, value) in [
            ("content-type", "application/octet-stream"),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("accept-ranges", "bytes"),
        ] {
            assert_eq!(got.header(header), value, "{path} {header}");
        }
        let head = lab.ask(Method::HEAD, path, &[]).await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), expected.len().to_string(), "{path}");
        assert_eq!(head.header("etag"), got.header("etag"), "{path}");
    }
    assert_eq!(lab.get(&name("bb", NODE)).await.header("etag"), format!("\"{}\"", Digest::of(&bytes_of(NODE))));
}

/// H 31, H 33. What is not declared, the pointer, folders and every other spelling are not there.
#[tokio::test]
async fn nothing_else_in_the_folder_is_served() {
    let lab = Lab::new();
    std::fs::write(lab.folder.path().join(".publish.lock"), "").unwrap();
    for path in [
        "active.json",
        ".publish.lock",
        "releases",
        "releases/",
        "artifacts/",
        "artifacts/undeclared",
        "artifacts/..%2fmanifest.json",
        "artifacts/../manifest.json",
        "%6danifest.json",
        "runtime",
        "runtime/other",
        &name("aa", NODE),
        &format!("releases/{}", commit("bb")),
        &format!("releases/{}/", commit("bb")),
        &format!("releases/{}/{}", commit("cc"), "manifest.json"),
        &format!("releases/{}/{}", commit("aa"), name("bb", NODE)),
    ] {
        let got = lab.get(path).await;
        assert_eq!(got.status, 404, "{path}");
        assert_eq!(got.header("cache-control"), "no-store", "{path}");
        assert!(!String::from_utf8_lossy(&got.body).contains("the bytes"), "{path}");
    }
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH] {
        let got = lab.ask(method.clone(), "manifest.json", &[]).await;
        assert_eq!((got.status, got.header("allow")), (405, "GET, HEAD"), "{method}");
    }
}

/// H 33. Retained releases stay reachable; a manifest of another release and a pointer that is none serve nothing.
#[tokio::test]
async fn retained_releases_stay_and_doubtful_ones_are_not_served() {
    let lab = Lab::new();
    let retained = |path: &str| format!("releases/{}/{path}", commit("aa"));
    for path in ["manifest.json", "SHA256SUMS", "node-install", SECCOMP, &name("aa", NODE)] {
        assert_eq!(lab.get(&retained(path)).await.status, 200, "{path}");
    }
    for pointer in [&b""[..], b"{}", b"null", b"{\"source_commit\":\"latest\"}", &[b' '; 300]] {
        lab.point(pointer);
        assert_eq!(lab.get("manifest.json").await.status, 404, "{pointer:?}");
        assert_eq!(lab.get(&retained("manifest.json")).await.status, 200);
    }
    std::fs::write(lab.release("aa").join("manifest.json"), manifest(&commit("bb"), "").to_bytes()).unwrap();
    for path in ["manifest.json", "SHA256SUMS", "node-install", &name("aa", NODE), &name("bb", NODE)] {
        assert_eq!(lab.get(&retained(path)).await.status, 404, "{path}");
    }
}

/// A folder that is a release itself, without a pointer, as older payloads are.
#[tokio::test]
async fn a_flat_folder_is_still_served() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &manifest(&commit("aa"), ""));
    let lab = Lab { router: routes(Payload::new(folder.path())), folder };
    assert_eq!(lab.get("manifest.json").await.status, 200);
    assert_eq!(lab.get(&name("aa", NODE)).await.body, bytes_of(NODE));
    assert_eq!(lab.get(&format!("releases/{}/manifest.json", commit("aa"))).await.status, 404);
}

/// H 32, H 34. A part of a file, of the very version that the part before was of.
#[tokio::test]
async fn a_download_goes_on_by_range() {
    let lab = Lab::new();
    let (path, bytes) = (name("bb", IMAGE), bytes_of(IMAGE));
    let version = lab.get(&path).await.header("etag").to_owned();
    let part = lab.ask(Method::GET, &path, &[("range", "bytes=4-"), ("if-range", &version)]).await;
    assert_eq!((part.status, &part.body[..]), (206, &bytes[4..]));
    assert_eq!(part.header("content-range"), format!("bytes 4-{}/{}", bytes.len() - 1, bytes.len()));
    let other = lab.ask(Method::GET, &path, &[("range", "bytes=4-"), ("if-range", "\"other\"")]).await;
    assert_eq!((other.status, other.body), (200, bytes.clone()));
    let outside = lab.ask(Method::GET, &path, &[("range", "bytes=1000-")]).await;
    assert_eq!((outside.status, outside.body.len()), (416, 0));
    assert_eq!(outside.header("content-range"), format!("bytes */{}", bytes.len()));
}

/// H 34, H 35. A declared artifact that is not here is asked for at the release's folder; nothing is stored, a file that is
/// here wins, also a damaged one, and without such a folder it is nowhere.
#[tokio::test]
async fn a_missing_artifact_is_elsewhere_or_nowhere() {
    let lab = Lab::with(BASE);
    let file = lab.artifact("bb", NODE);
    std::fs::write(&file, "damaged").unwrap();
    let damaged = lab.get(&name("bb", NODE)).await;
    assert_eq!((damaged.status, damaged.body, damaged.headers.get("etag")), (200, b"damaged".to_vec(), None));
    std::fs::remove_file(&file).unwrap();
    let expected = format!("{BASE}/{}", file.file_name().unwrap().to_str().unwrap());
    for (method, prefix) in [(Method::GET, String::new()), (Method::HEAD, format!("releases/{}/", commit("bb")))] {
        let got =
            lab.ask(method, &format!("{prefix}{}", name("bb", NODE)), &[("authorization", "Bearer secret")]).await;
        assert_eq!((got.status, got.header("location")), (307, expected.as_str()));
        // H 36. Nothing of the request goes on.
        assert!(!format!("{:?}", got.headers).contains("secret"));
        assert_eq!(got.header("cache-control"), "no-store");
    }
    assert!(!file.exists());
    assert_eq!(lab.get("artifacts/undeclared").await.status, 404);
    for fixed in ["SHA256SUMS", "node-install", SECCOMP] {
        std::fs::remove_file(lab.release("bb").join(fixed)).unwrap();
        assert_eq!(lab.get(fixed).await.status, 404, "only artifacts are elsewhere: {fixed}");
    }
    let offline = Lab::new();
    std::fs::remove_file(offline.artifact("bb", NODE)).unwrap();
    assert_eq!(offline.get(&name("bb", NODE)).await.status, 404);
}

/// A link or a folder in place of a file is not followed, and is no reason to send anybody elsewhere.
#[tokio::test]
async fn links_and_folders_are_not_served() {
    let lab = Lab::with(BASE);
    let file = lab.artifact("bb", NODE);
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    assert_eq!(lab.get(&name("bb", NODE)).await.status, 404);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert_eq!(lab.get(&name("bb", NODE)).await.status, 404);
}

/// H 32. A provider is offered only when each of its files is here with its size, or elsewhere.
#[tokio::test]
async fn only_a_complete_provider_is_offered() {
    let lab = Lab::new();
    let payload = Payload::new(lab.folder.path());
    let offered = async || payload.offer().await.map(|offer| offer.providers);
    assert_eq!(offered().await, Some(vec!["docker"]));
    assert_eq!(payload.offer().await.unwrap().release, commit("bb"));
    let file = lab.artifact("bb", NODE);
    std::fs::write(&file, "short").unwrap();
    assert_eq!(offered().await, Some(vec![]));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(offered().await, Some(vec![]));
    assert_eq!(Payload::new(lab.folder.path().join("absent")).offer().await, None);
    let remote = Lab::with(BASE);
    std::fs::remove_file(remote.artifact("bb", NODE)).unwrap();
    let offer = Payload::new(remote.folder.path()).offer().await.unwrap();
    assert_eq!(offer.providers, ["docker"]);
}

/// H 32. The installer's digest is that of the file that is there now, at most 1 MiB of a regular one.
#[tokio::test]
async fn the_installer_is_offered_while_a_host_would_take_it() {
    let lab = Lab::new();
    let payload = Payload::new(lab.folder.path());
    let installer = async || payload.offer().await.unwrap().installer;
    assert_eq!(installer().await, Some(Digest::of(b"node-install")));
    let path = lab.release("bb").join("node-install");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    assert_eq!(installer().await, Some(Digest::of(&vec![7; 1 << 20])));
    std::fs::write(&path, vec![7; (1 << 20) + 1]).unwrap();
    assert_eq!(installer().await, None);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(installer().await, None);
    std::os::unix::fs::symlink(lab.release("aa").join("node-install"), &path).unwrap();
    assert_eq!(installer().await, None);
    assert_eq!(payload.offer().await.unwrap().providers, ["docker"], "the rest is offered nevertheless");
}
