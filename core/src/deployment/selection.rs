//! Selecting a deployment: what a body means, and which refusal comes first (deployment §1.2).

mod body;
mod refusal;
#[cfg(test)]
mod tests;

pub use body::{ApiKey, Body};
pub(super) use body::{configuration, credential, is_object, members};
pub use refusal::{Doubt, SelectionRefusal};

use super::configuration::{Configuration, Metadata, TemplateBuild};
use super::contract::Provider;
use super::specification::{Draft, Refusal, Resources, Specification};
use super::{Deployment, Selected, e2b, origin};
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

/// What is known beside the stored deployment when a selection is judged.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The owner's installation.
    pub installation: Id,
    /// Whether this process holds the execution lease.
    pub owner_alive: bool,
    /// The stored key, once [`Decision::Open`] asked for it.
    pub stored_key: Option<&'a ApiKey>,
    /// The template build that the provider confirmed, once [`Decision::Confirm`] asked for it.
    pub confirmed: Option<&'a TemplateBuild>,
}

impl Known<'_> {
    /// An owner who has asked nobody yet.
    #[must_use]
    pub const fn new(installation: Id) -> Self {
        Self { installation, owner_alive: true, stored_key: None, confirmed: None }
    }
}

/// What to do with a selection.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Answer the current view; nothing is written.
    Unchanged,
    /// Open the stored key and judge again.
    Open,
    /// Outside any transaction, let the provider confirm this; then judge again.
    Confirm(Box<Candidate>),
    /// Store what was recorded of the provider; the selection and its generation stay.
    Refresh(Metadata),
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
    /// What was recorded of the provider.
    pub metadata: Metadata,
    /// To be sealed for the new generation, whether submitted or kept.
    pub key: Option<ApiKey>,
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
    pub fn decide(&self, verb: Verb, deployment: &Deployment, known: Known<'_>) -> Result<Decision, SelectionRefusal> {
        self.check_deployment(deployment, known)?;
        match (verb, &deployment.selected) {
            (Verb::Change, None) => Err(SelectionRefusal::NotConfigured),
            (Verb::Change, Some(selected)) => self.change(selected, deployment, known),
            (Verb::Initialise, selected) => self.initialise(selected.as_ref(), deployment, known),
        }
    }

    fn check_deployment(&self, deployment: &Deployment, known: Known<'_>) -> Result<(), SelectionRefusal> {
        if !known.owner_alive {
            return Err(SelectionRefusal::Execution);
        }
        if self.expected_generation != deployment.generation {
            return Err(SelectionRefusal::Stale { current: deployment.generation });
        }
        if !deployment.web_managed || deployment.installation.is_some_and(|claimed| claimed != known.installation) {
            return Err(SelectionRefusal::Conflict);
        }
        if deployment.reset.is_some() { Err(SelectionRefusal::Reset) } else { Ok(()) }
    }

    fn change(
        &self,
        selected: &Selected,
        deployment: &Deployment,
        known: Known<'_>,
    ) -> Result<Decision, SelectionRefusal> {
        self.check_backend(selected)?;
        if must_open(selected, known) {
            return Ok(Decision::Open);
        }
        let candidate = self.normalise(Some(selected), known.stored_key)?;
        if self.credential.is_none() && candidate.equals(selected, known) {
            return Ok(Decision::Unchanged);
        }
        let audit = if self.credential.is_some() { Audit::ReplaceCredential } else { Audit::Change };
        match candidate.prepare(deployment, known)? {
            Prepared::Open(candidate) => Ok(Decision::Confirm(candidate)),
            Prepared::Done { candidate, metadata } => candidate.commit(deployment, metadata, Some(audit)),
        }
    }

    fn initialise(
        &self,
        selected: Option<&Selected>,
        deployment: &Deployment,
        known: Known<'_>,
    ) -> Result<Decision, SelectionRefusal> {
        let candidate = self.normalise(None, None)?;
        selected.map_or(Ok(()), |selected| self.check_backend(selected))?;
        if selected.is_some_and(|selected| must_open(selected, known)) {
            return Ok(Decision::Open);
        }
        let (candidate, metadata) = match candidate.prepare(deployment, known)? {
            Prepared::Open(candidate) => return Ok(Decision::Confirm(candidate)),
            Prepared::Done { candidate, metadata } => (candidate, metadata),
        };
        match selected {
            None => candidate.commit(deployment, metadata, None),
            Some(selected) if !candidate.equals(selected, known) => Err(SelectionRefusal::Conflict),
            Some(_) if metadata == Metadata::default() => Ok(Decision::Unchanged),
            Some(_) => Ok(Decision::Refresh(metadata)),
        }
    }

    fn check_backend(&self, selected: &Selected) -> Result<(), SelectionRefusal> {
        if selected.provider == self.provider {
            return Ok(());
        }
        Err(SelectionRefusal::Backend { current: selected.provider, requested: self.provider })
    }

    /// Step 10a. A change inherits what it leaves out from `previous`.
    fn normalise(
        &self,
        previous: Option<&Selected>,
        stored_key: Option<&ApiKey>,
    ) -> Result<Candidate, SelectionRefusal> {
        if self.provider != Provider::E2b {
            let specification = Some(Specification::check(self.provider, &self.draft)?);
            let draft = self.draft.clone();
            return Ok(Candidate { draft, specification, configuration: Configuration::default(), key: None });
        }
        let specification = self.e2b_specification(previous)?;
        let stored = previous.map(|previous| &previous.configuration);
        let configuration = e2b::configuration(&self.configuration, stored).ok_or(SelectionRefusal::Configuration)?;
        let submitted = self.credential.as_ref().filter(|key| e2b::valid_key(key.expose()));
        let key = if self.credential.is_some() { submitted } else { stored_key };
        let key = Some(key.cloned().ok_or(SelectionRefusal::Configuration)?);
        Ok(Candidate { draft: self.draft.clone(), specification, configuration, key })
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
        let template = self.configuration.get(e2b::TEMPLATE);
        let same_template = |previous: &&Selected| previous.configuration.get(e2b::TEMPLATE) == template;
        Ok(previous.filter(same_template).and_then(|previous| previous.specification.clone()))
    }
}

/// A change compares keys, and keeps the stored one where it submits none.
fn must_open(selected: &Selected, known: Known<'_>) -> bool {
    selected.credential_configured && known.stored_key.is_none()
}

/// A normalised selection.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    draft: Draft,
    /// `None` while sizes are left to the template build.
    pub specification: Option<Specification>,
    /// Normalised configuration.
    pub configuration: Configuration,
    /// Submitted or stored; `None` for a provider without credentials.
    pub key: Option<ApiKey>,
}

/// A candidate whose provider was asked for, if it needs to be.
enum Prepared {
    Open(Box<Candidate>),
    Done { candidate: Box<Candidate>, metadata: Metadata },
}

impl Candidate {
    fn equals(&self, selected: &Selected, known: Known<'_>) -> bool {
        self.specification == selected.specification
            && self.configuration == selected.configuration
            && self.key.as_ref() == known.stored_key
    }

    /// Steps 12 and 13. Node providers are prepared by their nodes, E2B by asking it.
    fn prepare(self, deployment: &Deployment, known: Known<'_>) -> Result<Prepared, SelectionRefusal> {
        if self.key.is_none() {
            return Ok(Prepared::Done { candidate: Box::new(self), metadata: Metadata::default() });
        }
        if origin::is_loopback(&deployment.core_url) {
            return Err(SelectionRefusal::Loopback);
        }
        let Some(build) = known.confirmed else { return Ok(Prepared::Open(Box::new(self))) };
        // An inherited size is as much asked for as a given one.
        let asked = self.specification.as_ref().map_or_else(|| self.draft.clone(), Specification::draft);
        let specification = Some(e2b::adopt(&asked, build)?);
        let metadata = Metadata { template_build: Some(build.clone()) };
        Ok(Prepared::Done { candidate: Box::new(Self { specification, ..self }), metadata })
    }

    fn commit(
        self,
        deployment: &Deployment,
        metadata: Metadata,
        audit: Option<Audit>,
    ) -> Result<Decision, SelectionRefusal> {
        let next = deployment.generation.checked_add(1).and_then(Generation::new);
        let generation = next.ok_or(SelectionRefusal::Conflict)?;
        let Self { specification, configuration, key, .. } = self;
        let specification = specification.expect("a prepared candidate has a specification");
        Ok(Decision::Commit(Box::new(Commit { generation, specification, configuration, metadata, key, audit })))
    }
}
