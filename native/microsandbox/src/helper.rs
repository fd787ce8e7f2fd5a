//! Helper processes: one for each operation, which nobody kills (node-host §2.4, §2.5, §8.2).

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use command_fds::{CommandFdExt as _, FdMapping};
use palisade_core::limits::HELPER_RESPONSE_MAX_BYTES;
use palisade_core::microsandbox::helper::{
    Ended, INHERITED, LEASE_DESCRIPTOR, LEASE_VARIABLE, Operation, Response, environment, judge,
};
use palisade_core::microsandbox::native::Native;
use palisade_core::outcome::Failure;
use palisade_core::wire::IntoOwned as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::limits::OUTPUT_TAIL;

/// Opens the lease of the generation that the helpers work for, with every check that it needs.
pub trait Leases: Send + Sync + 'static {
    /// The lease, locked shared and close-on-exec. The lock belongs to the open file, and ends with its last descriptor.
    ///
    /// # Errors
    /// Anything that is not exactly as it must be; no helper is started then.
    fn shared(&self) -> Result<File, LeaseUnavailable>;
}

/// The one answer when a helper must not be started; what was wrong is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease of the generation is unavailable")]
pub struct LeaseUnavailable;

/// A helper process. It is never killed: it ends when it is done, and gives the generation back by ending.
#[derive(Debug)]
pub struct Helper {
    /// Its standard input, when piped.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, when piped.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, when piped.
    pub stderr: Option<ChildStderr>,
    /// Ends with the process, and only then gives the lock back. To drop this ends the waiting of the caller alone.
    pub exited: JoinHandle<io::Result<ExitStatus>>,
}

impl Helper {
    /// Starts a helper with a copy of the lease as descriptor 3, which no other child of this process gets.
    ///
    /// # Errors
    /// A program that cannot be started; the lock is given back.
    pub fn start(mut command: Command, lease: File) -> io::Result<Self> {
        let mappings = vec![FdMapping { parent_fd: lease.try_clone()?.into(), child_fd: LEASE_DESCRIPTOR }];
        command.env(LEASE_VARIABLE, LEASE_DESCRIPTOR.to_string());
        command.fd_mappings(mappings).map_err(io::Error::other)?;
        Self::of(command, Some(lease))
    }

    fn of(mut command: Command, lease: Option<File>) -> io::Result<Self> {
        let mut child = command.spawn()?;
        // With it goes the copy that was passed on.
        drop(command);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let exited = tokio::spawn(async move {
            let exited = child.wait().await;
            drop(lease);
            exited
        });
        Ok(Self { stdin, stdout, stderr, exited })
    }
}

/// Starts the helpers of one generation.
pub struct Helpers {
    program: PathBuf,
    environment: Vec<(OsString, OsString)>,
    /// `None` where there are no generations.
    leases: Option<Arc<dyn Leases>>,
    /// Everybody who works has a copy.
    working: Arc<()>,
}

impl Helpers {
    /// Of `has`, the environment of the node, they get what they may have and nothing else.
    #[must_use]
    pub fn new(
        native: &Native,
        leases: Option<Arc<dyn Leases>>,
        has: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let allowed = |name: &OsString| name.to_str().is_some_and(|name| INHERITED.contains(&name));
        let inherited = has.into_iter().filter(|(name, _)| allowed(name));
        let own = environment(native).map(|(name, value)| (name.into(), value.into()));
        let environment = inherited.chain(own).collect();
        Self { program: PathBuf::from(&native.helper_path), environment, leases, working: Arc::new(()) }
    }

    /// How many helpers have not ended, as far as this process started them.
    #[must_use]
    pub fn working(&self) -> usize {
        Arc::strong_count(&self.working) - 1
    }

    /// Starts a helper, gives it the request, and waits until it has ended, however long that is. Whoever waits less long
    /// drops this: the helper goes on, and keeps its lease until it ends.
    ///
    /// # Errors
    /// The unknown outcome of the operation whenever there is no whole answer, also when no helper could be started.
    pub async fn ask(&self, operation: Operation, request: Vec<u8>) -> Result<Response<'static>, Failure> {
        let helper = self.start().map_err(|cause| {
            tracing::warn!(?operation, %cause, "no helper was started");
            operation.unknown()
        })?;
        let working = Arc::clone(&self.working);
        let work = tokio::spawn(async move {
            let answer = talk(helper, request).await;
            drop(working);
            answer
        });
        let Ok(answer) = work.await else { return Err(operation.unknown()) };
        let answer = answer.ok_or_else(|| operation.unknown())?;
        judge(operation, answer.ended, &answer.output).map(Response::into_owned)
    }

    fn start(&self) -> Result<Helper, NotStarted> {
        let mut command = Command::new(&self.program);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(Path::new("/")).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match &self.leases {
            Some(leases) => Ok(Helper::start(command, leases.shared()?)?),
            None => Ok(Helper::of(command, None)?),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum NotStarted {
    #[error(transparent)]
    Lease(#[from] LeaseUnavailable),
    #[error("the helper cannot be started: {0}")]
    System(#[from] io::Error),
}

/// What a helper said, and how it ended.
struct Said {
    ended: Ended,
    output: Vec<u8>,
}

/// Writes, reads and drains at once, until the helper has ended. What it says after the bound is read and forgotten, so
/// that it is never held up by us.
async fn talk(helper: Helper, request: Vec<u8>) -> Option<Said> {
    let Helper { stdin, stdout, stderr, exited } = helper;
    let input = tokio::spawn(async move {
        if let Some(mut stdin) = stdin {
            // A helper that ended before it read everything is judged by what it said.
            let _ = stdin.write_all(&request).await;
        }
    });
    let errors = tokio::spawn(drain(stderr));
    let mut output = tokio::spawn(bounded(stdout));
    let exited = exited.await;
    // Whatever a helper said is in the pipe by now. A child of its own that holds the pipe open could still say more.
    let output = tokio::time::timeout(OUTPUT_TAIL, &mut output).await;
    input.abort();
    // A child that the helper left behind may still write there, and is not to be ended by that.
    drop(errors);
    let ended = match exited {
        Ok(Ok(status)) if status.success() => Ended::Normally,
        Ok(Ok(_) | Err(_)) | Err(_) => Ended::Otherwise,
    };
    Some(Said { ended, output: output.ok()?.ok()?.ok()? })
}

/// Reads one byte more than an answer may have, and drains the rest.
async fn bounded(output: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let Some(mut output) = output else { return Ok(Vec::new()) };
    let mut bytes = Vec::new();
    (&mut output).take(HELPER_RESPONSE_MAX_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
    drain(Some(output)).await?;
    Ok(bytes)
}

async fn drain(output: Option<impl AsyncRead + Unpin>) -> io::Result<u64> {
    match output {
        Some(mut output) => tokio::io::copy(&mut output, &mut tokio::io::sink()).await,
        None => Ok(0),
    }
}
