//! The release's image in a Docker engine: found by digest, loaded when absent, never found by a tag (node-host §5.6).

use bollard::Docker;
use bollard::query_parameters::ImportImageOptionsBuilder;
use bytes::Bytes;
use futures_util::TryStreamExt;
use palisade_core::distribution::manifest::PLATFORM;

use crate::{Error, Release};

/// The engine's own identity of the release's image, after loading the archive when the engine has none.
///
/// # Errors
/// An engine that fails, a foreign image under one of the digests, or an archive that differs from the manifest.
pub async fn ensure(docker: &Docker, release: &Release) -> Result<String, Error> {
    let runtime = release.runtime();
    let (image_id, manifest_digest) = (runtime.image_id.as_str(), runtime.image_manifest_digest.as_str());
    if let Some(found) = resolve(docker, image_id, manifest_digest).await? {
        return Ok(found);
    }
    load(docker, release.image_archive()?, image_id, manifest_digest).await
}

/// The engine's identity of the image with these digests; `None` when it has neither.
///
/// # Errors
/// An engine that fails, or an answer that is not one of the two digests on `linux/amd64`.
pub async fn resolve(docker: &Docker, image_id: &str, manifest_digest: &str) -> Result<Option<String>, Error> {
    for asked in [image_id, manifest_digest] {
        let found = match docker.inspect_image(asked).await {
            Ok(found) => found,
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => continue,
            Err(error) => return Err(failed("inspect an image", error)),
        };
        let id = found.id.unwrap_or_default();
        let platform = format!("{}/{}", found.os.unwrap_or_default(), found.architecture.unwrap_or_default());
        if platform != PLATFORM || (id != image_id && id != manifest_digest) {
            return Err(Error::ForeignImage { asked: asked.to_owned(), found: format!("{id} on {platform}") });
        }
        return Ok(Some(id));
    }
    Ok(None)
}

/// Loads an archive, compressed or not, and asks the engine what it is called now.
///
/// # Errors
/// As [`resolve`], and [`Error::NotLoaded`].
pub async fn load(docker: &Docker, archive: Vec<u8>, image_id: &str, manifest_digest: &str) -> Result<String, Error> {
    let options = ImportImageOptionsBuilder::new().quiet(true).build();
    let body = bollard::body_full(Bytes::from(archive));
    let answers = docker.import_image(options, body, None);
    answers.try_for_each(|_| async { Ok(()) }).await.map_err(|error| failed("load the image", error))?;
    resolve(docker, image_id, manifest_digest)
        .await?
        .ok_or_else(|| Error::NotLoaded { image_id: image_id.to_owned(), manifest_digest: manifest_digest.to_owned() })
}

fn failed(action: &'static str, error: bollard::errors::Error) -> Error {
    Error::Engine { action, error: Box::new(error) }
}
