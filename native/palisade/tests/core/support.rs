//! The executable as a child process, and a Core with an embedded database of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _, Executor as _};
use tempfile::TempDir;

/// A Core key.
pub(crate) const KEY: &str = "core-key-of-an-operator";

/// Longest wait for something that takes moments.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn palisade() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.env_clear();
    command
}

pub(crate) fn run<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Output {
    palisade().args(arguments).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[expect(clippy::disallowed_methods, reason = "a throw-away file of a test")]
pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// Asks until there is an answer, for a bounded time.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder with a database and a key file, and what runs on it.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("key"), KEY);
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn data(&self) -> String {
        self.text("data")
    }

    /// A `palisade core` command on this database.
    pub(crate) fn core(&self, arguments: &[&str]) -> Output {
        run(["core"].iter().chain(arguments).copied().chain(["--data", &self.data()]))
    }

    pub(crate) fn core_json(&self, arguments: &[&str]) -> Value {
        let output = self.core(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", err(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A Core with the key of the file.
    pub(crate) fn serve(&self) -> Core {
        self.serve_with(palisade().args(["core", "serve", "--admin-key-file"]).arg(self.path("key")))
    }

    /// Any Core on this database; its log is appended to `log`.
    pub(crate) fn serve_with(&self, command: &mut Command) -> Core {
        Core::start(command.args(["--data", &self.data()]), &self.path("log"))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Home {
    fn url(&self) -> String {
        format!("sqlite://{}?mode=rw", self.text("data/palisade.db"))
    }

    /// A session of a project that has no sandbox yet, behind Core's back.
    pub(crate) fn insert_session(&self, project: &str) -> String {
        insert_session(&self.url(), project)
    }

    /// Its sandbox runs on a node that is away, so that nothing gets rid of it.
    pub(crate) fn hold(&self, session: &str) {
        let environment = format!("(SELECT id FROM environments WHERE session_id = '{session}')");
        let installation = "(SELECT installation_id FROM runtime_deployment)";
        execute(
            &self.url(),
            &[
                format!(
                    "INSERT INTO runtime_nodes (id, installation_id, name, backend_fingerprint, credential_sha256, \
                     max_active, max_retained, specification_digest, deployment_generation, core_url, created_at) \
                     VALUES ('{NODE}', {installation}, 'away', 'f', 'c', 4, 4, 'd', 1, 'https://core.example', 1)"
                ),
                format!("INSERT INTO runtime_placements VALUES ({environment}, '{NODE}', 1, 1, NULL)"),
                format!(
                    "INSERT INTO runtime_allocations (id, environment_id, device_id, provider_key, node_id, \
                     deployment_generation, state, create_sent_at, create_settled, created_at, kept_at) \
                     VALUES ('{}', {environment}, '{}', {installation}, '{NODE}', 1, 'running', 1, 1, 1, 1)",
                    id(),
                    id()
                ),
                format!("UPDATE environments SET status = 'connected' WHERE session_id = '{session}'"),
            ],
        );
    }
}

const NODE: &str = "11f2d3c4-b5a6-4798-8899-aabbccddeeff";

fn id() -> String {
    palisade_core::units::Id::from_random(rand::random()).to_string()
}

pub(crate) fn insert_session(url: &str, project: &str) -> String {
    let (session, environment) = (id(), id());
    execute(
        url,
        &[
            format!(
                "INSERT INTO sessions (id, project_id, tenant_id, environment_type, created_at) \
                 SELECT '{session}', id, tenant_id, 'openai_hosted', 1 FROM projects WHERE id = '{project}'"
            ),
            format!(
                "INSERT INTO environments (id, session_id, status, created_at, changed_at) \
                 VALUES ('{environment}', '{session}', 'pending', 1, 1)"
            ),
        ],
    );
    session
}

/// Changes a database behind Core's back.
pub(crate) fn execute(url: &str, statements: &[String]) {
    block_on(async {
        let mut connection = connect(url).await;
        for statement in statements {
            let statement = sqlx::AssertSqlSafe(statement.clone());
            connection.execute(statement).await.unwrap_or_else(|error| panic!("{error}"));
        }
        connection.close().await.unwrap();
    });
}

/// Every value of a table, as text.
pub(crate) fn texts(url: &str, query: &'static str) -> Vec<String> {
    block_on(async { sqlx::query_scalar(query).fetch_all(&mut connect(url).await).await.unwrap() })
}

async fn connect(url: &str) -> AnyConnection {
    sqlx::any::install_default_drivers();
    AnyConnection::connect(url).await.unwrap_or_else(|error| panic!("a database must answer at {url}: {error}"))
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A running Core. It is killed when it is dropped.
pub(crate) struct Core {
    child: Child,
    pub(crate) origin: String,
    http: Client,
}

impl Core {
    /// Starts on a free port unless the command names one.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Self {
        if !command.get_args().any(|argument| argument == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let line = BufReader::new(child.stdout.as_mut().unwrap()).lines().next();
        let line = line.expect("core must start: its log has the reason").unwrap();
        let origin = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        let http = Client(origin.clone());
        Self { child, origin, http }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> &str {
        self.origin.strip_prefix("http://").unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("core must end", || child.try_wait().unwrap())
    }

    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        assert!(self.ended().success());
    }

    pub(crate) fn get(&self, path: &str, key: &str) -> Answer {
        self.http.send("GET", path, &bearer(key), None)
    }

    pub(crate) fn post(&self, path: &str, key: &str, body: &Value) -> Answer {
        self.http.send("POST", path, &bearer(key), Some(&body.to_string()))
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
        let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self.http.send(method, path, &headers.concat(), body)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What came, with everything that was in it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Plain HTTP by hand, so that every byte of an answer is seen.
pub(crate) struct Client(pub(crate) String);

impl Client {
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: Option<&str>) -> Answer {
        let mut stream = std::net::TcpStream::connect(self.0.strip_prefix("http://").unwrap()).unwrap();
        let body = body.unwrap_or_default();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: core\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        )
        .unwrap();
        let mut answer = Vec::new();
        // A server that refuses a body early resets the connection after its answer.
        let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }
}

pub(crate) fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

/// A first selection of Docker.
pub(crate) fn selection(expected_generation: u64) -> Value {
    json!({
        "expected_generation": expected_generation,
        "provider": "docker",
        "resources": {"cpus": 1, "memory_mib": 512},
        "runtime": {
            "source_commit": "a".repeat(40),
            "image_id": format!("sha256:{}", "b".repeat(64)),
            "image_manifest_digest": format!("sha256:{}", "c".repeat(64)),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", "d".repeat(64)),
            "runtime_sha256": "e".repeat(64),
            "firmware_sha256": "f".repeat(64),
        },
    })
}

/// The socket of a service manager.
pub(crate) struct Manager(UnixDatagram);

impl Manager {
    pub(crate) fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    /// The next message, as its lines.
    pub(crate) fn told(&self) -> Vec<String> {
        let mut message = [0; 4096];
        let length = self.0.recv(&mut message).expect("the service manager must be told something");
        String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned).collect()
    }
}
