//! The real `msb`, for whoever has it: the wheel `microsandbox` 0.7.2 brings it as `microsandbox/_bundled/bin/msb`.

use std::path::{Path, PathBuf};

use palisade_core::microsandbox::image::ImageReference;
use palisade_microsandbox::{Image, Msb};

use super::lab::Lab;

/// The path that a variable names.
fn named(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} must name the file")).into()
}

/// H 132. H 138. H 224. The real program says what the scripts of the other tests say: an unpacked archive of a release
/// is there under its pinned name, its own tag stands for the same image, and both go at once.
#[tokio::test]
#[ignore = "needs PALISADE_TEST_MSB, PALISADE_TEST_FIRMWARE, PALISADE_TEST_ARCHIVE (unpacked) and PALISADE_TEST_IMAGE (its pinned reference)"]
async fn the_real_program_loads_lists_and_removes() {
    let lab = Lab::new();
    let image = std::env::var("PALISADE_TEST_IMAGE").expect("PALISADE_TEST_IMAGE must be the pinned reference");
    let image = ImageReference::parse(&image).unwrap();
    let msb = Msb::new(&named("PALISADE_TEST_MSB"), &named("PALISADE_TEST_FIRMWARE"), &lab.store());
    assert_eq!(msb.image(&image).await.unwrap(), Image::Absent);
    assert!(msb.load(Path::new("/dev/null"), &image).await.is_err());
    msb.load(&named("PALISADE_TEST_ARCHIVE"), &image).await.unwrap();
    assert_eq!(msb.image(&image).await.unwrap(), Image::There);
    assert_eq!(msb.inventory().await.unwrap(), [image.clone(), image.clone()]);
    assert!(!msb.has_sandboxes().await.unwrap());
    assert!(msb.remove(&image).await.unwrap());
    assert_eq!(msb.inventory().await.unwrap(), []);
    assert_eq!(msb.image(&image).await.unwrap(), Image::Absent);
}
