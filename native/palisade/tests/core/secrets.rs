//! Nothing secret is ever seen: a real Core is used with planted secrets at the highest log level, and everything that it
//! lets out is searched for them.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::{
    Client, Core, Home, bearer, err, execute, insert_session, out, palisade, run, selection, texts, write,
};

const FILE_KEY: &str = "planted-core-key-of-the-file";
const CREDENTIAL: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab1234";
const SEALING: &str = "5ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea15ea1";
const PASSWORD: &str = "planted-database-password";
const PROVIDER_KEY: &str = "planted-provider-api-key";
const ARGUMENT: &str = "planted-argument-of-a-command";
const INPUT: &str = "planted-standard-input";
/// [`INPUT`] as a client sends it.
const INPUT_BASE64: &str = "cGxhbnRlZC1zdGFuZGFyZC1pbnB1dA==";
const WRONG_KEY: &str = "planted-key-that-is-none";

/// What was let out, by where.
struct Seen(Vec<(String, String)>);

impl Seen {
    fn note(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    fn program(&mut self, place: &str, output: &Output) {
        self.note(format!("{place}: standard output"), out(output));
        self.note(format!("{place}: standard error"), err(output));
    }

    /// No place shows any of the secrets.
    fn assert_free_of(&self, secrets: &[&str]) {
        assert!(self.0.len() > 10 && self.0.iter().all(|(place, _)| !place.is_empty()));
        for (place, text) in &self.0 {
            for secret in secrets {
                assert!(!text.contains(secret), "{place} shows {secret}: {text}");
            }
        }
    }
}

/// Whom a test asks, and with what.
struct Stage<'s> {
    core: &'s Core,
    metrics: Client,
    seen: Seen,
    /// Where the database is, for a driver.
    database: String,
}

impl Stage<'_> {
    fn ask(&mut self, method: &str, path: &str, key: &str, body: &Value) {
        let answer =
            self.core.send(method, path, &[("authorization", &format!("Bearer {key}"))], Some(&body.to_string()));
        self.seen.note(format!("answer of {method} {path}"), format!("{}\r\n\r\n{}", answer.head, answer.body));
    }

    /// One of each thing that carries a secret; gives those that Core made itself.
    fn exercise(&mut self) -> Vec<String> {
        let deployment = "/core/v1/sandbox/deployment";
        self.ask("POST", deployment, FILE_KEY, &selection(0));
        self.ask("PUT", deployment, WRONG_KEY, &selection(1));
        let credential = json!({"expected_generation": 1, "provider": "e2b", "credential": {"api_key": PROVIDER_KEY}});
        self.ask("PUT", deployment, FILE_KEY, &credential);
        self.ask("PUT", deployment, FILE_KEY, &json!({PROVIDER_KEY: PROVIDER_KEY}));
        self.ask("POST", "/core/v1/sandbox/providers/e2b/discovery", FILE_KEY, &json!({"api_key": PROVIDER_KEY}));

        // These two answers hold a secret, once.
        let token = self.core.post("/core/v1/sandbox/enrollment-tokens", FILE_KEY, &json!({})).json();
        let token = token["token"].as_str().unwrap().to_owned();
        let project = self.core.post("/core/v1/projects", FILE_KEY, &json!({"name": "agents"})).json();
        let project = project["id"].as_str().unwrap().to_owned();
        let key = self.core.post(&format!("/core/v1/projects/{project}/keys"), FILE_KEY, &json!({"name": "ci"})).json();
        let key = key["key"].as_str().unwrap().to_owned();

        self.enroll(&token);
        self.work(&project, &key);
        vec![token, key]
    }

    fn enroll(&mut self, token: &str) {
        let view = self.core.get("/core/v1/sandbox/deployment", FILE_KEY).json();
        let node = "21f2d3c4-b5a6-4798-8899-aabbccddeeff";
        let enrollment = json!({
            "node_id": node, "credential": CREDENTIAL, "name": "one", "provider": "docker",
            "backend_fingerprint": "1".repeat(64), "deployment_generation": view["generation"],
            "specification_digest": view["specification_digest"], "core_url": view["core_url"],
        });
        let machine = "/api/v1/sandbox-node";
        self.ask("POST", &format!("{machine}/enroll"), token, &json!({"credential": CREDENTIAL}));
        self.ask("POST", &format!("{machine}/enroll"), token, &enrollment);
        let nodes = self.core.get("/core/v1/sandbox/nodes", FILE_KEY).json();
        assert_eq!(nodes["data"][0]["id"], node, "the node is enrolled: {nodes}");
        self.ask("POST", &format!("{machine}/enroll"), token, &enrollment);
        for credential in [CREDENTIAL, WRONG_KEY] {
            self.ask("GET", &format!("{machine}/identity?node_id={node}"), credential, &Value::Null);
            self.ask("GET", &format!("{machine}/connect?node_id={node}"), credential, &Value::Null);
        }
        self.ask("GET", &format!("/core/v1/sandbox/nodes/{node}"), FILE_KEY, &Value::Null);
    }

    fn work(&mut self, project: &str, key: &str) {
        let session = insert_session(&self.database, project);
        let sessions = "/v1/agents/sessions";
        let command = json!({"args": ["echo", ARGUMENT], "stdin": INPUT_BASE64});
        let message = json!({"type": "message", "command": command, "timeout_ms": 1000}).to_string();
        let authorization = format!("Bearer {key}");
        let headers = [("authorization", authorization.as_str()), ("openai-beta", "agents=v1")];
        let events = format!("{sessions}/{session}/events");
        for (method, path, body) in [
            ("POST", sessions, json!({"environment": {"type": ARGUMENT}}).to_string()),
            ("POST", sessions, json!({"environment": {"type": "openai_hosted"}}).to_string()),
            ("POST", &events, message.clone()),
            ("POST", &events, message.replace("\"timeout_ms\"", "\"timeout\"")),
            ("GET", &format!("{sessions}/{session}/turns"), String::new()),
            ("GET", sessions, String::new()),
        ] {
            let answer = self.core.send(method, path, &headers, Some(&body));
            if path == events && body == message {
                assert_eq!(answer.status, 201, "the command is accepted: {answer:?}");
            }
            self.seen.note(format!("answer of {method} {path}"), format!("{}\r\n\r\n{}", answer.head, answer.body));
        }
    }

    /// What a running Core shows to whoever looks at it from outside.
    fn look(&mut self) {
        self.seen.note("metrics", self.metrics.send("GET", "/metrics", "", None).body);
        self.seen.program("status", &run(["core", "status", "--core-url", &self.core.origin]));
        let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", self.core.pid())).unwrap();
        assert!(arguments.contains("serve"));
        self.seen.note("arguments of the process", arguments);
        let audit = texts(
            &self.database,
            "SELECT admin_credential_id || actor_label || action || resource_type || resource_id || result_ids || \
             request_id || trace_id FROM admin_audit_log",
        );
        self.seen.note("audit log", audit.join("\n"));
    }
}

fn serve(home: &Home, store: (&str, &str), format: &str) -> (Core, Client) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut command = palisade();
    command.args(["core", "serve", "--log-format", format, "--metrics-listen", &port]);
    command.env(store.0, store.1).env("PALISADE_LOG", "trace").env("OAC_CORE_KEY_FILE", home.path("planted"));
    command.env("OAC_CORE_CREDENTIAL_KEY", SEALING);
    (Core::start(&mut command, &home.path("log")), Client(format!("http://{port}")))
}

/// Both kinds of logs, answers, audit rows, metrics, and what the commands print.
fn nothing_is_shown(home: &Home, store: (&str, &str), database: &str) {
    write(&home.path("planted"), FILE_KEY);
    let with_store = |arguments: &[&str]| {
        let mut command = palisade();
        command.args(arguments).env(store.0, store.1).env("OAC_CORE_KEY_FILE", home.path("planted"));
        command.env("OAC_CORE_CREDENTIAL_KEY", SEALING).env("PALISADE_LOG", "trace").output().unwrap()
    };
    let mut secrets: Vec<String> =
        [FILE_KEY, CREDENTIAL, SEALING, PASSWORD, PROVIDER_KEY, ARGUMENT, INPUT, INPUT_BASE64, WRONG_KEY]
            .map(str::to_owned)
            .into();
    let mut seen = Seen(Vec::new());
    seen.program("migrate", &with_store(&["core", "migrate"]));
    seen.program("keys add", &with_store(&["core", "keys", "add", "--name", "n", "--out", &home.text("stored")]));
    let stored = std::fs::read_to_string(home.path("stored")).unwrap().trim().to_owned();

    let (core, metrics) = serve(home, store, "json");
    let mut stage = Stage { core: &core, metrics, seen, database: database.to_owned() };
    secrets.extend(stage.exercise());
    stage.ask("GET", "/core/v1/sandbox/deployment", &stored, &Value::Null);
    stage.look();
    let Stage { mut seen, .. } = stage;
    for arguments in [
        &["core", "config"][..],
        &["core", "config", "--json"],
        &["core", "doctor", "--listen", core.address()],
        &["core", "doctor", "--json"],
        &["core", "keys", "list", "--json"],
        &["core", "serve", "--listen", core.address()],
        &["core", "backup", &home.text("copy")],
    ] {
        seen.program(&arguments.join(" "), &with_store(arguments));
    }
    core.stop();
    let (core, _) = serve(home, store, "text");
    Client(core.origin.clone()).send("GET", "/core/v1/sandbox/nodes", &bearer(&stored), None);
    core.stop();

    assert!(home.log().contains("answered") && home.log().len() > 2000, "the log has everything: {}", home.log());
    seen.note("log", home.log());
    secrets.push(stored);
    seen.assert_free_of(&secrets.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn a_core_with_an_embedded_database_shows_no_secret() {
    let home = Home::new();
    let database = format!("sqlite://{}?mode=rw", home.text("data/palisade.db"));
    nothing_is_shown(&home, ("OAC_CORE_DATA", &home.data()), &database);
    // What Core keeps holds commands, and no key, token or credential.
    let stored = std::fs::read(home.path("data/palisade.db")).unwrap();
    let holds = |secret: &str| stored.windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
    assert!(holds(ARGUMENT), "the search finds what is there");
    for secret in [FILE_KEY, CREDENTIAL, SEALING, PROVIDER_KEY] {
        assert!(!holds(secret), "{secret} is stored");
    }
}

#[test]
fn a_core_with_postgresql_shows_no_secret() {
    let server = std::env::var("PALISADE_TEST_DATABASE_URL")
        .unwrap_or_else(|_| "postgres://palisade:palisade@localhost:5432/postgres".to_owned());
    let role = format!("palisade_test_{:032x}", rand::random::<u128>());
    execute(
        &server,
        &[
            format!("CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'"),
            format!("CREATE SCHEMA {role} AUTHORIZATION {role}"),
        ],
    );
    let (_, place) = server.split_once('@').expect("the url of the test database names a user");
    let database = format!("postgres://{role}:{PASSWORD}@{place}?options[search_path]={role}");
    let home = Home::new();
    let shown = std::panic::catch_unwind(|| nothing_is_shown(&home, ("OAC_DATABASE_URL", &database), &database));
    // A wrong password is refused without being repeated.
    let wrong = palisade()
        .args(["core", "serve", "--admin-key-file"])
        .arg(home.path("key"))
        .env("OAC_DATABASE_URL", database.replace(PASSWORD, "planted-wrong-password"))
        .output()
        .unwrap();
    execute(
        &server,
        &[
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"),
            format!("DROP SCHEMA {role} CASCADE"),
            format!("DROP ROLE {role}"),
        ],
    );
    shown.unwrap_or_else(|reason| std::panic::resume_unwind(reason));
    assert_eq!(wrong.status.code(), Some(1));
    assert!(err(&wrong).contains("cannot open the database") && !err(&wrong).contains("planted-wrong-password"));
}
