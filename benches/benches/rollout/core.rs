//! A Core in a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use palisade_control::store::Location;
use palisade_control::{Options, Server};
use palisade_core::limits::HUB_BYTES_MAX;
use palisade_core::units::Digest;
use tokio_util::sync::CancellationToken;

/// Its one key.
pub(crate) const KEY: &str = "core-key-of-the-benchmark";

/// Serves releases from `payload` and says where it listens. Without a `url`, that is where nodes reach it.
pub(crate) async fn serve(payload: &Path, data: &Path, url: &str) -> anyhow::Result<()> {
    let options = Options {
        listen: "127.0.0.1:0".parse()?,
        store: Location::Directory(data.to_owned()),
        public_url: (!url.is_empty()).then(|| url.to_owned()),
        admin_key_file: None,
        admin_key_digests: Some(format!("[\"{}\"]", Digest::of(KEY.as_bytes()))),
        metrics_listen: None,
        body_budget_bytes: HUB_BYTES_MAX,
        node_payload: Some(payload.to_owned()),
        credential_key_file: None,
        credential_key: None,
    };
    let server = Server::start(options).await?;
    println!("http://{}", server.address());
    std::io::stdout().flush()?;
    Ok(server.run(CancellationToken::new()).await?)
}

/// A process that is killed at the end.
pub(crate) struct Process(Child);

impl Process {
    /// Starts this executable as something else; gives its first line, when it is to say one.
    pub(crate) fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        Ok(Self(Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()).spawn()?))
    }

    /// A Core, and where it listens.
    pub(crate) fn core(payload: &Path, data: &Path, url: &str) -> anyhow::Result<(Self, String)> {
        let path = |path: &Path| path.to_str().context("a path of letters").map(str::to_owned);
        let mut core = Self::start(&["as-core", &path(payload)?, &path(data)?, url])?;
        let mut lines = BufReader::new(core.0.stdout.take().context("standard output is a pipe")?).lines();
        let origin = lines.next().context("Core says where it listens")??;
        Ok((core, origin))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
