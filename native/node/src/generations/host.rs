//! Core and the source of releases, as a preparer on a real host has them.

use palisade_core::deployment::contract::Provider as Kind;
use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::Commit;
use palisade_core::distribution::catalogue::Role;
use palisade_core::distribution::manifest::Manifest;
use palisade_core::generation::assignment::{Ask, Assignment};
use palisade_core::strict;
use palisade_core::units::Generation;
use serde::Deserialize;
use std::path::Path;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::layout::Layout;
use super::outside::{Authority, Failure, Releases};
use crate::download::{self, Downloader, Lines, Source};
use crate::enrollment::{self, Enrollment};
use crate::files::disk::Disk;
use crate::files::look::look;
use crate::identity::Stored;
use crate::limits::SOURCE_MAX_BYTES;

/// Where releases come from when it is not Core, below ROOT.
const PREPARATION: &str = "preparation.json";

/// Core, asked with the node's credential.
pub(super) struct Core<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) stored: &'a Stored,
}

impl Authority for Core<'_> {
    fn assignment(&mut self, generation: Generation) -> Result<Assignment, Failure> {
        self.runtime.block_on(ask(self.stored, generation))
    }
}

async fn ask(stored: &Stored, generation: Generation) -> Result<Assignment, Failure> {
    let enrollment = Enrollment::new(&stored.core_url).map_err(|error| Failure::Core(error.to_string()))?;
    let address = stored.core_url.join(&Ask::AsNode { generation: Some(generation) }.path());
    let request = enrollment.client().get(address).bearer_auth(stored.credential.as_str());
    let request = request.header("X-OAC-Node-ID", stored.identity.node_id.to_string());
    let failed = |error: reqwest::Error| Failure::Core(enrollment::describe(&error));
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    if !status.is_success() {
        return Err(Failure::Core(format!("status {}", status.as_u16())));
    }
    let body = enrollment::bounded(response).await.map_err(failed)?.unwrap_or_default();
    Assignment::read(&body).map_err(|error| Failure::Core(error.to_string()))
}

/// Releases from Core, or from where the installer said.
pub(super) struct Downloads<'a> {
    runtime: &'a Runtime,
    downloader: Downloader,
    release: Option<download::Release>,
    provider: Kind,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Preparation {
    source_url: String,
}

impl<'a> Downloads<'a> {
    pub(super) fn new(runtime: &'a Runtime, layout: &Layout, stored: &Stored, provider: Kind) -> Result<Self, Failure> {
        let source = source(layout).unwrap_or_else(|| stored.core_url.as_str().to_owned());
        let source = Source::console(&source).map_err(|error| Failure::Core(error.to_string()))?;
        Ok(Self { runtime, downloader: Downloader::new(source)?, release: None, provider })
    }

    /// The metadata, asked for once.
    fn release(&mut self, commit: &Commit) -> Result<&download::Release, Failure> {
        let known = self.release.take_if(|known| known.manifest().source_commit == *commit);
        let release = match known {
            Some(release) => release,
            None => self.runtime.block_on(self.downloader.release(Some(commit), &CancellationToken::new()))?,
        };
        Ok(self.release.insert(release))
    }
}

/// What the installer recorded, if it did.
fn source(layout: &Layout) -> Option<String> {
    let seen = look(&layout.root().join(PREPARATION), SOURCE_MAX_BYTES);
    let recorded: Preparation = strict::object(seen.borrow().private(SOURCE_MAX_BYTES).ours()?).ok()?;
    Some(recorded.source_url)
}

impl Releases for Downloads<'_> {
    fn manifest(&mut self, specification: &Specification) -> Result<Manifest, Failure> {
        let commit = super::setup::source(specification);
        let commit = Commit::parse(commit).map_err(|error| Failure::Core(error.to_string()))?;
        let release = self.release(&commit)?;
        release.require(specification)?;
        Ok(release.manifest().clone())
    }

    fn fetch(&mut self, _: &mut dyn Disk, manifest: &Manifest, path: &str, folder: &Path) -> Result<(), Failure> {
        let provider = self.provider.name();
        let release = self.release(&manifest.source_commit)?;
        let mut wanted = release.wanted(provider, &[Role::Policy, Role::Runtime, Role::Image])?;
        wanted.retain(|wanted| wanted.path() == path);
        let (cancel, mut lines) = (CancellationToken::new(), Lines::new(std::io::stderr()));
        Ok(self.runtime.block_on(self.downloader.fetch(&wanted, folder, &cancel, &mut lines))?)
    }

    fn unpack(&mut self, _: &mut dyn Disk, manifest: &Manifest, folder: &Path) -> Result<(), Failure> {
        let provider = self.provider.name();
        let image = self.release(&manifest.source_commit)?.wanted(provider, &[Role::Image])?;
        let cancel = CancellationToken::new();
        image.iter().try_for_each(|image| Ok(self.runtime.block_on(download::expand(image, folder, &cancel))?))
    }
}
