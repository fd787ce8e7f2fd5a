//! A folder in place of a server, and the image without compression.

use std::io::Write as _;

use palisade_core::distribution::catalogue::{IMAGE, IMAGE_UNPACKED, NODE, SECCOMP};

use super::metadata::Files;
use super::*;

/// Writes the files of a release into a folder.
fn bundle(lab: &Lab, release: &Files) -> PathBuf {
    let folder = std::fs::canonicalize(lab.home.path()).unwrap().join("bundle");
    for (path, bytes) in &release.files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        crate::testing::write(path, bytes);
    }
    folder
}

/// H 8, H 26. A bundle gives the same verified files, and nobody is asked.
#[tokio::test]
async fn a_bundle_is_verified_and_asks_nobody() {
    let lab = Lab::new(|_| Answer::new(200).length(0)).await;
    let folder = bundle(&lab, &Files::new());
    let downloader = lab.downloader_of(Source::bundle(&folder).unwrap());
    let release = downloader.release(Some(&commit()), &lab.cancel).await.unwrap();
    assert_eq!(release, downloader.release(None, &lab.cancel).await.unwrap());
    let files = release.wanted("docker", &[Role::Node, Role::Policy, Role::Image]).unwrap();
    downloader.fetch(&files, &lab.root(), &lab.cancel, &mut Silent).await.unwrap();
    assert_eq!(lab.files(), [IMAGE, NODE, SECCOMP]);
    assert_eq!(lab.server.asked().len(), 0);
    let other = Commit::parse(&"cd".repeat(20)).unwrap();
    assert!(matches!(downloader.release(Some(&other), &lab.cancel).await, Err(DownloadError::OtherRelease { .. })));
}

/// H 11, H 25. A changed file, a link anywhere on the way, and a missing file are refused.
#[tokio::test]
async fn a_damaged_bundle_is_refused() {
    let lab = Lab::new(|_| Answer::new(200).length(0)).await;
    let folder = bundle(&lab, &Files::new());
    let program = program(b"program");
    let file = folder.join(program.file().path().as_ref());
    let downloader = lab.downloader_of(Source::bundle(&folder).unwrap());
    let fetch = async || downloader.fetch(std::slice::from_ref(&program), &lab.root(), &lab.cancel, &mut Silent).await;
    for other in [&b"progrbm"[..], b"program and more", b"prog"] {
        crate::testing::write(&file, other);
        assert!(matches!(fetch().await, Err(DownloadError::Mismatch(_))));
        assert_eq!(lab.files(), Vec::<String>::new(), "nothing is kept of it");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(fetch().await, Err(DownloadError::Disk { .. })));
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    assert!(matches!(fetch().await, Err(DownloadError::File(_))));
    let linked = lab.home.path().join("linked");
    std::os::unix::fs::symlink(&folder, &linked).unwrap();
    let through = lab.downloader_of(Source::bundle(&linked).unwrap());
    assert!(matches!(through.release(None, &lab.cancel).await, Err(DownloadError::File(_))));
    assert!(Source::bundle(Path::new("relative")).is_err() && Source::bundle(Path::new("/a/../b")).is_err());
}

/// An image of these bytes, and its compressed form.
fn image(unpacked: &[u8]) -> (Wanted, Vec<u8>) {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(unpacked).unwrap();
    let packed = encoder.finish().unwrap();
    let mut image = wanted(IMAGE, Role::Image, "runtime.tar.gz", &packed);
    image.artifact.unpacked_sha256 = Some(Digest::of(unpacked));
    image.artifact.unpacked_size = Some(unpacked.len() as u64);
    (image, packed)
}

/// H 10. A stale temporary file is cleared, the archive is used as it is, and nothing is asked.
#[tokio::test]
async fn an_image_is_unpacked_and_verified() {
    let lab = Lab::new(|_| Answer::new(200).length(0)).await;
    let unpacked = content(1_000_000);
    let (image, packed) = image(&unpacked);
    lab.put(IMAGE, 0o600, &packed);
    lab.put("images/.runtime.tar.partial", 0o600, b"stale");
    for _ in 0..2 {
        expand(&image, &lab.root(), &lab.cancel).await.unwrap();
        assert!(lab.bytes(IMAGE_UNPACKED) == unpacked);
        assert_eq!(lab.files(), [IMAGE_UNPACKED, IMAGE]);
    }
    // H 8. What is there and differs is refused, and stays.
    lab.put(IMAGE_UNPACKED, 0o600, b"other");
    assert!(matches!(expand(&image, &lab.root(), &lab.cancel).await, Err(DownloadError::Conflict(_))));
    assert_eq!((lab.bytes(IMAGE_UNPACKED), lab.server.asked().len()), (b"other".to_vec(), 0));
}

/// H 10. Other bytes than declared, more or fewer of them, or no compression at all: refused, and the archive stays.
#[tokio::test]
async fn an_image_that_unpacks_to_something_else_is_refused() {
    let unpacked = content(100_000);
    let (good, packed) = image(&unpacked);
    let mut shorter = good.clone();
    shorter.artifact.unpacked_size = Some(99_999);
    let mut longer = good.clone();
    longer.artifact.unpacked_size = Some(100_001);
    let mut other = good.clone();
    other.artifact.unpacked_sha256 = Some(Digest::of(b"other"));
    let raw = wanted(IMAGE, Role::Image, "x", &unpacked);
    let raw = Wanted {
        artifact: Artifact { unpacked_size: Some(1), unpacked_sha256: Some(Digest::of(b"")), ..raw.artifact },
        ..good.clone()
    };
    for (image, archive) in [(shorter, &packed), (longer, &packed), (other, &packed), (raw, &unpacked)] {
        let lab = Lab::new(|_| Answer::new(200).length(0)).await;
        lab.put(IMAGE, 0o600, archive);
        assert!(matches!(expand(&image, &lab.root(), &lab.cancel).await, Err(DownloadError::Mismatch(_))));
        assert_eq!(lab.files(), [IMAGE]);
    }
}
