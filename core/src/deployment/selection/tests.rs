use rstest::rstest;

use super::super::tests::{RUNTIME, deployment, id, resetting};
use super::*;
use crate::admin::deployment::BuildResources;
use crate::admin::error::{Code, Fault};

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
    selection.decide(verb, deployment, Known::new(id(1)))
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
        for deployment in [deployment(Some(Provider::Docker)), resetting(Provider::Microsandbox), deployment(None)] {
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
    let dead = docker(2, 2).decide(Verb::Change, &selected, Known { owner_alive: false, ..Known::new(id(1)) });
    assert_eq!(dead, Err(SelectionRefusal::Execution));
    let foreign = docker(3, 2).decide(Verb::Change, &resetting(Provider::Docker), Known::new(id(2)));
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
    let Ok(Decision::Commit(commit)) = decide(&docker(0, 2), Verb::Initialise, &deployment) else { panic!("a commit") };
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
    let expected = Fault::of(Code::InvalidSandboxConfiguration, "resources.cpus").detail("min", 1).detail("max", 255);
    assert_eq!(fault, expected);
    let absent = Selection::parse(&body("docker", 0, r#","resources":{"cpus":2}"#)).unwrap();
    let fault = Fault::from(decide(&absent, Verb::Initialise, &fresh()).unwrap_err());
    assert_eq!(fault.param, Some("resources.memory_mib"));
}

/// D 18. D 19. E2B: a release is reported, then template and key, then a loopback address; then the provider is asked.
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
    let Ok(Decision::Confirm(candidate)) = decide(&e2b(KEY), Verb::Initialise, &public) else { panic!("a question") };
    assert_eq!(candidate.key.as_ref().map(ApiKey::expose), Some("key"));
    assert_eq!((candidate.specification, candidate.configuration), (None, official()));
}

fn official() -> Configuration {
    [("template", TEMPLATE), ("api_url", "https://api.e2b.app"), ("domain", "e2b.app")].into()
}

/// A deployment on E2B with this configuration and a stored key.
fn stored(configuration: Configuration) -> Deployment {
    let mut stored = deployment(Some(Provider::E2b));
    let selected = stored.selected.as_mut().unwrap();
    (selected.credential_configured, selected.configuration) = (true, configuration);
    stored
}

fn elsewhere() -> Configuration {
    [("template", TEMPLATE), ("api_url", "https://api.sand.example"), ("domain", "sand.example")].into()
}

fn ready(cpus: u64, memory_mib: u64) -> TemplateBuild {
    let resources = BuildResources { cpus: Some(cpus), memory_mib: Some(memory_mib), root_disk_mib: None };
    TemplateBuild { status: Some("ready".to_owned()), resources }
}

/// What an owner knows who opened the stored key `key`.
fn opened<'a>(key: &'a ApiKey, confirmed: Option<&'a TemplateBuild>) -> Known<'a> {
    Known { stored_key: Some(key), confirmed, ..Known::new(id(1)) }
}

fn key(text: &str) -> ApiKey {
    ApiKey::new(text.to_owned())
}

/// D 24. An omitted key, endpoint and resources are the stored ones; the same key submitted is a change; a release is not
/// erased by inheritance; stale precedes all of it.
#[test]
fn an_e2b_change_inherits_what_it_leaves_out() {
    let (stored, key) = (stored(elsewhere()), key("key"));
    let change = |selection: &Selection| selection.decide(Verb::Change, &stored, opened(&key, None));
    assert_eq!(change(&e2b("")), Ok(Decision::Unchanged));
    let Ok(Decision::Confirm(candidate)) = change(&e2b(KEY)) else { panic!("a question") };
    assert_eq!((&candidate.configuration, &candidate.key), (&elsewhere(), &Some(key.clone())));
    let forbidden = change(&e2b(&format!(r#","runtime":{RUNTIME}"#)));
    assert_eq!(forbidden, Err(SelectionRefusal::Specification(Refusal::Presence { required: false })));
    let late = Deployment { generation: 9, ..stored.clone() };
    let stale = e2b("").decide(Verb::Change, &late, opened(&key, None));
    assert_eq!(stale, Err(SelectionRefusal::Stale { current: 9 }));
}

/// D 24. The stored key is opened before a change is judged, and before a repeated first selection is compared.
#[test]
fn the_stored_key_is_opened_first() {
    let stored = stored(official());
    for (verb, rest) in [(Verb::Change, ""), (Verb::Change, KEY), (Verb::Initialise, KEY)] {
        assert_eq!(decide(&e2b(rest), verb, &stored), Ok(Decision::Open), "{verb:?} {rest}");
    }
    assert_eq!(decide(&e2b(""), Verb::Initialise, &stored), Err(SelectionRefusal::Configuration));
    let other = decide(&docker(3, 2), Verb::Change, &stored);
    assert!(matches!(other, Err(SelectionRefusal::Backend { .. })), "{other:?}");
}

/// D 25. D 26. A confirmed change seals the key for the next generation, kept or submitted, and audits which; it records
/// the build, and may lead to another endpoint.
#[test]
fn a_confirmed_change_commits_key_and_build() {
    let (stored, old) = (stored(official()), key("old"));
    let build = ready(2, 4096);
    let commit = |selection: &Selection| match selection.decide(Verb::Change, &stored, opened(&old, Some(&build))) {
        Ok(Decision::Commit(commit)) => *commit,
        other => panic!("expected a commit, got {other:?}"),
    };
    let replaced = commit(&e2b(KEY));
    assert_eq!(replaced.key, Some(key("key")));
    assert_eq!(replaced.audit.map(Audit::action), Some("replace_credential"));
    assert_eq!((replaced.generation.get(), replaced.metadata.template_build), (4, Some(build.clone())));
    let moved = format!(
        r#","configuration":{{"template":"{TEMPLATE}","api_url":"https://api.sand.example","domain":"sand.example"}}"#
    );
    let moved = commit(&Selection::parse(&body("e2b", 3, &moved)).unwrap());
    assert_eq!((moved.key, moved.configuration), (Some(old.clone()), elsewhere()));
    assert_eq!(moved.audit.map(Audit::action), Some("change"));
}

/// D 5. Another template without sizes takes those of its build; given and inherited sizes must be the build's.
#[test]
fn sizes_are_those_of_the_confirmed_build() {
    let (stored, old) = (stored(official()), key("old"));
    let other = TEMPLATE.replace("base", "other");
    let another = Selection::parse(&body("e2b", 3, &format!(r#","configuration":{{"template":"{other}"}}"#))).unwrap();
    let judge = |selection: &Selection, build: &TemplateBuild| {
        selection.decide(Verb::Change, &stored, opened(&old, Some(build))).map(|decision| match decision {
            Decision::Commit(commit) => (commit.specification.cpus(), commit.specification.memory_mib()),
            other => panic!("expected a commit, got {other:?}"),
        })
    };
    assert_eq!(judge(&another, &ready(8, 1024)), Ok((8, 1024)));
    assert_eq!(judge(&e2b(KEY), &ready(8, 1024)), Err(SelectionRefusal::Doubt(Doubt::Invalid)));
    let outside = judge(&another, &ready(256, 1024)).unwrap_err();
    assert_eq!(outside, SelectionRefusal::BuildSizes);
    assert_eq!(Fault::from(outside), Fault::of(Code::InvalidSandboxConfiguration, "resources"));
}

/// A repeated first selection asks the provider again and records what it says; another key or build is a conflict.
#[test]
fn a_repeated_first_selection_refreshes_what_was_recorded() {
    let (stored, same) = (stored(official()), key("key"));
    let judge = |known| e2b(KEY).decide(Verb::Initialise, &stored, known);
    assert!(matches!(judge(opened(&same, None)), Ok(Decision::Confirm(_))));
    let build = ready(2, 4096);
    let metadata = Metadata { template_build: Some(build.clone()) };
    assert_eq!(judge(opened(&same, Some(&build))), Ok(Decision::Refresh(metadata)));
    let (other, larger) = (key("other"), ready(4, 4096));
    assert_eq!(judge(opened(&other, Some(&build))), Err(SelectionRefusal::Conflict));
    assert_eq!(judge(opened(&same, Some(&larger))), Err(SelectionRefusal::Conflict));
}

/// Each doubt of a provider has its documented answer.
#[rstest]
#[case(Doubt::Unauthorized, "sandbox_credential_invalid", Some("credential"))]
#[case(Doubt::NotOwned, "sandbox_credential_ownership", Some("credential"))]
#[case(Doubt::Invalid, "sandbox_configuration_invalid", Some("configuration"))]
#[case(Doubt::Unanchored, "sandbox_reset_required", None)]
#[case(Doubt::Unconfirmed, "sandbox_verification_unconfirmed", None)]
#[case(Doubt::Unavailable, "execution_unavailable", None)]
fn a_doubt_has_its_answer(#[case] doubt: Doubt, #[case] code: &str, #[case] param: Option<&str>) {
    let fault = Fault::from(SelectionRefusal::from(doubt));
    assert_eq!((fault.code.code(), fault.param), (code, param));
}

/// D 24. An address is inherited as a whole: half of one is never completed with the stored other half.
#[rstest]
#[case("api_url", "https://api.e2b.app")]
#[case("domain", "e2b.app")]
fn half_an_address_is_refused_beside_a_stored_one(#[case] name: &str, #[case] value: &str) {
    let rest = format!(r#","configuration":{{"template":"{TEMPLATE}","{name}":"{value}"}}"#);
    let selection = Selection::parse(&body("e2b", 3, &rest)).unwrap();
    let decided = selection.decide(Verb::Change, &stored(official()), opened(&key("key"), None));
    assert_eq!(decided, Err(SelectionRefusal::Configuration));
}
