//! Registration against a scripted Core on loopback, with real files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use palisade_core::units::{Digest, Generation};
use palisade_provider::testing::FaultProvider;
use serde_json::{Value, json};

use super::*;
use crate::identity::Stored;
use crate::testing::{
    Core, DIGEST, Host, INSTALLATION, Received, Reply, TOKEN, approval, files_below, fingerprint, node_id, ready,
    refusal,
};

async fn register(host: &Host, core: &Core) -> Result<Identity, RegisterError> {
    register_with(host.options(&core.url), |_| Ok(ready())).await
}

/// Knows no node; enrolls with capacity 2 and 8.
fn enrolls(request: &Received) -> Reply {
    if request.line.starts_with("POST") {
        let node_id = request.json()["node_id"].as_str().unwrap().to_owned();
        return Reply::Answer(201, approval(&node_id, 2, 8).to_string());
    }
    Reply::Answer(401, refusal("invalid_node_credential"))
}

/// W 139. The body names the stored node, its credential and Core's address. W 207. It carries the measurements.
#[tokio::test]
async fn a_node_asks_for_its_identity_first_and_enrolls_with_its_token_then() {
    let (host, core) = (Host::new(), Core::start(enrolls).await);
    let identity = register(&host, &core).await.unwrap();
    let stored: Value = serde_json::from_slice(&host.identity()).unwrap();
    let node = stored["identity"]["node_id"].as_str().unwrap();
    let [asked, enrolled] = &core.received()[..] else { panic!("two requests") };
    assert_eq!(asked.line, format!("GET /api/v1/sandbox-node/identity?node_id={node}"));
    assert_eq!(asked.authorization, format!("Bearer {}", stored["credential"].as_str().unwrap()));
    assert_eq!(
        (enrolled.line.as_str(), enrolled.authorization.as_str()),
        ("POST /api/v1/sandbox-node/enroll", format!("Bearer {TOKEN}").as_str())
    );
    let mut body = enrolled.json();
    for (measurement, smallest) in [("cpu_count", 1.0), ("total_memory_bytes", 1.0), ("available_disk_bytes", 0.0)] {
        let value = body.as_object_mut().unwrap().remove(measurement).and_then(|value| value.as_f64());
        assert!(value.unwrap() >= smallest, "{measurement}");
    }
    // A host whose control groups cannot be read leaves this one out; it is never null.
    if let Some(cores) = body.as_object_mut().unwrap().remove("effective_cpu_cores") {
        assert!(cores.as_f64().unwrap() > 0.0);
    }
    assert_eq!(
        body,
        json!({
            "node_id": node, "credential": stored["credential"], "name": "worker-1", "provider": "docker",
            "backend_fingerprint": fingerprint(), "deployment_generation": 3, "specification_digest": DIGEST,
            "core_url": core.url,
        })
    );
    assert_eq!(serde_json::to_value(&identity).unwrap(), stored["identity"]);
    assert_eq!((identity.max_active, identity.max_retained), (2, 8));
}

/// W 207. What is not measured is left out.
#[test]
fn an_unknown_measurement_is_left_out() {
    let mut measured = Sampler::new(Path::new("/")).sample();
    (measured.cpu_count, measured.effective_cpu_cores) = (None, None);
    (measured.total_memory_bytes, measured.available_disk_bytes) = (None, None);
    let host = Host::new();
    let state = State::create(&host.path("state")).unwrap();
    let core_url = Origin::parse("https://core.example").unwrap();
    let stored = state.adopt_or_create(&crate::testing::parsed(), fingerprint(), &core_url, false).unwrap();
    let body = serde_json::to_value(crate::enrollment::request(&stored, "worker-1", &measured)).unwrap();
    assert_eq!(body.as_object().unwrap().len(), 8);
}

/// W 138. The answer to the enrollment is lost; the rerun recovers with the stored credential and spends no token.
/// W 141. So does every further rerun, though the token is consumed.
#[tokio::test]
async fn a_lost_answer_is_recovered_with_the_stored_credential() {
    let host = Host::new();
    let enrollments = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&enrollments);
    let core = Core::start(move |request| {
        if request.line.starts_with("POST") {
            seen.fetch_add(1, Ordering::SeqCst);
            return Reply::Lost;
        }
        match seen.load(Ordering::SeqCst) {
            0 => Reply::Answer(401, refusal("invalid_node_credential")),
            _ => Reply::Answer(200, approval(&node_id(request), 3, 9).to_string()),
        }
    })
    .await;
    let error = register(&host, &core).await.unwrap_err();
    assert!(matches!(error, RegisterError::Enrollment(EnrollmentError::Unconfirmed(_))), "{error}");
    assert_eq!(error.exit_code(), 1);
    let before: Value = serde_json::from_slice(&host.identity()).unwrap();
    for _ in 0..2 {
        let identity = register(&host, &core).await.unwrap();
        assert_eq!((identity.max_active, identity.max_retained), (3, 9));
    }
    let after: Value = serde_json::from_slice(&host.identity()).unwrap();
    assert_eq!(after["credential"], before["credential"]);
    assert_eq!(after["identity"]["node_id"], before["identity"]["node_id"]);
    assert_eq!(enrollments.load(Ordering::SeqCst), 1);
}

/// W 148. 401 from Core itself is permanent; 403 is not; 409 names status and code.
/// W 153. Exit 78 for 401 alone. E9: the page of a proxy is never taken for Core's word.
#[tokio::test]
async fn only_cores_own_401_is_permanent() {
    let page = "<html>authentication required</html>".to_owned();
    for (status, body, exit_code, says) in [
        (401, refusal("invalid_node_credential"), 78, "status 401, code invalid_node_credential"),
        (401, page.clone(), 1, "something between us answered with status 401 Unauthorized from server \"core\""),
        (401, json!({"error": "no"}).to_string(), 1, "something between us"),
        (403, refusal("invalid_node_credential"), 1, "status 403, code invalid_node_credential"),
        (403, page.clone(), 1, "something between us answered with status 403"),
        (502, page.clone(), 1, "something between us answered with status 502"),
        (409, refusal("sandbox_node_address_mismatch"), 1, "status 409, code sandbox_node_address_mismatch"),
        (409, refusal("Not-A-Code\nat all"), 1, "core refused with status 409"),
        (503, refusal("runtime_node_unavailable"), 1, "status 503, code runtime_node_unavailable"),
        (307, String::new(), 1, "something between us answered with status 307"),
    ] {
        let (host, core) = (Host::new(), Core::start(move |_| Reply::Answer(status, body.clone())).await);
        let error = register(&host, &core).await.unwrap_err();
        assert_eq!(error.exit_code(), exit_code, "{error}");
        let text = error.to_string();
        assert!(text.contains(says) && !text.contains("html") && !text.contains('\n'), "{text}");
        assert!(!text.contains(TOKEN));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (host, elsewhere) = (Host::new(), Core::start(enrolls).await);
    let target: &'static str = format!("location: {}/api/v1/sandbox-node/enroll", elsewhere.url).leak();
    let core = Core::start(move |_| Reply::With(307, target, String::new())).await;
    register(&host, &core).await.unwrap_err();
    assert_eq!(elsewhere.lines(), Vec::<String>::new());
}

/// W 153. A Core that is not there is no reason to stop for good.
#[tokio::test]
async fn an_unreachable_core_is_retryable() {
    let host = Host::new();
    let closed = closed_port().await;
    let error = register_with(host.options(&closed), |_| Ok(ready())).await.unwrap_err();
    assert!(matches!(error, RegisterError::Enrollment(EnrollmentError::Unconfirmed(_))), "{error}");
    assert_eq!(error.exit_code(), 1);
}

/// Runs one of the tests above in a process of its own, because the environment belongs to the whole process.
#[test]
fn a_proxy_is_not_asked_for_a_core_on_this_host() {
    let name = "register::tests::a_node_asks_for_its_identity_first_and_enrolls_with_its_token_then";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name]).env("http_proxy", "http://127.0.0.1:9").env_remove("no_proxy").env_remove("NO_PROXY");
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

async fn closed_port() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// W 150. An approval for another identity, out of bounds or malformed changes nothing on disk.
#[tokio::test]
async fn a_foreign_or_malformed_approval_changes_nothing() {
    let changes: [(&str, Value); 12] = [
        ("installation_id", json!("11111111-1111-4111-8111-111111111111")),
        ("node_id", json!("11111111-1111-4111-8111-111111111111")),
        ("provider", json!("microsandbox")),
        ("deployment_generation", json!(4)),
        ("specification_digest", json!("0".repeat(64))),
        ("max_active", json!(0)),
        ("max_active", json!(9)),
        ("max_retained", json!(1_000_001)),
        ("max_active", Value::Null),
        ("max_active", json!("2")),
        ("connected", Value::Null),
        ("other", json!(1)),
    ];
    for (name, value) in changes {
        let host = Host::new();
        let case = format!("{name} {value}");
        let core = Core::start(move |request| {
            let Reply::Answer(201, body) = enrolls(request) else { return Reply::Answer(503, String::new()) };
            let mut approval: Value = serde_json::from_str(&body).unwrap();
            approval[name] = value.clone();
            Reply::Answer(201, approval.to_string())
        })
        .await;
        register(&host, &core).await.unwrap_err();
        let stored: Value = serde_json::from_slice(&host.identity()).unwrap();
        assert_eq!((&stored["identity"]["max_active"], &stored["owner_epoch"]), (&json!(0), &json!(0)), "{case}");
    }
}

#[tokio::test]
async fn an_answer_above_16384_bytes_is_refused() {
    let host = Host::new();
    let core = Core::start(|request| match enrolls(request) {
        Reply::Answer(201, body) => Reply::Answer(201, format!("{body}{}", " ".repeat(16_384))),
        other => other,
    })
    .await;
    let error = register(&host, &core).await.unwrap_err();
    assert!(matches!(error, RegisterError::Enrollment(EnrollmentError::Malformed(_))), "{error}");
}

/// W 151. Readiness and presence in Core's answer are accepted, present or absent.
/// W 149. The refresh uses the stored credential and stores a new capacity, and nothing else.
#[tokio::test]
async fn a_refresh_stores_the_approved_capacity() {
    let (host, core) = (Host::new(), Core::start(enrolls).await);
    register(&host, &core).await.unwrap();
    let state = State::open(&host.path("state")).unwrap();
    let before = state.registered().unwrap();
    let core = Core::start(|request| {
        let mut approval = approval(&node_id(request), 4, 5);
        (approval["connected"], approval["provider_ready"]) = (json!(true), json!(false));
        Reply::Answer(200, approval.to_string())
    })
    .await;
    let mut stored = Stored { core_url: Origin::parse(&core.url).unwrap(), ..before.clone() };
    Enrollment::new(&stored.core_url).unwrap().refresh(&state, &mut stored).await.unwrap();
    assert_eq!((stored.identity.max_active, stored.identity.max_retained), (4, 5));
    assert_eq!(stored.credential, before.credential);
    assert_eq!(state.registered().unwrap(), stored);
    assert_eq!(core.received()[0].authorization, format!("Bearer {}", before.credential.as_str()));
}

#[tokio::test]
async fn a_provider_that_is_not_ready_names_its_class_and_enrolls_nothing() {
    let (host, core) = (Host::new(), Core::start(enrolls).await);
    let provider = FaultProvider::new(Generation::FIRST);
    provider.set_not_ready(Some(Diagnostic::DockerLimitsUnsupported));
    let backend = Backend { provider: Arc::new(provider), fingerprint: fingerprint() };
    let error = register_with(host.options(&core.url), |_| Ok(backend)).await.unwrap_err();
    assert!(error.to_string().contains("docker_limits_unsupported"), "{error}");
    assert_eq!((error.exit_code(), core.lines()), (1, Vec::new()));
    assert_eq!(files_below(&host.path("state")), ["identity.json", "identity.lock"]);
}

/// W 143. Plain http to another host makes and sends nothing. W 144. The stored opt-in decides every later run.
/// W 145. Without it the member is absent. W 147. Enrollment goes by the stored policy, not by the flag.
#[tokio::test]
async fn the_opt_in_is_stored_once() {
    let host = Host::new();
    let options = |flag| Register { allow_insecure_origin: flag, ..host.options("http://core.invalid") };
    let run = |flag| register_with(options(flag), |_| Ok(ready()));
    let error = run(false).await.unwrap_err();
    assert!(matches!(error, RegisterError::State(IdentityError::Insecure(_))), "{error}");
    assert!(!host.path("state").exists());
    for flag in [true, false] {
        let error = run(flag).await.unwrap_err();
        assert!(matches!(error, RegisterError::Enrollment(_)), "{error}");
        let stored: Value = serde_json::from_slice(&host.identity()).unwrap();
        assert_eq!(stored["allow_insecure_origin"], json!(true));
    }

    let (host, core) = (Host::new(), Core::start(enrolls).await);
    register(&host, &core).await.unwrap();
    let options = Register { allow_insecure_origin: true, ..host.options(&core.url) };
    register_with(options, |_| Ok(ready())).await.unwrap();
    let stored: Value = serde_json::from_slice(&host.identity()).unwrap();
    assert_eq!(stored.get("allow_insecure_origin"), None);
}

/// W 152, H 251. A corrupt identity, and one of another backend or Core, is refused and stays byte for byte.
#[tokio::test]
async fn a_corrupt_or_foreign_identity_is_never_replaced() {
    let (host, core) = (Host::new(), Core::start(enrolls).await);
    register(&host, &core).await.unwrap();
    let (kept, asked) = (host.identity(), core.lines().len());
    let other_backend = || Backend { fingerprint: Digest::of(b"another backend"), ..ready() };
    let error = register_with(host.options(&core.url), |_| Ok(other_backend())).await.unwrap_err();
    assert!(matches!(error, RegisterError::State(IdentityError::Foreign("backend"))), "{error}");
    let error = register_with(host.options("https://other.example"), |_| Ok(ready())).await.unwrap_err();
    assert!(matches!(error, RegisterError::State(IdentityError::Foreign("Core address"))), "{error}");
    let mut other = crate::testing::configuration();
    for (name, value) in [("generation", json!(4)), ("installation_id", json!("11111111-1111-4111-8111-111111111111"))]
    {
        other[name] = value;
        crate::testing::write(host.path("provider.json"), other.to_string());
        let error = register(&host, &core).await.unwrap_err();
        assert!(matches!(error, RegisterError::State(IdentityError::Foreign(_))), "{error}");
    }
    crate::testing::write(host.path("provider.json"), crate::testing::configuration().to_string());
    assert_eq!(host.identity(), kept);
    for damaged in [&kept[..kept.len() / 2], b"", b"{}", b"null"] {
        crate::testing::write(host.path("state/identity.json"), damaged);
        let error = register(&host, &core).await.unwrap_err();
        assert!(matches!(error, RegisterError::State(IdentityError::Damaged { .. })), "{error}");
        assert_eq!((host.identity(), error.exit_code()), (damaged.to_vec(), 1));
    }
    assert_eq!(core.lines().len(), asked, "nothing was asked or sent");
}

/// W 42. While a node holds the lock, nobody else opens its state.
#[tokio::test]
async fn a_state_directory_in_use_is_refused() {
    let (host, core) = (Host::new(), Core::start(enrolls).await);
    let running = State::create(&host.path("state")).unwrap();
    let error = register(&host, &core).await.unwrap_err();
    assert!(error.to_string().contains("already in use"), "{error}");
    drop(running);
    register(&host, &core).await.unwrap();
}

/// W 153. Whatever is refused before the network has made and sent nothing.
#[tokio::test]
async fn a_refused_option_makes_and_sends_nothing() {
    type Change = fn(&Host, &mut Register);
    let core = Core::start(enrolls).await;
    let changes: [(&str, Change); 21] = [
        ("no origin", |_, options| options.core_url.push_str("/core")),
        ("another scheme", |_, options| options.core_url = "ftp://core.example".to_owned()),
        ("credentials", |_, options| options.core_url = "https://user:secret@core.example".to_owned()),
        ("plain http", |_, options| options.core_url = "http://core.example".to_owned()),
        ("blank name", |_, options| options.name = " \t".to_owned()),
        ("long name", |_, options| options.name = "n".repeat(129)),
        ("two lines", |_, options| options.name = "a\nb".to_owned()),
        ("relative state", |_, options| options.state_dir = PathBuf::from("state")),
        ("unclean state", |host, options| options.state_dir = host.path("x/../state")),
        ("state without parent", |host, options| options.state_dir = host.path("no/state")),
        ("relative config", |_, options| options.config = PathBuf::from("provider.json")),
        ("no config", |host, options| options.config = host.path("missing.json")),
        ("wrong config", |host, _| crate::testing::write(host.path("provider.json"), "{}")),
        ("linked config", |host, options| {
            symlink(host.path("provider.json"), host.path("link.json")).unwrap();
            options.config = host.path("link.json");
        }),
        ("relative token", |_, options| options.enrollment_token_file = PathBuf::from("token")),
        ("no token file", |host, options| options.enrollment_token_file = host.path("missing")),
        ("readable token", |host, _| {
            std::fs::set_permissions(host.path("token"), PermissionsExt::from_mode(0o640)).unwrap();
        }),
        ("linked token", |host, options| {
            symlink(host.path("token"), host.path("link")).unwrap();
            options.enrollment_token_file = host.path("link");
        }),
        ("empty token", |host, _| host.write_private("token", b" \n")),
        ("long token", |host, _| host.write_private("token", &[b'a'; 4097])),
        ("two tokens", |host, _| host.write_private("token", b"one two")),
    ];
    for (case, change) in changes {
        let host = Host::new();
        let mut options = host.options(&core.url);
        change(&host, &mut options);
        let error = register_with(options, |_| Ok(ready())).await.expect_err(case);
        assert_eq!(error.exit_code(), 1, "{case}");
        let text = error.to_string();
        assert!(!text.contains(TOKEN) && !text.contains("secret"), "{case}: {text}");
        assert!(!host.path("state").exists() && !host.path("no").exists(), "{case}");
    }
    assert_eq!(core.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_token_of_4096_bytes_with_white_space_around_it_is_read() {
    let (host, core) = (Host::new(), Core::start(enrolls).await);
    host.write_private("token", format!("\n {}\n", "t".repeat(4096)).as_bytes());
    register(&host, &core).await.unwrap();
    assert_eq!(core.received()[1].authorization.len(), "Bearer ".len() + 4096);
}

#[tokio::test]
async fn the_answer_is_one_object_of_the_eight_identity_members() {
    let (host, core) = (Host::new(), Core::start(enrolls).await);
    let printed = serde_json::to_value(register(&host, &core).await.unwrap()).unwrap();
    let mut members: Vec<_> = printed.as_object().unwrap().keys().map(String::as_str).collect();
    members.sort_unstable();
    assert_eq!(
        members,
        [
            "backend_fingerprint",
            "deployment_generation",
            "installation_id",
            "max_active",
            "max_retained",
            "node_id",
            "provider",
            "specification_digest"
        ]
    );
    assert_eq!(printed["installation_id"], INSTALLATION);
}
