//! The Runtime image of this source tree, for tests that run real sandboxes.

use std::path::{Path, PathBuf};
use std::process::Command;

use bollard::Docker;

use crate::{Error, Image, engine};

/// Where Debian's package `busybox-static` puts its program.
pub const BUSYBOX: &str = "/bin/busybox";

/// Builds the image of this source tree and makes sure that the engine has it.
///
/// Returns the image and the engine's own identity of it. Building is incremental; loading happens once.
///
/// # Errors
/// Names what is missing: the build, `busybox-static`, or the engine.
pub async fn image(docker: &Docker) -> Result<(Image, String), Error> {
    let (guest, busybox) = (guest()?, PathBuf::from(BUSYBOX));
    let image = Image::build(&read(&guest)?, &read(&busybox)?);
    let id = match engine::resolve(docker, &image.image_id, &image.manifest_digest).await? {
        Some(id) => id,
        None => engine::load(docker, image.archive.clone(), &image.image_id, &image.manifest_digest).await?,
    };
    Ok((image, id))
}

/// Builds the guest entry of this source tree and names the program.
///
/// # Errors
/// What the build printed.
pub fn guest() -> Result<PathBuf, Error> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/build-guest");
    let mut command = Command::new(&script);
    // Cargo sets these for tests; they would change the build of another package.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR") {
            command.env_remove(&name);
        }
    }
    let output = command.output().map_err(Error::file(&script))?;
    if !output.status.success() {
        let problem = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Unusable { path: script, problem });
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(Error::file(path))
}
