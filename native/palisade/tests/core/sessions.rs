//! `palisade sessions run` against a Core that loses answers, and the operators' commands against a real one.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{Home, KEY, err, out, palisade, run, selection, write};

const SESSION: &str = "94be54a1-138c-4f30-bc87-b13686272dbe";
const TURN: &str = "31f2d3c4-b5a6-4798-8899-aabbccddeeff";

/// A request as the scripted Core saw it.
#[derive(Debug, Clone)]
struct Seen {
    line: String,
    key: String,
    body: String,
}

/// What the scripted Core does with a request: answers, or closes the connection without a word.
type Script = dyn Fn(&Seen, usize) -> Option<(u16, Value)> + Send + Sync;

/// A Core that behaves as a test says; the second argument of the script counts the requests of the same line.
struct Scripted {
    origin: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Scripted {
    fn start(script: impl Fn(&Seen, usize) -> Option<(u16, Value)> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (seen, script): (Arc<Mutex<Vec<Seen>>>, Arc<Script>) = (Arc::default(), Arc::new(script));
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), &all, script.as_ref());
            }
        });
        Self { origin, seen }
    }

    fn run(&self, home: &Home, arguments: &[&str], input: &str) -> Output {
        write(&home.path("project-key"), "pk_of_a_project");
        let mut child = palisade()
            .args(["sessions", "run", "--core-url", &self.origin, "--project-key-file"])
            .arg(home.path("project-key"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that does not want it ends without reading.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    fn lines(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|seen| seen.line.clone()).collect()
    }
}

fn serve(mut stream: TcpStream, all: &Mutex<Vec<Seen>>, script: &Script) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        let value =
            head.iter().filter_map(|line| line.split_once(": ")).find(|(key, _)| key.eq_ignore_ascii_case(name));
        value.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    let line = head[0].trim_end_matches(" HTTP/1.1").replace(SESSION, "S").replace(TURN, "T");
    let seen = Seen { line, key: header("idempotency-key"), body: String::from_utf8(body).unwrap() };
    let mut all = all.lock().unwrap();
    let before = all.iter().filter(|other| other.line == seen.line).count();
    all.push(seen.clone());
    drop(all);
    if let Some((status, body)) = script(&seen, before) {
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        // The client may have gone.
        let _ = stream.write_all((head + &body).as_bytes());
    }
}

fn session() -> Value {
    json!({
        "id": SESSION, "object": "agent.session", "status": "idle", "created_at": "2026-01-01T00:00:00Z",
        "environment": {"id": TURN, "type": "openai_hosted", "status": "pending"},
    })
}

fn turn(status: &str, more: &Value) -> Value {
    let mut turn = json!({
        "id": TURN, "object": "agent.turn", "session_id": SESSION, "status": status,
        "created_at": "2026-01-01T00:00:00Z", "started_at": null, "completed_at": null, "timeout_ms": 1000,
    });
    turn.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    turn
}

/// A Core that runs the command to this end.
fn ending(status: &'static str, more: &Value) -> Scripted {
    let more = more.clone();
    Scripted::start(move |seen, before| match seen.line.split_once(' ').unwrap() {
        ("POST", "/v1/agents/sessions") => Some((201, session())),
        ("POST", _) => Some((201, turn("queued", &json!({})))),
        ("GET", _) if before == 0 => Some((200, turn("in_progress", &json!({"started_at": "2026-01-01T00:00:01Z"})))),
        ("GET", _) => Some((200, turn(status, &more))),
        _ => Some((202, json!({"id": SESSION, "deleted": true}))),
    })
}

/// Standard input, output and exit code are those of the command; the session is archived, unless it is to be kept.
#[test]
fn a_command_runs_in_a_session_of_its_own() {
    let home = Home::new();
    let end = json!({"exit_code": 3, "stdout": "to stdout", "stderr": "to stderr\n"});
    let core = ending("completed", &end);
    let ran = core.run(&home, &["--stdin", "--timeout-ms", "1000", "--", "sh", "-c", "exit 3"], "input");
    assert_eq!((ran.status.code(), out(&ran).as_str(), err(&ran).as_str()), (Some(3), "to stdout", "to stderr\n"));
    let expected = ["POST /v1/agents/sessions", "POST /v1/agents/sessions/S/events"];
    let look = "GET /v1/agents/sessions/S/turns/T";
    assert_eq!(core.lines(), [&expected[..], &[look, look, "DELETE /v1/agents/sessions/S"]].concat());
    let message: Value = serde_json::from_str(&core.seen.lock().unwrap()[1].body).unwrap();
    let command = json!({"args": ["sh", "-c", "exit 3"], "stdin": "aW5wdXQ="});
    assert_eq!(message, json!({"type": "message", "command": command, "timeout_ms": 1000}));

    let kept = ending("completed", &json!({"exit_code": 0, "stdout": "", "stderr": ""}));
    let ran = kept.run(&home, &["--keep", "--json", "true"], "");
    assert!(ran.status.success() && err(&ran).contains(&format!("session {SESSION} is kept")), "{}", err(&ran));
    let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&told["outcome"], &told["turn"]["exit_code"]), (&json!("completed"), &json!(0)));
    assert!(!kept.lines().iter().any(|line| line.starts_with("DELETE")));
}

/// Nobody is told that a command failed when nobody knows, nor that it may have run when it certainly did not.
#[test]
fn an_unknown_outcome_has_an_exit_code_of_its_own() {
    let home = Home::new();
    for (code, expected, told) in [
        ("command_unconfirmed", 124, "nobody knows"),
        ("unconfirmed", 124, "nobody knows"),
        ("node_unavailable", 125, "did not run"),
    ] {
        let core = ending("failed", &json!({"error": {"code": code}}));
        let ran = core.run(&home, &["true"], "");
        assert_eq!(ran.status.code(), Some(expected), "{}", err(&ran));
        assert!(err(&ran).contains(told) && err(&ran).contains(code), "{}", err(&ran));
    }
    let refusing = Scripted::start(|_, _| {
        let error = json!({"message": "no node is available now", "type": "server_error", "code": "runtime_node_unavailable", "param": null});
        Some((503, json!({ "error": error })))
    });
    let ran = refusing.run(&home, &["true"], "");
    assert_eq!((ran.status.code(), refusing.lines().len()), (Some(125), 1));
    assert!(err(&ran).contains("no session was made: no node is available now"), "{}", err(&ran));
}

/// An answer that was lost is asked for again under the same key, so that nothing runs twice.
#[test]
fn a_lost_answer_is_asked_for_again_under_the_same_key() {
    let home = Home::new();
    let core = Scripted::start(|seen, before| match seen.line.split_once(' ').unwrap() {
        _ if before == 0 => None,
        ("POST", "/v1/agents/sessions") => Some((200, session())),
        ("POST", _) => Some((200, turn("queued", &json!({})))),
        ("GET", _) => Some((200, turn("completed", &json!({"exit_code": 0, "stdout": "once", "stderr": ""})))),
        _ => Some((202, json!({}))),
    });
    let ran = core.run(&home, &["true"], "");
    assert_eq!((ran.status.code(), out(&ran).as_str()), (Some(0), "once"), "{}", err(&ran));
    let seen = core.seen.lock().unwrap();
    for line in ["POST /v1/agents/sessions", "POST /v1/agents/sessions/S/events"] {
        let keys: Vec<_> = seen.iter().filter(|seen| seen.line == line).map(|seen| seen.key.as_str()).collect();
        assert!(keys.len() == 2 && keys[0] == keys[1] && !keys[0].is_empty(), "{line}: {keys:?}");
    }
}

/// Operators list sessions of all projects, and end one by its id alone.
#[test]
fn sessions_are_listed_and_archived() {
    let home = Home::new();
    let core = home.serve();
    assert_eq!(core.post("/core/v1/sandbox/deployment", KEY, &selection(0)).status, 200);
    let project = core.post("/core/v1/projects", KEY, &json!({"name": "agents"})).json();
    let project = project["id"].as_str().unwrap().to_owned();
    let session = home.insert_session(&project);
    let operator = |arguments: &[&str]| {
        run(arguments.iter().copied().chain(["--core-url", &core.origin, "--admin-key-file", &home.text("key")]))
    };
    let listed = operator(&["sessions", "list"]);
    assert!(out(&listed).starts_with("SESSION") && out(&listed).contains(&session), "{}", err(&listed));
    assert!(out(&listed).contains("pending") && out(&listed).contains(&project));
    let json: Value = serde_json::from_slice(&operator(&["sessions", "list", "--json"]).stdout).unwrap();
    assert_eq!(json["data"][0]["session"]["id"], session.as_str());
    let archived = operator(&["sessions", "archive", "--wait", &session]);
    assert!(out(&archived).contains("nothing is held any more"), "{} {}", out(&archived), err(&archived));
    let unknown = operator(&["sessions", "archive", TURN]);
    assert!(!unknown.status.success() && err(&unknown).contains("--project"), "{}", err(&unknown));
    core.stop();
}
