//! What an administrator selects and what follows from it (deployment §1–§6).
//!
//! Every function here is pure: it judges values or a snapshot that the caller read in one transaction, and returns
//! what is to be answered or done. No selection is ever accepted that has no digest, and no check contacts a provider.

pub mod admission;
pub mod capacity;
pub mod configuration;
pub mod contract;
pub mod discovery;
pub mod e2b;
pub mod history;
pub mod node;
pub mod origin;
pub mod reset;
pub mod retention;
pub mod selection;
pub mod specification;
pub mod view;

use contract::{Mode, Provider};
use specification::Specification;

use crate::admin;
use crate::admin::time::Timestamp;
use crate::session::hub::presence::Authority;
use crate::units::{Generation, Id, OwnerEpoch};

/// The one deployment row (deployment §3.1), as one transaction read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Deployment {
    /// `None` until an owner claimed it.
    pub installation: Option<Id>,
    /// The row is administered over HTTP.
    pub web_managed: bool,
    /// 0 before the first selection; stays when a reset ended.
    pub generation: u64,
    /// Fencing number of the owner; `None` before the first.
    pub owner_epoch: Option<OwnerEpoch>,
    /// The installation's public URL.
    pub core_url: String,
    /// New sandboxes are refused.
    pub admission_paused: bool,
    /// The reset under way.
    pub reset: Option<Reset>,
    /// The selection; `None` when unconfigured.
    pub selected: Option<Selected>,
}

/// The stored selection.
#[derive(Debug, Clone, PartialEq)]
pub struct Selected {
    /// Which provider.
    pub provider: Provider,
    /// `None` when the stored text is no valid specification any more.
    pub specification: Option<Specification>,
    /// Provider configuration.
    pub configuration: admin::deployment::Configuration,
    /// What was recorded of the provider.
    pub metadata: admin::deployment::Metadata,
    /// A sealed credential is stored.
    pub credential_configured: bool,
}

/// The stored reset; what it waits for is counted when it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reset {
    /// Which sessions are archived.
    pub clear: admin::deployment::Clear,
    /// Identity of the reset.
    pub requested_at: Timestamp,
    /// When `auto` becomes `force`.
    pub deadline_at: Option<Timestamp>,
    /// When it became `force`.
    pub forced_at: Option<Timestamp>,
}

impl Deployment {
    /// The selected provider.
    #[must_use]
    pub fn provider(&self) -> Option<Provider> {
        self.selected.as_ref().map(|selected| selected.provider)
    }

    /// Where sandboxes run; `None` when unconfigured.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        self.provider().map(|provider| provider.rule().mode)
    }

    /// The generation that nodes prepare; `None` when unconfigured.
    #[must_use]
    pub fn target(&self) -> Option<Generation> {
        self.selected.as_ref().and_then(|_| Generation::new(self.generation))
    }

    /// What this row says to a node's connection. It knows the digest of the target only.
    #[must_use]
    pub fn authority(&self) -> Authority {
        let digest = self.specification().map(Specification::digest);
        Authority {
            installation: self.installation,
            owner_epoch: self.owner_epoch,
            target: self.target(),
            digests: self.target().zip(digest).into_iter().collect(),
        }
    }

    /// The valid stored specification.
    #[must_use]
    pub fn specification(&self) -> Option<&Specification> {
        self.selected.as_ref().and_then(|selected| selected.specification.as_ref())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const RUNTIME: &str = concat!(
        r#"{"source_commit":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","#,
        r#""image_id":"sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","#,
        r#""image_manifest_digest":"sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc","#,
        r#""microsandbox_ref":"oac-runtime@sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd","#,
        r#""runtime_sha256":"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee","#,
        r#""firmware_sha256":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}"#
    );

    pub(crate) fn id(last: u8) -> Id {
        Id::from_random([last; 16])
    }

    pub(crate) fn generation(value: u64) -> Generation {
        Generation::new(value).unwrap()
    }

    pub(crate) fn specification(provider: Provider) -> Specification {
        let text = match provider {
            Provider::Docker => format!(r#"{{"resources":{{"cpus":2,"memory_mib":4096}},"runtime":{RUNTIME}}}"#),
            Provider::Microsandbox => format!(
                r#"{{"resources":{{"cpus":2,"memory_mib":4096,"root_disk_mib":8192,"environment_disk_mib":8192}},"runtime":{RUNTIME}}}"#
            ),
            Provider::E2b => r#"{"resources":{"cpus":2,"memory_mib":4096}}"#.to_owned(),
        };
        Specification::parse(provider, text.as_bytes()).unwrap()
    }

    /// A deployment at generation 3, epoch 7, with the provider's example specification.
    pub(crate) fn deployment(provider: Option<Provider>) -> Deployment {
        Deployment {
            installation: Some(id(1)),
            web_managed: true,
            generation: 3,
            owner_epoch: OwnerEpoch::new(7),
            core_url: "https://core.example".to_owned(),
            admission_paused: false,
            reset: None,
            selected: provider.map(|provider| Selected {
                provider,
                specification: Some(specification(provider)),
                configuration: admin::deployment::Configuration::default(),
                metadata: admin::deployment::Metadata::default(),
                credential_configured: false,
            }),
        }
    }

    pub(crate) fn resetting(provider: Provider) -> Deployment {
        let reset = Reset {
            clear: admin::deployment::Clear::Auto,
            requested_at: Timestamp(0),
            deadline_at: Some(Timestamp(3_600_000)),
            forced_at: None,
        };
        Deployment { admission_paused: true, reset: Some(reset), ..deployment(Some(provider)) }
    }

    #[test]
    fn a_connection_is_told_the_digest_of_the_target_alone() {
        let stored = deployment(Some(Provider::Docker));
        let authority = stored.authority();
        assert_eq!((authority.installation, authority.owner_epoch), (Some(id(1)), OwnerEpoch::new(7)));
        assert_eq!(authority.target, Some(generation(3)));
        let digest = specification(Provider::Docker).digest();
        assert_eq!(authority.digests.into_iter().collect::<Vec<_>>(), [(generation(3), digest)]);
        let unconfigured = deployment(None).authority();
        assert_eq!((unconfigured.target, unconfigured.digests.len()), (None, 0));
    }
}
