//! `palisade node register` (node-host §4.2).

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::origin::Origin;
use palisade_core::limits::PROBE_TIMEOUT_MS;
use palisade_core::units::Malformed;
use palisade_core::wire::payload::Diagnostic;
use palisade_provider::{NotReady, Provider};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::configuration::{Backend, Configuration, ConfigurationError};
use crate::enrollment::{Enrollment, EnrollmentError};
use crate::files::disk::System;
use crate::files::{self, FileError, Privacy, writer};
use crate::generations::{self, Layout};
use crate::health::Sampler;
use crate::identity::{self, Identity, IdentityError, State};

use crate::limits::{NAME_MAX_BYTES, PROBE_GRACE_MS, TOKEN_FILE_MAX_BYTES, TOKEN_MAX_BYTES};

/// What the operator says. All paths are absolute.
#[derive(Debug, Clone)]
pub struct Register {
    /// The provider configuration (node-host §1.9 I2).
    pub config: PathBuf,
    /// The private state; made with mode 0700 when only its parent exists.
    pub state_dir: PathBuf,
    /// Core's origin, exactly as Core names its public URL.
    pub core_url: String,
    /// Display name, 1 to 128 bytes.
    pub name: String,
    /// A private file that holds one enrollment token.
    pub enrollment_token_file: PathBuf,
    /// Plain http to another host (decision 10). Counts at the first registration only.
    pub allow_insecure_origin: bool,
}

/// Why a node was not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// `--core-url` is no origin.
    #[error("the core url is refused: {0}")]
    CoreUrl(#[from] Malformed),
    /// `--name` is not a name.
    #[error("the name is refused: expected 1 to 128 bytes that are not blank, without NUL, CR or LF")]
    Name,
    /// `--config` is refused.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// `--enrollment-token-file` is refused.
    #[error("the enrollment token file cannot be used: {0}")]
    TokenFile(#[from] FileError),
    /// The file holds no token.
    #[error("the enrollment token file holds no token: expected 1 to 4096 bytes of visible ASCII in one line")]
    Token,
    /// The private state is refused.
    #[error(transparent)]
    State(#[from] IdentityError),
    /// The lease of the generation cannot be made, or is not what it must be.
    #[error("the generation cannot be kept on this host: {0}")]
    Lease(String),
    /// The provider could not create a sandbox; nothing was enrolled.
    #[error("the provider is not ready, nothing was enrolled: {}: {detail}", .diagnostic.code())]
    NotReady {
        /// The declared class.
        diagnostic: Diagnostic,
        /// Local detail.
        detail: String,
    },
    /// Core's approval could not be obtained.
    #[error(transparent)]
    Enrollment(#[from] EnrollmentError),
}

impl RegisterError {
    /// 78 after Core's own 401, else 1 (wire §4.1).
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Enrollment(error) => error.exit_code(),
            Self::CoreUrl(_)
            | Self::Name
            | Self::Configuration(_)
            | Self::TokenFile(_)
            | Self::Token
            | Self::State(_)
            | Self::Lease(_)
            | Self::NotReady { .. } => 1,
        }
    }
}

/// Registers this host as a node. Serialise the answer as the command's one JSON object.
///
/// The identity is durable before anything is sent, so a rerun with the same state directory recovers a registration
/// whose answer was lost, without spending a second token.
///
/// # Errors
/// A refused option, file or configuration has created and sent nothing.
pub async fn register(options: Register) -> Result<Identity, RegisterError> {
    register_with(options, Configuration::backend).await
}

/// [`register`] with the provider of a test.
pub(crate) async fn register_with(
    options: Register,
    build: impl FnOnce(&Configuration) -> Result<Backend, ConfigurationError>,
) -> Result<Identity, RegisterError> {
    let core_url = Origin::parse(&options.core_url)?;
    require_name(&options.name)?;
    files::require_clean(&options.state_dir).map_err(IdentityError::from)?;
    let configuration = Configuration::load(&options.config)?;
    let Backend { provider, fingerprint } = build(&configuration)?;
    let token = token(&options.enrollment_token_file)?;
    require_permitted(&options, &core_url)?;
    configuration.warn_of_another_core(&core_url);

    let layout = Layout::of(&options.config, &options.state_dir);
    if let Some(layout) = &layout {
        writer::ensure_private_directory(&mut System, writer::parent(&layout.state())).map_err(IdentityError::from)?;
    }
    let state = State::create(&options.state_dir)?;
    let mut stored = state.adopt_or_create(&configuration, fingerprint, &core_url, options.allow_insecure_origin)?;
    if let Some(layout) = layout.filter(|_| !stored.identity.is_approved()) {
        let enrolled = generations::enroll(&mut System, &layout, &configuration.record);
        enrolled.map_err(|failure| RegisterError::Lease(failure.to_string()))?;
    }
    require_ready(provider.as_ref()).await?;
    let measured = Sampler::new(state.directory()).sample();
    Enrollment::new(&stored.core_url)?.enroll(&state, &mut stored, &options.name, &token, &measured).await?;
    Ok(stored.identity)
}

/// A plain address of another host is refused before anything is made, unless the retained identity allows it.
fn require_permitted(options: &Register, core_url: &Origin) -> Result<(), RegisterError> {
    if core_url.is_permitted(options.allow_insecure_origin) {
        return Ok(());
    }
    let retained = identity::peek(&options.state_dir)?;
    if retained.is_some_and(|stored| stored.allow_insecure_origin) {
        return Ok(());
    }
    Err(IdentityError::Insecure(core_url.clone()).into())
}

fn require_name(name: &str) -> Result<(), RegisterError> {
    let valid = name.len() <= NAME_MAX_BYTES && !name.trim().is_empty() && !name.contains(['\0', '\r', '\n']);
    if valid { Ok(()) } else { Err(RegisterError::Name) }
}

fn token(path: &Path) -> Result<Zeroizing<String>, RegisterError> {
    files::require_clean(path)?;
    let bytes = Zeroizing::new(files::read(path, Privacy::Private, TOKEN_FILE_MAX_BYTES)?);
    let text = str::from_utf8(&bytes).map_err(|_| RegisterError::Token)?.trim();
    let valid = (1..=TOKEN_MAX_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if valid { Ok(Zeroizing::new(text.to_owned())) } else { Err(RegisterError::Token) }
}

async fn require_ready(provider: &dyn Provider) -> Result<(), RegisterError> {
    // A provider that keeps its own limit names the class; this one is for a provider that does not.
    let limit = Duration::from_millis(PROBE_TIMEOUT_MS + PROBE_GRACE_MS);
    let probed = timeout(limit, provider.probe()).await.unwrap_or_else(|_| {
        Err(NotReady { diagnostic: Diagnostic::ProviderUnavailable, detail: "no answer in time".to_owned() })
    });
    match probed {
        Ok(_) => Ok(()),
        Err(NotReady { diagnostic, detail }) => Err(RegisterError::NotReady { diagnostic, detail }),
    }
}

#[cfg(test)]
mod tests;
