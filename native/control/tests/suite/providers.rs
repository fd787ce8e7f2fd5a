//! A provider that runs sandboxes itself: what is stored of it, and who is asked (deployment §1.2, §3.1, §7.5).
//!
//! Nobody asks E2B yet; a double stands in its place, and everything else is real.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::http::{Method, StatusCode};
use palisade_control::hub::Hub;
use palisade_control::{Confirm, Confirmation, Core, CoreKeys, Execution, SealKey};
use palisade_core::admin::deployment::{BuildResources, Configuration, TemplateBuild};
use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::selection::{Candidate, Commit, Doubt, Verb};
use palisade_core::deployment::specification::Specification;
use palisade_core::units::Generation;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, KEY, PUBLIC_URL, admin, code};

const PATH: &str = "/core/v1/sandbox/deployment";
const TEMPLATE: &str = "base:94be54a1-138c-4f30-bc87-b13686272dbe";

/// Answers in E2B's place, as often as it may.
pub(crate) struct Double {
    answers: Mutex<VecDeque<Result<TemplateBuild, Doubt>>>,
    asked: Mutex<Vec<String>>,
    /// One for each answer that may be given now.
    turns: Semaphore,
}

impl Double {
    pub(crate) fn answering(answers: impl IntoIterator<Item = Result<TemplateBuild, Doubt>>) -> Arc<Self> {
        let answers: VecDeque<_> = answers.into_iter().collect();
        let turns = Semaphore::new(answers.len());
        Arc::new(Self { answers: Mutex::new(answers), asked: Mutex::default(), turns })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Confirm for Double {
    async fn confirm(&self, verb: Verb, candidate: &Candidate) -> Result<TemplateBuild, Doubt> {
        let key = candidate.key.as_ref().unwrap().expose();
        self.asked.lock().unwrap().push(format!("{verb:?} {key}"));
        self.turns.acquire().await.unwrap().forget();
        self.answers.lock().unwrap().pop_front().expect("an answer")
    }
}

pub(crate) fn ready() -> TemplateBuild {
    let resources = BuildResources { cpus: Some(2), memory_mib: Some(512), root_disk_mib: Some(10_240) };
    TemplateBuild { status: Some("ready".to_owned()), resources }
}

pub(crate) fn seal_key(digits: &str) -> SealKey {
    SealKey::parse(&digits.repeat(32)).unwrap()
}

/// A Core on the fixture's store that asks `double` and seals with `seal`.
pub(crate) fn with_provider(fixture: &Fixture, public_url: &str, double: Arc<Double>, seal: Option<SealKey>) -> Core {
    Core::with_providers(
        fixture.core.store().clone(),
        CoreKeys::read(Some(KEY), None).unwrap(),
        public_url.to_owned(),
        Execution::fixed(Some(fixture.lease)),
        Hub::default(),
        seal,
        Confirmation::through(double),
    )
}

/// A selection of E2B with more members.
pub(crate) fn e2b(expected_generation: u64, more: &Value) -> String {
    let mut body = json!({
        "expected_generation": expected_generation, "provider": "e2b", "configuration": {"template": TEMPLATE},
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string()
}

fn with_key(key: &str) -> Value {
    json!({"credential": {"api_key": key}})
}

async fn sealed(fixture: &Fixture) -> Vec<u8> {
    fixture.core.store().read().await.unwrap().sealed_credential().await.unwrap().unwrap()
}

fn generation(value: u64) -> Generation {
    Generation::new(value).unwrap()
}

/// D 25. D 26. D 9. A key is sealed for the generation that it is stored with and opens for no other; a kept one is sealed
/// anew for the next; the audit log tells a replaced key from a change, and a custom endpoint persists and is shown.
#[rstest]
#[tokio::test]
async fn a_key_is_sealed_for_its_generation(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let double = Double::answering([Ok(ready()), Ok(ready()), Ok(ready())]);
    let seal = seal_key("0a");
    let core = with_provider(&fixture, PUBLIC_URL, double.clone(), Some(seal.clone()));
    let opens = |sealed: &[u8], at| {
        seal.open(sealed, fixture.lease.installation, generation(at)).ok().map(|key| key.expose().to_owned())
    };

    let (status, first) = admin(&core, Method::POST, PATH, &e2b(0, &with_key("planted-1"))).await;
    assert_eq!((status, &first["generation"]), (StatusCode::OK, &json!(1)), "{first}");
    let official = json!({"template": TEMPLATE, "api_url": "https://api.e2b.app", "domain": "e2b.app"});
    assert_eq!((&first["configuration"], &first["credential_configured"]), (&official, &json!(true)));
    assert_eq!(first["specification"], json!({"resources": {"cpus": 2, "memory_mib": 512}}));
    let build = json!({"status": "ready", "resources": {"cpus": 2, "memory_mib": 512, "root_disk_mib": 10_240}});
    assert_eq!(first["metadata"], json!({ "template_build": build }));
    let stored = sealed(&fixture).await;
    assert_eq!(opens(&stored, 1).as_deref(), Some("planted-1"));

    let (status, second) = admin(&core, Method::PUT, PATH, &e2b(1, &with_key("planted-2"))).await;
    assert_eq!((status, &second["generation"]), (StatusCode::OK, &json!(2)), "{second}");
    let stored = sealed(&fixture).await;
    assert_eq!((opens(&stored, 2).as_deref(), opens(&stored, 1)), (Some("planted-2"), None));

    let elsewhere = json!({"template": TEMPLATE, "api_url": "https://api.sand.example", "domain": "sand.example"});
    let moved = e2b(2, &json!({ "configuration": elsewhere }));
    let (status, third) = admin(&core, Method::PUT, PATH, &moved).await;
    assert_eq!((status, &third["configuration"]), (StatusCode::OK, &elsewhere), "{third}");
    let stored = sealed(&fixture).await;
    assert_eq!((opens(&stored, 3).as_deref(), opens(&stored, 2)), (Some("planted-2"), None));
    let (_, kept) = admin(&core, Method::PUT, PATH, &e2b(3, &json!({}))).await;
    assert_eq!(kept, third, "an omitted key, endpoint and sizes are the stored ones");

    let audited = |action: &str| {
        let query: &'static str = match action {
            "change" => "SELECT COUNT(*) FROM admin_audit_log WHERE action = 'change'",
            _ => "SELECT COUNT(*) FROM admin_audit_log WHERE action = 'replace_credential'",
        };
        fixture.count(query)
    };
    assert_eq!((audited("change").await, audited("replace_credential").await), (1, 1));
    assert_eq!(double.asked(), ["Initialise planted-1", "Change planted-2", "Change planted-2"]);
    assert!(!format!("{first}{second}{third}").contains("planted"));
}

/// D 28. D 23. A candidate that is not confirmed changes nothing, whatever the reason; a stale one asks nobody.
#[rstest]
#[tokio::test]
async fn a_rejected_candidate_changes_nothing(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let doubts = [
        (Doubt::Unauthorized, 400, "sandbox_credential_invalid"),
        (Doubt::NotOwned, 409, "sandbox_credential_ownership"),
        (Doubt::Invalid, 400, "sandbox_configuration_invalid"),
        (Doubt::Unanchored, 409, "sandbox_reset_required"),
        (Doubt::Unconfirmed, 503, "sandbox_verification_unconfirmed"),
    ];
    let answers = [Ok(ready())].into_iter().chain(doubts.iter().map(|(doubt, ..)| Err(*doubt)));
    let double = Double::answering(answers);
    let core = with_provider(&fixture, PUBLIC_URL, double.clone(), Some(seal_key("0a")));
    let (status, _) = admin(&core, Method::POST, PATH, &e2b(0, &with_key("one"))).await;
    assert_eq!(status, StatusCode::OK);
    let (before, stored) = (admin(&core, Method::GET, PATH, "").await, sealed(&fixture).await);
    for (_, status, expected) in doubts {
        let (answered, body) = admin(&core, Method::PUT, PATH, &e2b(1, &with_key("two"))).await;
        assert_eq!((answered.as_u16(), code(&body)), (status, expected));
        assert_eq!(
            (admin(&core, Method::GET, PATH, "").await, sealed(&fixture).await),
            (before.clone(), stored.clone())
        );
    }
    let asked = double.asked().len();
    let (status, body) = admin(&core, Method::PUT, PATH, &e2b(9, &with_key("two"))).await;
    assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_generation_stale"));
    assert_eq!(double.asked().len(), asked, "a stale request reaches nobody");
    assert_eq!(fixture.count("SELECT COUNT(*) FROM admin_audit_log").await, 0);
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_deployment_generations").await, 0);
}

/// D 29. D 30. While a candidate is being confirmed nothing is held: reads and writes go on, and what they committed
/// decides. A committed selection is what the next Core on the store finds.
#[rstest]
#[tokio::test]
async fn a_confirmation_holds_nothing_up(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let double = Double::answering([Ok(ready()), Ok(ready())]);
    double.turns.forget_permits(1);
    let core = with_provider(&fixture, PUBLIC_URL, double.clone(), Some(seal_key("0a")));
    let (status, _) = admin(&core, Method::POST, PATH, &e2b(0, &with_key("one"))).await;
    assert_eq!(status, StatusCode::OK);
    let changing = tokio::spawn({
        let core = core.clone();
        async move { admin(&core, Method::PUT, PATH, &e2b(1, &with_key("two"))).await }
    });
    while double.asked().len() < 2 {
        tokio::task::yield_now().await;
    }
    let reset = r#"{"expected_generation":1,"clear":"force"}"#;
    let (status, _) = admin(&core, Method::POST, &format!("{PATH}/reset"), reset).await;
    assert_eq!(status, StatusCode::OK);
    double.turns.add_permits(1);
    let (status, body) = changing.await.unwrap();
    assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_reset_in_progress"));
    let next = with_provider(&fixture, PUBLIC_URL, Double::answering([]), None);
    let (_, found) = admin(&next, Method::GET, PATH, "").await;
    assert_eq!((&found["generation"], &found["credential_configured"]), (&json!(1), &json!(true)));
}

/// Without the key that credentials are sealed with nothing is stored; a stored one is then shown as configured, and is
/// opened by nobody (deployment §12.21).
#[rstest]
#[tokio::test]
async fn a_missing_seal_key_is_told(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let unsealed = with_provider(&fixture, PUBLIC_URL, Double::answering([Ok(ready())]), None);
    let refused = (StatusCode::SERVICE_UNAVAILABLE, "credential_storage_unavailable");
    let (status, body) = admin(&unsealed, Method::POST, PATH, &e2b(0, &with_key("one"))).await;
    assert_eq!((status, code(&body)), refused);
    assert_eq!(fixture.count("SELECT generation FROM runtime_deployment").await, 0);
    let sealing = with_provider(&fixture, PUBLIC_URL, Double::answering([Ok(ready())]), Some(seal_key("0a")));
    let (status, _) = admin(&sealing, Method::POST, PATH, &e2b(0, &with_key("one"))).await;
    assert_eq!(status, StatusCode::OK);
    for seal in [None, Some(seal_key("0b"))] {
        let double = Double::answering([]);
        let core = with_provider(&fixture, PUBLIC_URL, double.clone(), seal);
        for more in [json!({}), with_key("two")] {
            let (status, body) = admin(&core, Method::PUT, PATH, &e2b(1, &more)).await;
            assert_eq!((status, code(&body)), refused);
        }
        assert_eq!(double.asked().len(), 0);
        let (status, view) = admin(&core, Method::GET, PATH, "").await;
        assert_eq!((status, &view["credential_configured"]), (StatusCode::OK, &json!(true)));
    }
}

/// A repeated first selection asks again and records the answer, without a new generation or an audit entry.
#[rstest]
#[tokio::test]
async fn a_repeated_first_selection_is_refreshed(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let resources = BuildResources { root_disk_mib: None, ..ready().resources };
    let double = Double::answering([Ok(ready()), Ok(TemplateBuild { resources, ..ready() })]);
    let core = with_provider(&fixture, PUBLIC_URL, double, Some(seal_key("0a")));
    admin(&core, Method::POST, PATH, &e2b(0, &with_key("one"))).await;
    let (status, again) = admin(&core, Method::POST, PATH, &e2b(1, &with_key("one"))).await;
    assert_eq!((status, &again["generation"]), (StatusCode::OK, &json!(1)), "{again}");
    assert_eq!(again["metadata"]["template_build"]["resources"]["root_disk_mib"], Value::Null);
    assert_eq!(fixture.count("SELECT COUNT(*) FROM admin_audit_log").await, 0);
}

/// D 11. The configuration of an additional provider passes through storage and view, and into what is retained of it,
/// although Core knows none of its members.
#[rstest]
#[tokio::test]
async fn an_unknown_configuration_passes_through(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let configuration = Configuration::from([("region", "north"), ("zone", "a")]);
    let resources = br#"{"resources":{"cpus":1,"memory_mib":512}}"#;
    let commit = Commit {
        generation: Generation::FIRST,
        specification: Specification::parse(Provider::E2b, resources).unwrap(),
        configuration: configuration.clone(),
        metadata: palisade_core::admin::deployment::Metadata::default(),
        key: None,
        audit: None,
    };
    let mut tx = fixture.core.store().write().await.unwrap();
    tx.select(&commit, fixture.lease.installation, None).await.unwrap();
    tx.commit().await.unwrap();
    let (status, view) = fixture.admin(Method::GET, PATH, "").await;
    assert_eq!((status, &view["configuration"]), (StatusCode::OK, &json!({"region": "north", "zone": "a"})));
    let deployment = fixture.core.store().read().await.unwrap().deployment().await.unwrap();
    assert_eq!(deployment.selected.unwrap().configuration, configuration);
}
