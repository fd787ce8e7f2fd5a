//! Process 1 of a sandbox (decision 25, node-host §10).
//!
//! It checks its bootstrap file, collects the children that the sandbox's programs leave behind, and stays until it
//! is asked to stop. It never deletes a file, reads no other one, starts no program, and never shows what the file
//! holds.

#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use palisade_core::limits::SANDBOX_IO_MAX_BYTES;
use palisade_core::sandbox_io::{Refusal, SandboxIo};

fn main() -> ExitCode {
    // Signals are held back first, so that a stop during the check is not lost.
    let signals = held_signals();
    let Some(path) = bootstrap_path(std::env::args_os().skip(1)) else {
        eprintln!("oac-sandbox-io: usage: oac-sandbox-io --bootstrap-file PATH");
        return ExitCode::from(2);
    };
    if let Err(error) = check(&path) {
        eprintln!("oac-sandbox-io: {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    match serve(&signals) {
        Ok(()) => ExitCode::SUCCESS,
        Err(errno) => {
            eprintln!("oac-sandbox-io: waiting for signals failed: {errno}");
            ExitCode::FAILURE
        }
    }
}

/// Why the bootstrap file cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("cannot read the bootstrap file: {0}")]
    Read(#[from] io::Error),
    #[error("the bootstrap file is not a regular file")]
    NotRegular,
    #[error(transparent)]
    Refused(#[from] Refusal),
}

fn bootstrap_path(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> Option<PathBuf> {
    let (name, value, end) = (arguments.next()?, arguments.next()?, arguments.next());
    (name == "--bootstrap-file" && end.is_none()).then(|| value.into())
}

fn check(path: &Path) -> Result<(), Unusable> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Unusable::NotRegular);
    }
    let mut bytes = Vec::new();
    file.take(SANDBOX_IO_MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    SandboxIo::decode(&bytes)?;
    Ok(())
}

/// Blocked signals are queued even for process 1, which otherwise ignores those without a handler.
fn held_signals() -> SigSet {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD].into_iter().collect();
    signals.thread_block().expect("a valid set of signals can be blocked");
    signals
}

fn serve(signals: &SigSet) -> Result<(), Errno> {
    loop {
        // Standard signals do not queue: every wake-up collects all children there are.
        reap();
        match signals.wait()? {
            Signal::SIGCHLD => {}
            _ => return Ok(()),
        }
    }
}

fn reap() {
    while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}
