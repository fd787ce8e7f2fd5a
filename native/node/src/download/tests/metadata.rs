//! The small files of a release.

use std::collections::BTreeMap;

use palisade_core::distribution::catalogue::{IMAGE, NODE, SECCOMP};
use palisade_core::distribution::manifest::{Manifest, Microsandbox, PLATFORM};
use palisade_core::distribution::sums::Sums;

use super::*;

const PROFILE: &[u8] = b"{\"defaultAction\":\"SCMP_ACT_ERRNO\"}\n";

/// A release for Docker nodes, by request path below its folder.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) manifest: Manifest,
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

impl Files {
    pub(super) fn new() -> Self {
        let mut image = wanted(IMAGE, Role::Image, "runtime.tar.gz", b"packed").artifact;
        (image.unpacked_sha256, image.unpacked_size) = (Some(Digest::of(b"unpacked")), Some(8));
        let artifacts = [
            (NODE, wanted(NODE, Role::Node, "sandbox-node", b"program").artifact),
            (SECCOMP, wanted(SECCOMP, Role::Policy, "seccomp.json", PROFILE).artifact),
            (IMAGE, image),
        ];
        let digest = format!("sha256:{}", Digest::of(b"image"));
        let manifest = Manifest {
            artifact_base_url: format!("https://files.example/build-{}", commit()),
            artifacts: artifacts.map(|(path, artifact)| (path.to_owned(), artifact)).into(),
            image_manifest_digests: [("runtime".to_owned(), digest.clone())].into(),
            images: [("runtime".to_owned(), digest.clone())].into(),
            microsandbox: Microsandbox::not_built(),
            platform: PLATFORM.to_owned(),
            runtime_ref: format!("oac-runtime@{digest}"),
            source_commit: commit(),
            source_tree: commit(),
        };
        manifest.check().unwrap();
        let mut release = Self { manifest, files: BTreeMap::new() };
        release.files.insert(SECCOMP.to_owned(), PROFILE.to_vec());
        let name = |suffix: &str| format!("artifacts/oac-{}-linux-amd64-{suffix}", commit());
        release.files.insert(name("sandbox-node"), b"program".to_vec());
        release.files.insert(name("runtime.tar.gz"), b"packed".to_vec());
        release.seal();
        release
    }

    /// Writes the manifest and the checksums anew.
    pub(super) fn seal(&mut self) {
        self.files.insert("manifest.json".to_owned(), self.manifest.to_bytes());
        let sums = ["manifest.json", SECCOMP].map(|path| (path, Digest::of(&self.files[path])));
        self.files.insert("SHA256SUMS".to_owned(), Sums::new(sums).to_bytes());
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let rest = asked.path.strip_prefix("/node-install/").unwrap();
        let path = rest.strip_prefix(&format!("releases/{}/", commit())).unwrap_or(rest);
        match self.files.get(path) {
            Some(bytes) => Answer::good(asked, bytes, "\"v\""),
            None => Answer::new(404).length(6).body(b"hidden"),
        }
    }
}

async fn lab(release: Files) -> Lab {
    Lab::new(move |asked| release.answer(asked)).await
}

async fn refusal(release: Files) -> DownloadError {
    lab(release).await.downloader().release(Some(&commit()), &CancellationToken::new()).await.unwrap_err()
}

/// H 20, H 21. Metadata of the selected release by its own name, of the current one by way of its pointer, and every file
/// from Core alone: the folder that the build recorded is never asked.
#[tokio::test]
async fn everything_comes_from_the_core_that_was_named() {
    let lab = lab(Files::new()).await;
    let downloader = lab.downloader();
    let selected = downloader.release(Some(&commit()), &lab.cancel).await.unwrap();
    let retained = |path: &str| format!("/node-install/releases/{}/{path}", commit());
    assert_eq!(lab.server.paths(), [retained("SHA256SUMS"), retained("manifest.json")]);
    let current = downloader.release(None, &lab.cancel).await.unwrap();
    assert_eq!(current, selected);
    assert_eq!(
        lab.server.paths()[2..],
        ["/node-install/manifest.json", &retained("SHA256SUMS"), &retained("manifest.json")]
    );

    let files = selected.wanted("docker", &[Role::Policy, Role::Node, Role::Image]).unwrap();
    downloader.fetch(&files, &lab.root(), &lab.cancel, &mut Silent).await.unwrap();
    assert_eq!(lab.files(), [IMAGE, NODE, SECCOMP]);
    assert_eq!(lab.bytes(SECCOMP), PROFILE);
    assert!(lab.server.paths().contains(&retained(SECCOMP)), "a policy is fetched as metadata");
    assert!(selected.wanted("microsandbox", &[Role::Runtime]).is_err() && selected.wanted("e2b", &[]).is_err());
}

/// H 22. 503 twice is waited for. H 23. A truncated answer is asked for again before it is used.
#[tokio::test]
async fn transient_failures_of_metadata_are_mended() {
    for cut in [false, true] {
        let release = Files::new();
        let lab = Lab::new(move |asked| match (asked.number, cut) {
            (0 | 1, false) => Answer::new(503).length(0),
            (0 | 1, true) => release.answer(asked).cut(10),
            _ => release.answer(asked),
        })
        .await;
        lab.downloader().release(Some(&commit()), &lab.cancel).await.unwrap();
        assert_eq!(lab.server.asked().len(), 4, "{cut}");
    }
    let lab = Lab::new(|_| Answer::new(503).length(0)).await;
    let refused = lab.downloader().release(Some(&commit()), &lab.cancel).await.unwrap_err();
    assert!(matches!(refused, DownloadError::Status { status: 503, .. }), "{refused}");
    assert_eq!(lab.server.asked().len(), 3);
}

/// H 24. 404 is final, and its body is nobody's business.
#[tokio::test]
async fn a_missing_release_is_final_and_its_answer_is_not_shown() {
    let lab = lab(Files { files: BTreeMap::new(), ..Files::new() }).await;
    let refused = lab.downloader().release(Some(&commit()), &lab.cancel).await.unwrap_err();
    assert_eq!(refused.to_string(), "SHA256SUMS: the source answered with status 404; publish the release there");
    assert_eq!(lab.server.asked().len(), 1);
}

/// H 12. Metadata come from the origin or not at all.
#[tokio::test]
async fn a_redirect_of_metadata_is_refused() {
    let lab = Lab::new(|_| Answer::to(307, "https://files.example/SHA256SUMS").length(0)).await;
    let refused = lab.downloader().release(None, &lab.cancel).await.unwrap_err();
    assert!(matches!(refused, DownloadError::Redirect { .. }), "{refused}");
    assert_eq!((lab.server.asked().len(), lab.files()), (1, vec![]));
}

/// H 25. What the checksums do not list, another release, and a manifest that cannot be are refused, and nothing is stored.
#[tokio::test]
async fn damaged_metadata_are_refused() {
    let mut unlisted = Files::new();
    unlisted.files.get_mut("manifest.json").unwrap().push(b' ');
    assert!(matches!(refusal(unlisted).await, DownloadError::Mismatch(_)));

    let mut no_sums = Files::new();
    no_sums.files.insert("SHA256SUMS".to_owned(), b"not a list\n".to_vec());
    assert!(matches!(refusal(no_sums).await, DownloadError::Metadata { .. }));

    let mut other_policy = Files::new();
    other_policy.files.insert(SECCOMP.to_owned(), b"{}".to_vec());
    other_policy.seal();
    assert!(matches!(refusal(other_policy).await, DownloadError::Mismatch(_)));

    let mut other_platform = Files::new();
    other_platform.manifest.platform = "linux/arm64".to_owned();
    other_platform.seal();
    assert!(matches!(refusal(other_platform).await, DownloadError::Metadata { .. }));

    let asked = Commit::parse(&"cd".repeat(20)).unwrap();
    let release = Files::new();
    let lab = Lab::new(move |asked| {
        let path = asked.path.replace(&"cd".repeat(20), commit().as_str());
        release.answer(&Asked { path, ..asked.clone() })
    })
    .await;
    let refused = lab.downloader().release(Some(&asked), &lab.cancel).await.unwrap_err();
    assert!(matches!(refused, DownloadError::OtherRelease { .. }), "{refused}");
}

/// An answer without end, or one that announces too much, is not read.
#[tokio::test]
async fn metadata_are_bounded() {
    use super::server::End;
    for answer in [Answer::new(200).then(End::Flood), Answer::new(200).length(1 << 30).then(End::Flood)] {
        let lab = Lab::new(move |_| answer.clone()).await;
        let refused = lab.downloader().release(Some(&commit()), &lab.cancel).await.unwrap_err();
        assert!(matches!(refused, DownloadError::TooLong(_)), "{refused}");
        assert_eq!(lab.server.asked().len(), 1);
    }
}

/// H 27. A policy that was cut off leaves a temporary file, which the next run clears.
#[tokio::test]
async fn an_unfinished_policy_starts_over() {
    let lab = lab(Files::new()).await;
    lab.put("runtime/.seccomp.json.partial", 0o600, b"half of another");
    let policy = wanted(SECCOMP, Role::Policy, "seccomp.json", PROFILE);
    lab.fetch(&policy).await.unwrap();
    assert_eq!((lab.files(), lab.bytes(SECCOMP)), (vec![SECCOMP.to_owned()], PROFILE.to_vec()));
    let other = wanted(SECCOMP, Role::Policy, "seccomp.json", b"other");
    assert!(matches!(lab.fetch(&other).await, Err(DownloadError::Conflict(_))));
}
