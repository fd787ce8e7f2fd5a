//! A Core that runs: what it says of itself, and how it ends.

use std::io::Write as _;
use std::net::TcpStream;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{Client, Home, KEY, Manager, err, out, palisade, run, selection, until};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";

fn status(origin: &str) -> std::process::Output {
    run(["core", "status", "--core-url", origin])
}

/// Without a key one learns a word and nothing else.
#[test]
fn a_running_core_says_that_it_is_ready() {
    let home = Home::new();
    let core = home.serve();
    let live = core.send("GET", "/healthz", &[], None);
    assert_eq!((live.status, live.json()), (200, json!({"status": "live"})));
    until("a core that owns execution is ready", || {
        (core.send("GET", "/readyz", &[], None).status == 200).then_some(())
    });
    let ready = core.send("GET", "/readyz", &[], None);
    assert_eq!((ready.json(), ready.header("cache-control")), (json!({"status": "ready"}), Some("no-store")));
    assert_eq!(core.send("POST", "/readyz", &[], None).status, 405);
    let told = status(&core.origin);
    assert!(told.status.success() && out(&told) == format!("{}: ready\n", core.origin), "{}", out(&told));
    let json = run(["core", "status", "--json", "--core-url", &core.origin]);
    assert_eq!(serde_json::from_slice::<Value>(&json.stdout).unwrap()["status"], "ready");
    let origin = core.origin.clone();
    core.stop();
    let nobody = status(&origin);
    assert_eq!(nobody.status.code(), Some(1));
    assert!(err(&nobody).contains(&format!("core did not answer at {origin}: ")), "{}", err(&nobody));
}

/// The name of a request stands in its answer and in its log lines; a name that a client made up does not.
#[test]
fn a_request_has_one_name_in_answer_and_log() {
    let home = Home::new();
    let mut command = palisade();
    command.args(["core", "serve", "--log-format", "json", "--admin-key-file"]).arg(home.path("key"));
    let core = home.serve_with(command.env("PALISADE_LOG", "debug"));
    let authorization = format!("Bearer {KEY}");
    let headers = [("authorization", authorization.as_str()), ("x-request-id", "made-up-by-the-client")];
    let answer = core.send("GET", DEPLOYMENT, &headers, None);
    let id = answer.header("x-request-id").unwrap().to_owned();
    let refused = core.get(DEPLOYMENT, "no-key-at-all");
    assert!(refused.status == 401 && refused.header("x-request-id").is_some());
    core.stop();
    let log = home.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let own: Vec<_> = lines.iter().filter(|line| line["span"]["request"] == id.as_str()).collect();
    assert!(own.iter().any(|line| line["message"] == "answered" && line["status"] == 200), "{log}");
    assert!(own.iter().all(|line| line["span"]["route"] == DEPLOYMENT && line["span"]["method"] == "GET"));
    assert!(!log.contains("made-up-by-the-client"));
}

/// Metrics have a listener of their own, and their labels are templates and classes.
#[test]
fn metrics_are_served_apart_and_their_labels_are_bounded() {
    let home = Home::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut command = palisade();
    command.args(["core", "serve", "--metrics-listen", &port, "--admin-key-file"]).arg(home.path("key"));
    let core = home.serve_with(&mut command);
    let id = "94be54a1-138c-4f30-bc87-b13686272dbe";
    assert_eq!(core.get(&format!("/core/v1/sandbox/nodes/{id}"), KEY).status, 404);
    assert_eq!(core.get("/some/made-up/path", KEY).status, 404);
    assert_eq!(core.send("BREW", DEPLOYMENT, &[("authorization", &format!("Bearer {KEY}"))], None).status, 405);
    assert_eq!(core.post(DEPLOYMENT, KEY, &selection(0)).status, 200);
    assert_eq!(core.get("/metrics", KEY).status, 404, "not on the public listener");
    let metrics = Client(format!("http://{port}")).send("GET", "/metrics", "", None);
    let text = &metrics.body;
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text"), "{}", metrics.head);
    for line in [
        "palisade_http_request_duration_seconds_count{operation=\"GET /core/v1/sandbox/nodes/{node}\",outcome=\"4xx\"} 1",
        "palisade_http_request_duration_seconds_count{operation=\"OTHER /core/v1/sandbox/deployment\",outcome=\"4xx\"} 1",
        "palisade_status{state=\"ready\"} 1",
        "palisade_deployment_generation 1",
        "palisade_reset_in_progress 0",
        "palisade_body_budget_bytes 536870912",
        "palisade_body_budget_free_bytes 536870912",
        "palisade_node_connections 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} must be in {text}");
    }
    for part in
        ["palisade_store_step_duration_seconds_count{operation=\"commit\"", "operation=\"GET none\",outcome=\"4xx\""]
    {
        assert!(text.contains(part), "{part} must be in {text}");
    }
    assert!(!text.contains(id) && !text.contains("made-up") && text.ends_with("# EOF\n"), "{text}");
    assert_eq!(Client(format!("http://{port}")).send("GET", "/readyz", "", None).status, 200);
    core.stop();
}

/// A service manager hears when Core listens, what it does, and that it stops.
#[test]
fn the_service_manager_is_told() {
    let home = Home::new();
    let manager = Manager::at(&home.path("notify"));
    let mut command = palisade();
    command.args(["core", "serve", "--admin-key-file"]).arg(home.path("key"));
    let mut core = home.serve_with(command.env("NOTIFY_SOCKET", home.path("notify")));
    let ready = manager.told();
    assert_eq!(ready, ["READY=1", "STATUS=ready: owns execution under epoch 1"]);
    core.signal(Signal::SIGTERM);
    assert!(manager.told().contains(&"STOPPING=1".to_owned()));
    assert!(core.ended().success());
}

/// The watchdog of a service manager hears that the tasks of Core run; the watchdog of another process hears nothing.
#[test]
fn the_watchdog_is_told() {
    let home = Home::new();
    let manager = Manager::at(&home.path("notify"));
    let serve = |variables: [(&str, &str); 2]| {
        let mut command = palisade();
        command.args(["core", "serve", "--admin-key-file"]).arg(home.path("key"));
        home.serve_with(command.env("NOTIFY_SOCKET", home.path("notify")).envs(variables))
    };
    let watched = serve([("WATCHDOG_USEC", "200000"), ("UNUSED", "")]);
    for _ in 0..3 {
        while manager.told() != ["WATCHDOG=1"] {}
    }
    watched.stop();
    while !manager.told().contains(&"STOPPING=1".to_owned()) {}
    let other = serve([("WATCHDOG_USEC", "200000"), ("WATCHDOG_PID", "1")]);
    assert!(manager.told().contains(&"READY=1".to_owned()), "nothing came before");
    other.stop();
    assert!(manager.told().contains(&"STOPPING=1".to_owned()), "nor in between");
}

/// A PUT whose body never ends.
fn open_candidate(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "PUT {DEPLOYMENT} HTTP/1.1\r\nhost: core\r\nauthorization: Bearer {KEY}\r\ncontent-length: 1000\r\n\r\n{{"
    )
    .unwrap();
    stream
}

/// D 29. A candidate that is still being read holds up neither a stop, which has a bound, nor an operator without
/// patience.
#[test]
fn a_candidate_under_way_does_not_hold_up_a_stop() {
    for signals in [1, 2] {
        let home = Home::new();
        let mut core = home.serve();
        let candidate = open_candidate(core.address());
        // It is under way once another request on a later connection is answered.
        assert_eq!(core.get(DEPLOYMENT, KEY).status, 200);
        for _ in 0..signals {
            core.signal(Signal::SIGTERM);
            let told = if signals == 2 { "stopping" } else { "" };
            until("the signal is seen", || home.log().contains(told).then_some(()));
        }
        assert!(core.ended().success(), "{}", home.log());
        assert!(home.log().contains("open requests were cut off"), "{}", home.log());
        drop(candidate);
    }
}

/// D 30. What was committed is there after a stop that followed at once, whether or not its caller heard of it.
#[test]
fn a_committed_change_survives_the_stop_that_follows() {
    for delay_ms in [0, 2, 5, 10, 20] {
        let home = Home::new();
        let mut core = home.serve();
        let http = Client(core.origin.clone());
        let asking = std::thread::spawn(move || {
            http.send("POST", DEPLOYMENT, &crate::support::bearer(KEY), Some(&selection(0).to_string())).status
        });
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        core.signal(Signal::SIGTERM);
        assert!(core.ended().success());
        let heard = asking.join().unwrap_or(0);
        let core = home.serve();
        let generation = core.get(DEPLOYMENT, KEY).json()["generation"].as_u64().unwrap();
        assert!(generation <= 1 && (heard != 200 || generation == 1), "{heard} {generation}");
        core.stop();
    }
}
