//! Core as a process.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;

use crate::home::Home;

/// The Core key of every test.
pub(crate) const KEY: &str = "core-key-of-the-owner-tests";

/// A running Core; it is killed when the test ends.
pub(crate) struct Core {
    child: Child,
    origin: String,
    http: Client,
}

impl Core {
    /// Starts a Core on the store of `home`, on a free port or that of `origin`, and waits until it listens.
    pub(crate) async fn start(home: &Home, name: &str, origin: Option<&str>, environment: &[(&str, &str)]) -> Self {
        let listen = origin.and_then(|origin| origin.strip_prefix("http://")).unwrap_or("127.0.0.1:0").to_owned();
        let mut child = command(home, name, &listen, environment).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let first = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(out).read_line(&mut line).map(|_| line)
        });
        let line = first.await.unwrap().unwrap();
        let Some((_, origin)) = line.trim().rsplit_once(" on ") else {
            panic!("core did not start: {}", log(home, name));
        };
        Self { child, origin: origin.to_owned(), http: Client::new() }
    }

    /// Starts a Core that is expected to end by itself.
    pub(crate) fn ends(home: &Home, name: &str) -> ExitStatus {
        command(home, name, "127.0.0.1:0", &[]).status().unwrap()
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Asks with the Core key.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        self.ask(method, path, KEY, body).await.unwrap()
    }

    /// Asks with a bearer. An error is a Core that does not answer.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        bearer: &str,
        body: Value,
    ) -> reqwest::Result<(StatusCode, Value)> {
        let request = self.http.request(method, format!("{}{path}", self.origin)).bearer_auth(bearer);
        let request = request.header("OpenAI-Beta", "agents=v1");
        let request = if body.is_null() { request } else { request.json(&body) };
        let response = request.send().await?;
        let (status, bytes) = (response.status(), response.bytes().await?);
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) {
        while !self.has_ended() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(home: &Home, name: &str, listen: &str, environment: &[(&str, &str)]) -> Command {
    let keys = home.folder().join("keys");
    if let Ok(mut file) = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&keys) {
        file.write_all(KEY.as_bytes()).unwrap();
    }
    let log = home.folder().join(format!("{name}.log"));
    let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.args(["core", "serve", "--listen", listen, "--admin-key-file", keys.to_str().unwrap()]).env_clear();
    match home.database_url(name) {
        Some(url) => command.env("OAC_DATABASE_URL", url),
        None => command.args(["--data", home.data().to_str().unwrap()]),
    };
    command.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    command
}

/// What a Core wrote to its log.
pub(crate) fn log(home: &Home, name: &str) -> String {
    std::fs::read_to_string(home.folder().join(format!("{name}.log"))).unwrap_or_default()
}
