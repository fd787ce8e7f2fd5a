//! Selecting a deployment: what a body means, and which refusal comes first (deployment §1.2).

mod body;
mod refusal;
#[cfg(test)]
mod tests;

pub use body::{ApiKey, Body};
pub(super) use body::{configuration, credential, is_object, members};
pub use refusal::SelectionRefusal;

use super::contract::Provider;
use super::specification::{Draft, Refusal, Resources, Specification};
use super::{Deployment, Selected, e2b, origin};
use crate::admin::deployment::Configuration;
use crate::units::{Generation, Id};

/// Which request carries the selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `POST`: the first selection.
    Initialise,
    /// `PUT`: a change.
    Change,
}

/// A body with the right members and JSON types, for a registered provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// The generation that the administrator saw; 0 for the first selection.
    pub expected_generation: u64,
    /// Which provider.
    pub provider: Provider,
    /// Sizes and release, bounds unchecked.
    pub draft: Draft,
    /// Provider configuration, values unchecked.
    pub configuration: Configuration,
    /// A submitted key is always a replacement, even when it is the same.
    pub credential: Option<ApiKey>,
}

/// What to do with a selection.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Answer the current view; nothing is written.
    Unchanged,
    /// Store this as the new selection.
    Commit(Box<Commit>),
}

/// A selection to store.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// The new generation, the current one plus 1.
    pub generation: Generation,
    /// Sizes and release, with the provider.
    pub specification: Specification,
    /// Normalised configuration.
    pub configuration: Configuration,
    /// What the audit log records; the first selection records nothing.
    pub audit: Option<Audit>,
}

/// Audit action of a change (deployment §3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audit {
    /// `change`.
    Change,
    /// `replace_credential`.
    ReplaceCredential,
}

impl Audit {
    /// The stored action.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::Change => "change",
            Self::ReplaceCredential => "replace_credential",
        }
    }
}

impl Selection {
    /// Steps 5 to 16 against one snapshot; the commit transaction calls it again.
    ///
    /// `installation` is the owner's, `owner_alive` whether this process holds the execution lease.
    pub fn decide(
        &self,
        verb: Verb,
        deployment: &Deployment,
        installation: Id,
        owner_alive: bool,
    ) -> Result<Decision, SelectionRefusal> {
        self.check_deployment(deployment, installation, owner_alive)?;
        match (verb, &deployment.selected) {
            (Verb::Change, None) => Err(SelectionRefusal::NotConfigured),
            (Verb::Change, Some(selected)) => self.change(selected, deployment),
            (Verb::Initialise, selected) => self.initialise(selected.as_ref(), deployment),
        }
    }

    fn check_deployment(
        &self,
        deployment: &Deployment,
        installation: Id,
        owner_alive: bool,
    ) -> Result<(), SelectionRefusal> {
        if !owner_alive {
            return Err(SelectionRefusal::Execution);
        }
        if self.expected_generation != deployment.generation {
            return Err(SelectionRefusal::Stale { current: deployment.generation });
        }
        if !deployment.web_managed || deployment.installation.is_some_and(|claimed| claimed != installation) {
            return Err(SelectionRefusal::Conflict);
        }
        if deployment.reset.is_some() { Err(SelectionRefusal::Reset) } else { Ok(()) }
    }

    fn change(&self, selected: &Selected, deployment: &Deployment) -> Result<Decision, SelectionRefusal> {
        self.check_backend(selected)?;
        let candidate = self.normalise(Some(selected))?;
        if candidate.equals(selected) && self.credential.is_none() {
            return Ok(Decision::Unchanged);
        }
        let audit = if self.credential.is_some() { Audit::ReplaceCredential } else { Audit::Change };
        candidate.prepare(deployment)?.commit(deployment, Some(audit))
    }

    fn initialise(&self, selected: Option<&Selected>, deployment: &Deployment) -> Result<Decision, SelectionRefusal> {
        let candidate = self.normalise(None)?;
        selected.map_or(Ok(()), |selected| self.check_backend(selected))?;
        let candidate = candidate.prepare(deployment)?;
        match selected {
            None => candidate.commit(deployment, None),
            Some(selected) if candidate.equals(selected) => Ok(Decision::Unchanged),
            Some(_) => Err(SelectionRefusal::Conflict),
        }
    }

    fn check_backend(&self, selected: &Selected) -> Result<(), SelectionRefusal> {
        if selected.provider == self.provider {
            return Ok(());
        }
        Err(SelectionRefusal::Backend { current: selected.provider, requested: self.provider })
    }

    /// Step 10a. A change inherits what it leaves out from `previous`.
    fn normalise(&self, previous: Option<&Selected>) -> Result<Candidate, SelectionRefusal> {
        if self.provider != Provider::E2b {
            let specification = Some(Specification::check(self.provider, &self.draft)?);
            return Ok(Candidate { specification, configuration: Configuration::default() });
        }
        let specification = self.e2b_specification(previous)?;
        let configuration = self.e2b_configuration(previous).ok_or(SelectionRefusal::Configuration)?;
        Ok(Candidate { specification, configuration })
    }

    /// `None` while sizes are left to the template build.
    fn e2b_specification(&self, previous: Option<&Selected>) -> Result<Option<Specification>, Refusal> {
        let unset = self.draft.resources.as_ref().is_none_or(Resources::is_unset);
        if !unset {
            return Specification::check(self.provider, &self.draft).map(Some);
        }
        if self.draft.runtime.is_some() {
            return Err(Refusal::Presence { required: false });
        }
        let same_template = |previous: &&Selected| previous.configuration.template == self.configuration.template;
        Ok(previous.filter(same_template).and_then(|previous| previous.specification.clone()))
    }

    fn e2b_configuration(&self, previous: Option<&Selected>) -> Option<Configuration> {
        let given = &self.configuration;
        let template = given.template.clone().filter(|template| e2b::valid_template(template))?;
        let inherits = given.api_url.is_none() && given.domain.is_none();
        let source = previous.filter(|_| inherits).map_or(given, |previous| &previous.configuration);
        let (api_url, domain) = e2b::endpoint(source.api_url.as_deref(), source.domain.as_deref())?;
        let stored_key = previous.is_some_and(|previous| previous.credential_configured);
        let key = self.credential.as_ref().map_or(stored_key, |key| e2b::valid_key(key.expose()));
        key.then_some(Configuration { template: Some(template), api_url: Some(api_url), domain: Some(domain) })
    }
}

/// A normalised selection.
struct Candidate {
    specification: Option<Specification>,
    configuration: Configuration,
}

/// A candidate whose provider is prepared: nothing is open any more.
struct Prepared {
    specification: Specification,
    configuration: Configuration,
}

impl Candidate {
    fn equals(&self, selected: &Selected) -> bool {
        self.specification == selected.specification && self.configuration == selected.configuration
    }

    /// Steps 12 and 13. Node providers are prepared by their nodes; E2B cannot be prepared by this Core yet.
    fn prepare(self, deployment: &Deployment) -> Result<Prepared, SelectionRefusal> {
        let Some(specification) = self.specification.filter(|specification| specification.provider() != Provider::E2b)
        else {
            let loopback = origin::is_loopback(&deployment.core_url);
            return Err(if loopback { SelectionRefusal::Loopback } else { SelectionRefusal::Execution });
        };
        Ok(Prepared { specification, configuration: self.configuration })
    }
}

impl Prepared {
    fn equals(&self, selected: &Selected) -> bool {
        selected.specification.as_ref() == Some(&self.specification) && selected.configuration == self.configuration
    }

    fn commit(self, deployment: &Deployment, audit: Option<Audit>) -> Result<Decision, SelectionRefusal> {
        let next = deployment.generation.checked_add(1).and_then(Generation::new);
        let generation = next.ok_or(SelectionRefusal::Conflict)?;
        let Self { specification, configuration } = self;
        Ok(Decision::Commit(Box::new(Commit { generation, specification, configuration, audit })))
    }
}
