//! The engines of this program's providers, as a preparer on a real host asks them.

use std::path::Path;

use palisade_core::deployment::contract::{Provider as Kind, RuntimeMember};
use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::catalogue::{FIRMWARE, IMAGE, IMAGE_UNPACKED, MSB};
use palisade_core::distribution::manifest::Manifest;
use palisade_core::microsandbox::image::ImageReference;
use palisade_docker::Installation;
use palisade_microsandbox::Msb;
use tokio::runtime::Runtime;

use super::outside::{Engine, Failure, Found};
use super::setup::{Home, Setup};

/// All of them; which one is asked stands in the setup.
pub(super) struct Engines<'a> {
    pub(super) runtime: &'a Runtime,
}

/// One of them.
enum Asked {
    Docker(Installation),
    Microsandbox(Msb),
}

impl Asked {
    fn of(setup: &Setup) -> Result<Self, Failure> {
        match (setup.kind, &setup.home, &setup.host) {
            (Kind::Docker, _, Some(host)) => Ok(Self::Docker(Installation::new(host))),
            (Kind::Microsandbox, Home::Store(store), _) => Ok(Self::Microsandbox(msb(setup, store))),
            (Kind::Docker | Kind::Microsandbox | Kind::E2b, ..) => {
                Err(Failure::Engine(format!("this program cannot work with {}", setup.kind.name())))
            }
        }
    }

    fn docker(setup: &Setup) -> Result<Installation, Failure> {
        match Self::of(setup)? {
            Self::Docker(installation) => Ok(installation),
            Self::Microsandbox(_) => Err(Failure::Engine("microsandbox has no network of its own".to_owned())),
        }
    }

    /// The program whose store is of one installation alone. Docker's engine is shared with everybody on the host: no list
    /// of it is asked for, and nothing of it is ever removed.
    fn microsandbox(setup: &Setup) -> Result<Msb, Failure> {
        match Self::of(setup)? {
            Self::Microsandbox(msb) => Ok(msb),
            Self::Docker(_) => {
                Err(Failure::Engine("no image of docker is ever listed or removed by this program".to_owned()))
            }
        }
    }
}

fn msb(setup: &Setup, store: &Path) -> Msb {
    Msb::new(&setup.release.join(MSB), &setup.release.join(FIRMWARE), store)
}

impl Engines<'_> {
    fn found(&self, setup: &Setup, specification: &Specification) -> Result<Found, Failure> {
        let named = |member| specification.runtime(member).unwrap_or_default();
        match Asked::of(setup)? {
            Asked::Docker(installation) => {
                let identities = [named(RuntimeMember::ImageId), named(RuntimeMember::ImageManifestDigest)];
                let found = self.runtime.block_on(installation.image(identities)).map_err(failed)?;
                Ok(match found {
                    palisade_docker::Image::There(name) => Found::Image(name),
                    palisade_docker::Image::Absent => Found::Nothing,
                    palisade_docker::Image::Foreign => Found::Other,
                })
            }
            Asked::Microsandbox(msb) => {
                let image = reference(named(RuntimeMember::MicrosandboxRef))?;
                let found = self.runtime.block_on(msb.image(&image)).map_err(failed)?;
                Ok(match found {
                    palisade_microsandbox::Image::There => Found::Image(image.to_string()),
                    palisade_microsandbox::Image::Absent => Found::Nothing,
                    palisade_microsandbox::Image::Foreign => Found::Other,
                })
            }
        }
    }
}

fn reference(text: &str) -> Result<ImageReference, Failure> {
    ImageReference::parse(text).map_err(failed)
}

fn failed(error: impl std::error::Error) -> Failure {
    Failure::Engine(error.to_string())
}

/// What an engine said, when it said something; why it did not is for the log.
fn told<T>(what: &'static str, told: Result<T, Failure>) -> Option<T> {
    told.inspect_err(|error| tracing::warn!(%error, "the engine did not say {what}")).ok()
}

impl Engine for Engines<'_> {
    fn image(&mut self, setup: &Setup, specification: &Specification) -> Found {
        told("whether it has the image", self.found(setup, specification)).unwrap_or(Found::Unknown)
    }

    fn has_network(&mut self, setup: &Setup, name: &str) -> Result<bool, Failure> {
        self.runtime.block_on(Asked::docker(setup)?.has_network(name)).map_err(failed)
    }

    fn make_network(&mut self, setup: &Setup, name: &str) -> Result<(), Failure> {
        self.runtime.block_on(Asked::docker(setup)?.make_network(name)).map_err(failed)
    }

    fn import(&mut self, setup: &Setup, manifest: &Manifest) -> Result<(), Failure> {
        match Asked::of(setup)? {
            Asked::Docker(installation) => {
                self.runtime.block_on(installation.load(&setup.release.join(IMAGE))).map_err(failed)
            }
            Asked::Microsandbox(msb) => {
                let (archive, image) = (setup.release.join(IMAGE_UNPACKED), reference(&manifest.runtime_ref)?);
                self.runtime.block_on(msb.load(&archive, &image)).map_err(failed)
            }
        }
    }

    fn images(&mut self, setup: &Setup) -> Option<Vec<String>> {
        let asked = Asked::microsandbox(setup);
        let images = asked.and_then(|msb| self.runtime.block_on(msb.inventory()).map_err(failed));
        told("which images it has", images).map(|images| images.iter().map(ToString::to_string).collect())
    }

    fn remove_image(&mut self, setup: &Setup, image: &str) -> Result<bool, Failure> {
        let (msb, image) = (Asked::microsandbox(setup)?, reference(image)?);
        self.runtime.block_on(msb.remove(&image)).map_err(failed)
    }

    fn has_sandboxes(&mut self, setup: &Setup) -> Option<bool> {
        let asked = Asked::microsandbox(setup);
        told(
            "whether it has sandboxes",
            asked.and_then(|msb| self.runtime.block_on(msb.has_sandboxes()).map_err(failed)),
        )
    }
}
