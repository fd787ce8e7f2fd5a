//! The preparer as the node sees it: a child process in a process group of its own (node-host §3.1, decision 23).
//!
//! Nothing is written to its standard input. The end of that tells it that its node is gone: a node that is started again
//! finds no preparer of the one before at work, and begins at once where that one was.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use palisade_core::generation::preparer::Ended;
use palisade_core::units::Id;
use palisade_core::wire::payload::GenerationReference;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::program::{Action, OF_NODE};

/// Starts preparers for one installation.
#[derive(Debug, Clone)]
pub(crate) struct Preparer {
    /// The executable, and what stands before the preparer's own arguments.
    pub(crate) program: Vec<OsString>,
    pub(crate) root: PathBuf,
    pub(crate) installation: Id,
}

impl Preparer {
    /// This very program, also when its file was replaced meanwhile.
    pub(crate) fn this_program(root: PathBuf, installation: Id) -> Self {
        Self { program: ["/proc/self/exe", "generation"].map(OsString::from).into(), root, installation }
    }

    /// Runs one to its end, or kills it with all of its own children when `cancel` is. Says how it ended, and whether it
    /// was cancelled before.
    pub(crate) async fn run(
        &self,
        action: Action,
        reference: GenerationReference,
        cancel: &CancellationToken,
    ) -> (Ended, bool) {
        let mut child = match self.command(action, reference).and_then(|mut command| command.spawn()) {
            Ok(child) => child,
            Err(error) => {
                tracing::error!(generation = %reference.generation, %error, "the preparer could not be started");
                return (Ended::Unobserved, cancel.is_cancelled());
            }
        };
        // Open for as long as this program lives, and closed by the kernel when it is killed.
        let _alive = child.stdin.take();
        let exited = tokio::select! {
            biased;
            exited = child.wait() => return (ended(exited), false),
            () = cancel.cancelled() => {
                kill(&child);
                child.wait().await
            }
        };
        (ended(exited), true)
    }

    fn command(&self, action: Action, reference: GenerationReference) -> std::io::Result<Command> {
        let mut words = self.program.iter();
        let mut command = Command::new(words.next().map_or("/proc/self/exe".as_ref(), OsString::as_os_str));
        command.args(words).arg(action.name());
        command.arg("--root").arg(&self.root);
        command.args(["--installation", &self.installation.to_string()]);
        command.args(["--generation", &reference.generation.to_string()]);
        command.args(["--specification-digest", &reference.specification_digest.to_string()]);
        // What it says goes where the node's log goes, and is never read.
        let log = || std::io::stderr().as_fd().try_clone_to_owned().map(Stdio::from);
        command.stdin(Stdio::piped()).stdout(log()?).stderr(log()?);
        command.env(OF_NODE, "1").process_group(0).kill_on_drop(true);
        Ok(command)
    }
}

/// The whole group: whatever the preparer started itself ends with it.
fn kill(child: &Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    if let Some(Err(error)) = group.map(|group| killpg(Pid::from_raw(group), Signal::SIGKILL)) {
        tracing::warn!(%error, "the preparer could not be killed");
    }
}

fn ended(exited: std::io::Result<ExitStatus>) -> Ended {
    match exited.map(|status| status.code()) {
        Ok(Some(code)) => Ended::Exit(code),
        Ok(None) => Ended::Signal,
        Err(_) => Ended::Unobserved,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use crate::generations::testing::reference;

    /// A preparer that runs a shell's script, whose first word is the action.
    fn script(text: &str) -> Preparer {
        let program = ["/bin/sh", "-c", text, "preparer"].map(OsString::from).into();
        let installation = Id::parse(crate::testing::INSTALLATION).unwrap();
        Preparer { program, root: PathBuf::from("/nowhere"), installation }
    }

    /// H 152. The status of the process is all that counts; what it says is never read.
    #[rstest]
    #[case("exit 0", Ended::Exit(0))]
    #[case("echo transfer failed; exit 65", Ended::Exit(65))]
    #[case("echo done; exit 1", Ended::Exit(1))]
    #[case("kill -9 $$", Ended::Signal)]
    #[case("test \"$1 $2 $3 $4 $6 $7 $8\" = \"collect --root /nowhere --installation --generation 4 --specification-digest\" || exit 3; test $# = 9 || exit 4; exit ${#5}${#9}", Ended::Exit(3664 % 256))]
    #[tokio::test]
    async fn the_end_of_a_preparer_is_its_status(#[case] text: &str, #[case] expected: Ended) {
        let ended = script(text).run(Action::Collect, reference(4), &CancellationToken::new()).await;
        assert_eq!(ended, (expected, false));
    }

    #[tokio::test]
    async fn a_program_that_is_missing_is_a_failure() {
        let preparer = Preparer { program: vec!["/nowhere/palisade".into()], ..script("") };
        let ended = preparer.run(Action::Prepare, reference(4), &CancellationToken::new()).await;
        assert_eq!(ended, (Ended::Unobserved, false));
    }

    /// Node-host §3.1. A cancelled preparer is killed with everything that it started, and nothing else is.
    #[tokio::test]
    async fn a_cancelled_preparer_ends_with_its_whole_group() {
        let folder = tempfile::tempdir().unwrap();
        let (ready, lock) = (folder.path().join("ready"), folder.path().join("lock"));
        // The grandchild holds a lock for as long as it lives.
        let text = format!(
            "exec 9>{lock}; flock 9; sleep 600 & : > {ready}; wait",
            lock = lock.display(),
            ready = ready.display()
        );
        let (preparer, cancel) = (script(&text), CancellationToken::new());
        let held = || std::fs::File::open(&lock).unwrap().try_lock().is_err();
        let cancelling = async {
            while !ready.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(held());
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(preparer.run(Action::Prepare, reference(4), &cancel), cancelling);
        assert_eq!(ended, (Ended::Signal, true));
        while held() {
            tokio::task::yield_now().await;
        }
    }
}
