//! Asking a provider that runs sandboxes itself whether a selection can be had (deployment §7.5, §7.6).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use palisade_core::admin::deployment::TemplateBuild;
use palisade_core::deployment::selection::{Candidate, Doubt, Verb};

/// Who can ask. It reads the template build with the candidate's key and, for a change, confirms that the key owns all
/// that the deployment holds; it creates and changes nothing at the provider.
#[async_trait]
pub trait Confirm: Send + Sync {
    /// The build of the candidate's template. Called outside any transaction; dropped when it takes too long.
    async fn confirm(&self, verb: Verb, candidate: &Candidate) -> Result<TemplateBuild, Doubt>;
}

/// The one who asks, shared. The default one can ask nobody: every such selection is refused with
/// `execution_unavailable`, and nothing of it is stored.
#[derive(Clone, Default)]
pub struct Confirmation(Option<Arc<dyn Confirm>>);

impl Confirmation {
    /// Asks through `confirm`.
    #[must_use]
    pub fn through(confirm: Arc<dyn Confirm>) -> Self {
        Self(Some(confirm))
    }

    /// Asks, at most as long as `budget`.
    pub async fn confirm(&self, verb: Verb, candidate: &Candidate, budget: Duration) -> Result<TemplateBuild, Doubt> {
        let confirm = self.0.as_ref().ok_or(Doubt::Unavailable)?;
        tokio::time::timeout(budget, confirm.confirm(verb, candidate)).await.map_err(|_| Doubt::Unconfirmed)?
    }
}

impl fmt::Debug for Confirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Confirmation({})", if self.0.is_some() { "asks" } else { "asks nobody" })
    }
}
