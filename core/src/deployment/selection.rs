//! Selecting a deployment: what a body means, and which refusal comes first (deployment §1.2).

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeSeed;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::contract::Provider;
use super::specification::{Draft, Refusal, Resources, Runtime, Specification};
use super::{Deployment, Selected, e2b, origin};
use crate::admin::deployment::Configuration;
use crate::admin::error::{Code, Fault};
use crate::strict::{self, Table};
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

/// A submitted key; cleared when dropped, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// The key, to be sealed.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
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

/// Why a selection is refused, in the order of deployment §1.2.2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionRefusal {
    /// Step 2 and 3: body, members, JSON types.
    #[error("the body is malformed")]
    Malformed,
    /// Step 4 and 10a: provider, configuration or key.
    #[error("the provider or its configuration is invalid")]
    Configuration,
    /// Step 5 and 13: nobody owns execution, or the provider cannot be prepared.
    #[error("execution is not available")]
    Execution,
    /// Step 6: another selection came first.
    #[error("the generation is {current} by now")]
    Stale {
        /// The current generation.
        current: u64,
    },
    /// Step 7 and 16, and an exhausted generation.
    #[error("the deployment's state does not allow this")]
    Conflict,
    /// Step 8.
    #[error("a reset is in progress")]
    Reset,
    /// Step 9.
    #[error("nothing is selected yet")]
    NotConfigured,
    /// Step 10a: sizes and release.
    #[error(transparent)]
    Specification(Refusal),
    /// Step 10b: another backend.
    #[error("changing from {} to {} needs a reset", .current.name(), .requested.name())]
    Backend {
        /// What is selected.
        current: Provider,
        /// What was asked for.
        requested: Provider,
    },
    /// Step 12.
    #[error("the provider needs a public URL that is not a loopback address")]
    Loopback,
}

impl From<Refusal> for SelectionRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Specification(refusal)
    }
}

impl From<SelectionRefusal> for Fault {
    fn from(refusal: SelectionRefusal) -> Self {
        match refusal {
            SelectionRefusal::Malformed => Code::InvalidRequest.into(),
            SelectionRefusal::Configuration => Self::of(Code::InvalidSandboxConfiguration, "configuration"),
            SelectionRefusal::Execution => Code::ExecutionUnavailable.into(),
            SelectionRefusal::Stale { current } => {
                Self::from(Code::SandboxGenerationStale).detail("current_generation", current)
            }
            SelectionRefusal::Conflict => Code::SandboxDeploymentConflict.into(),
            SelectionRefusal::Reset => Code::SandboxResetInProgress.into(),
            SelectionRefusal::NotConfigured => Code::SandboxNotConfigured.into(),
            SelectionRefusal::Specification(refusal) => specification_fault(&refusal),
            SelectionRefusal::Backend { current, requested } => Self::from(Code::SandboxResetRequired)
                .detail("current_provider", current.name())
                .detail("requested_provider", requested.name()),
            SelectionRefusal::Loopback => Code::SandboxConfigurationError.into(),
        }
    }
}

fn specification_fault(refusal: &Refusal) -> Fault {
    let Some(param) = refusal.param() else { return Code::InvalidRequest.into() };
    let fault = Fault::of(Code::InvalidSandboxConfiguration, param);
    match refusal {
        Refusal::Resource { min, max: Some(max), .. } => {
            fault.detail("min", u64::from(*min)).detail("max", u64::from(*max))
        }
        Refusal::Resource { min, max: None, .. } => fault.detail("min", u64::from(*min)),
        Refusal::Malformed(_) | Refusal::Presence { .. } | Refusal::Runtime(_) => fault,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    expected_generation: u64,
    #[serde(borrow)]
    provider: Cow<'a, str>,
    #[serde(default, deserialize_with = "strict::present")]
    resources: Option<Resources>,
    #[serde(default, deserialize_with = "strict::present")]
    runtime: Option<Runtime>,
    #[serde(borrow, default, deserialize_with = "strict::present")]
    configuration: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "strict::present")]
    credential: Option<&'a RawValue>,
}

impl Selection {
    /// Steps 2 to 4: nothing here looks at the stored deployment.
    pub fn parse(body: &[u8]) -> Result<Self, SelectionRefusal> {
        let body: Body = strict::object(body).map_err(|_| SelectionRefusal::Malformed)?;
        if ![body.configuration, body.credential].into_iter().flatten().all(is_object) {
            return Err(SelectionRefusal::Malformed);
        }
        let provider = Provider::from_name(&body.provider).ok_or(SelectionRefusal::Configuration)?;
        Ok(Self {
            expected_generation: body.expected_generation,
            provider,
            draft: Draft { resources: body.resources, runtime: body.runtime },
            configuration: configuration(provider, body.configuration)?,
            credential: credential(provider, body.credential)?,
        })
    }

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

pub(super) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

pub(super) fn configuration(provider: Provider, raw: Option<&RawValue>) -> Result<Configuration, SelectionRefusal> {
    let Some(raw) = raw else { return Ok(Configuration::default()) };
    if provider != Provider::E2b {
        let [] = members::<0>([], raw)?;
        return Ok(Configuration::default());
    }
    let [template, api_url, domain] = members(["template", "api_url", "domain"], raw)?;
    Ok(Configuration { template, api_url, domain })
}

pub(super) fn credential(provider: Provider, raw: Option<&RawValue>) -> Result<Option<ApiKey>, SelectionRefusal> {
    let Some(raw) = raw else { return Ok(None) };
    if !provider.rule().credential {
        return Err(SelectionRefusal::Configuration);
    }
    let [key] = members(["api_key"], raw)?;
    let key = key.filter(|key| !key.is_empty()).ok_or(SelectionRefusal::Configuration)?;
    Ok(Some(ApiKey(Zeroizing::new(key))))
}

pub(super) fn members<const N: usize>(
    names: [&str; N],
    raw: &RawValue,
) -> Result<[Option<String>; N], SelectionRefusal> {
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    Table::new(names).deserialize(&mut deserializer).map_err(|_| SelectionRefusal::Configuration)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::tests::{RUNTIME, deployment, id, resetting};
    use super::*;

    const TEMPLATE: &str = "base:94be54a1-138c-4f30-bc87-b13686272dbe";

    fn body(provider: &str, generation: u64, rest: &str) -> Vec<u8> {
        format!(r#"{{"expected_generation":{generation},"provider":"{provider}"{rest}}}"#).into_bytes()
    }

    fn docker(generation: u64, cpus: u32) -> Selection {
        let rest = format!(r#","resources":{{"cpus":{cpus},"memory_mib":4096}},"runtime":{RUNTIME}"#);
        Selection::parse(&body("docker", generation, &rest)).unwrap()
    }

    fn e2b(rest: &str) -> Selection {
        let rest = format!(r#","configuration":{{"template":"{TEMPLATE}"}}{rest}"#);
        Selection::parse(&body("e2b", 3, &rest)).unwrap()
    }

    const KEY: &str = r#","credential":{"api_key":"key"}"#;

    fn decide(selection: &Selection, verb: Verb, deployment: &Deployment) -> Result<Decision, SelectionRefusal> {
        selection.decide(verb, deployment, id(1), true)
    }

    fn fresh() -> Deployment {
        Deployment { generation: 0, installation: None, ..deployment(None) }
    }

    #[rstest]
    #[case::no_generation(r#"{"provider":"docker"}"#)]
    #[case::null_generation(r#"{"expected_generation":null,"provider":"docker"}"#)]
    #[case::fraction(r#"{"expected_generation":0.0,"provider":"docker"}"#)]
    #[case::negative(r#"{"expected_generation":-1,"provider":"docker"}"#)]
    #[case::text(r#"{"expected_generation":"0","provider":"docker"}"#)]
    #[case::repeated(r#"{"expected_generation":0,"expected_generation":0,"provider":"docker"}"#)]
    #[case::no_provider(r#"{"expected_generation":0}"#)]
    #[case::unknown(r#"{"expected_generation":0,"provider":"docker","core_url":"x"}"#)]
    #[case::retired(r#"{"expected_generation":0,"provider":"docker","maintenance":true}"#)]
    #[case::alias(r#"{"expected_generation":0,"Provider":"docker"}"#)]
    #[case::wrong_type(r#"{"expected_generation":0,"provider":"docker","resources":{"cpus":"2"}}"#)]
    #[case::null_member(r#"{"expected_generation":0,"provider":"docker","resources":{"cpus":null}}"#)]
    #[case::null_runtime(r#"{"expected_generation":0,"provider":"e2b","runtime":null}"#)]
    #[case::null_configuration(r#"{"expected_generation":0,"provider":"docker","configuration":null}"#)]
    #[case::array_configuration(r#"{"expected_generation":0,"provider":"e2b","configuration":[]}"#)]
    #[case::null_credential(r#"{"expected_generation":0,"provider":"docker","credential":null}"#)]
    #[case::unknown_resource(r#"{"expected_generation":0,"provider":"docker","resources":{"gpus":1}}"#)]
    #[case::trailing(r#"{"expected_generation":0,"provider":"docker"}{}"#)]
    #[case::array("[]")]
    /// D 13. D 8. Unknown, absent, null, repeated and mistyped members are malformed before anything else.
    fn a_malformed_body_is_refused_first(#[case] text: &str) {
        assert_eq!(Selection::parse(text.as_bytes()), Err(SelectionRefusal::Malformed));
    }

    #[rstest]
    #[case::provider(r#"{"expected_generation":9,"provider":"podman"}"#)]
    #[case::docker_configuration(r#"{"expected_generation":0,"provider":"docker","configuration":{"template":"x"}}"#)]
    #[case::docker_credential(r#"{"expected_generation":0,"provider":"docker","credential":{"api_key":"k"}}"#)]
    #[case::private(r#"{"expected_generation":0,"provider":"e2b","configuration":{"api_key":"k"}}"#)]
    #[case::alias(r#"{"expected_generation":0,"provider":"e2b","configuration":{"Template":"k"}}"#)]
    #[case::null(r#"{"expected_generation":0,"provider":"e2b","configuration":{"template":null}}"#)]
    #[case::empty_key(r#"{"expected_generation":0,"provider":"e2b","credential":{"api_key":""}}"#)]
    #[case::null_key(r#"{"expected_generation":0,"provider":"e2b","credential":{"api_key":null}}"#)]
    #[case::extra_key(r#"{"expected_generation":0,"provider":"e2b","credential":{"api_key":"k","x":"y"}}"#)]
    #[case::no_key(r#"{"expected_generation":0,"provider":"e2b","credential":{}}"#)]
    /// D 17. D 8. An unregistered provider and a foreign configuration are refused without a stored deployment.
    fn provider_and_configuration_are_decoded_next(#[case] text: &str) {
        let refusal = Selection::parse(text.as_bytes()).unwrap_err();
        assert_eq!(refusal, SelectionRefusal::Configuration);
        assert_eq!(Fault::from(refusal), Fault::of(Code::InvalidSandboxConfiguration, "configuration"));
    }

    /// D 9. An omitted credential replaces nothing, any supplied one does; none is ever shown.
    #[test]
    fn a_supplied_credential_is_a_replacement() {
        assert_eq!(e2b("").credential, None);
        let selection = e2b(KEY);
        assert_eq!(selection.credential.as_ref().map(ApiKey::expose), Some("key"));
        assert_eq!(format!("{:?}", selection.credential), "Some([secret])");
    }

    /// D 14. A stale generation is reported with the current one, by both requests alike and before other checks.
    #[test]
    fn a_stale_generation_is_reported_with_the_current_one() {
        for verb in [Verb::Initialise, Verb::Change] {
            for deployment in [deployment(Some(Provider::Docker)), resetting(Provider::Microsandbox), deployment(None)]
            {
                let refusal = decide(&docker(2, 999), verb, &deployment).unwrap_err();
                assert_eq!(refusal, SelectionRefusal::Stale { current: 3 });
                let fault = Fault::from(refusal);
                assert_eq!((fault.code, fault.details.len()), (Code::SandboxGenerationStale, 1));
            }
        }
    }

    /// D 22. Steps 5, 7, 8 and 9: owner, installation, reset, configured.
    #[test]
    fn the_deployment_is_checked_in_order() {
        let selected = deployment(Some(Provider::Docker));
        let dead = docker(2, 2).decide(Verb::Change, &selected, id(1), false);
        assert_eq!(dead, Err(SelectionRefusal::Execution));
        let foreign = docker(3, 2).decide(Verb::Change, &resetting(Provider::Docker), id(2), true);
        assert_eq!(foreign, Err(SelectionRefusal::Conflict));
        let process = Deployment { web_managed: false, ..selected };
        assert_eq!(decide(&docker(3, 2), Verb::Change, &process), Err(SelectionRefusal::Conflict));
        assert_eq!(decide(&docker(3, 999), Verb::Change, &resetting(Provider::Docker)), Err(SelectionRefusal::Reset));
        assert_eq!(decide(&docker(3, 999), Verb::Change, &deployment(None)), Err(SelectionRefusal::NotConfigured));
    }

    /// D 15. Another provider names both; PUT compares before it validates, POST after.
    #[test]
    fn another_provider_needs_a_reset() {
        let selected = deployment(Some(Provider::Microsandbox));
        let backend = SelectionRefusal::Backend { current: Provider::Microsandbox, requested: Provider::Docker };
        assert_eq!(decide(&docker(3, 2), Verb::Change, &selected), Err(backend.clone()));
        assert_eq!(decide(&docker(3, 999), Verb::Change, &selected), Err(backend.clone()));
        assert_eq!(decide(&docker(3, 2), Verb::Initialise, &selected), Err(backend.clone()));
        let invalid = decide(&docker(3, 999), Verb::Initialise, &selected).unwrap_err();
        assert!(matches!(invalid, SelectionRefusal::Specification(_)));
        let fault = Fault::from(backend);
        let names: Vec<_> = fault.details.keys().copied().collect();
        assert_eq!((fault.code, names), (Code::SandboxResetRequired, vec!["current_provider", "requested_provider"]));
    }

    /// D 16. The stored selection is unchanged, another CPU count is not: PUT commits it, POST conflicts.
    #[test]
    fn the_same_selection_changes_nothing() {
        let selected = deployment(Some(Provider::Docker));
        for verb in [Verb::Initialise, Verb::Change] {
            assert_eq!(decide(&docker(3, 2), verb, &selected), Ok(Decision::Unchanged));
        }
        assert_eq!(decide(&docker(3, 4), Verb::Initialise, &selected), Err(SelectionRefusal::Conflict));
        let Ok(Decision::Commit(commit)) = decide(&docker(3, 4), Verb::Change, &selected) else { panic!("a commit") };
        assert_eq!((commit.generation.get(), commit.specification.cpus()), (4, 4));
        assert_eq!(commit.audit.map(Audit::action), Some("change"));
    }

    /// D 13. D 19. Generation 0 is accepted for the first selection, on a loopback address too for Docker, and audits
    /// nothing.
    #[test]
    fn a_first_selection_commits_generation_one() {
        let deployment = Deployment { core_url: "http://127.0.0.1:8080".to_owned(), ..fresh() };
        let Ok(Decision::Commit(commit)) = decide(&docker(0, 2), Verb::Initialise, &deployment) else {
            panic!("a commit")
        };
        assert_eq!((commit.generation, commit.audit), (Generation::FIRST, None));
    }

    #[test]
    fn an_exhausted_generation_cannot_advance() {
        let last = Deployment { generation: i64::MAX as u64, ..deployment(None) };
        let decided = decide(&docker(i64::MAX as u64, 2), Verb::Initialise, &last);
        assert_eq!(decided, Err(SelectionRefusal::Conflict));
    }

    /// D 18. A validation failure carries its field and bounds.
    #[test]
    fn a_size_out_of_bounds_carries_its_bounds() {
        let fault = Fault::from(decide(&docker(0, 256), Verb::Initialise, &fresh()).unwrap_err());
        let expected =
            Fault::of(Code::InvalidSandboxConfiguration, "resources.cpus").detail("min", 1).detail("max", 255);
        assert_eq!(fault, expected);
        let absent = Selection::parse(&body("docker", 0, r#","resources":{"cpus":2}"#)).unwrap();
        let fault = Fault::from(decide(&absent, Verb::Initialise, &fresh()).unwrap_err());
        assert_eq!(fault.param, Some("resources.memory_mib"));
    }

    /// D 18. D 19. E2B: a release is reported, then template and key, then a loopback address; then this Core cannot
    /// prepare it.
    #[test]
    fn e2b_answers_its_documented_refusals() {
        let at = |url: &str| Deployment { core_url: url.to_owned(), ..deployment(None) };
        let public = at("https://core.example");
        let run = |selection: &Selection, deployment: &Deployment| {
            decide(selection, Verb::Initialise, deployment).map_err(Fault::from).map_err(|fault| fault.param)
        };
        assert_eq!(run(&e2b(&format!(r#","runtime":{RUNTIME}"#)), &public), Err(Some("runtime")));
        assert_eq!(run(&e2b(r#","resources":{"cpus":2}"#), &public), Err(Some("resources.memory_mib")));
        assert_eq!(run(&e2b(""), &public), Err(Some("configuration")));
        for url in ["http://127.0.0.1:8080", "http://[::1]", "http://localhost"] {
            assert_eq!(decide(&e2b(KEY), Verb::Initialise, &at(url)), Err(SelectionRefusal::Loopback), "{url}");
        }
        assert_eq!(decide(&e2b(KEY), Verb::Initialise, &public), Err(SelectionRefusal::Execution));
    }

    /// D 24. An omitted key, endpoint and resources are the stored ones; the same key submitted is a change.
    #[test]
    fn an_e2b_change_inherits_what_it_leaves_out() {
        let mut stored = deployment(Some(Provider::E2b));
        let selected = stored.selected.as_mut().unwrap();
        selected.credential_configured = true;
        selected.configuration = Configuration {
            template: Some(TEMPLATE.to_owned()),
            api_url: Some("https://api.sand.example".to_owned()),
            domain: Some("sand.example".to_owned()),
        };
        assert_eq!(decide(&e2b(""), Verb::Change, &stored), Ok(Decision::Unchanged));
        assert_eq!(decide(&e2b(KEY), Verb::Change, &stored), Err(SelectionRefusal::Execution));
        let forbidden = decide(&e2b(&format!(r#","runtime":{RUNTIME}"#)), Verb::Change, &stored);
        assert_eq!(forbidden, Err(SelectionRefusal::Specification(Refusal::Presence { required: false })));
    }
}
