//! What the end of a preparer process means (node-host §3.1, decision 23). Its output is never read.

use crate::limits::PREPARER_TRANSFER_FAILED;
use crate::wire::payload::Diagnostic;

/// How a preparer process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ended {
    /// It exited with this status.
    Exit(i32),
    /// A signal ended it.
    Signal,
    /// It could not be started, or its end could not be observed.
    Unobserved,
}

/// What the attempt came to, as the generation table takes it.
///
/// # Errors
/// The class that Core may know. A cancelled attempt failed for no reason of its own, whatever its process said last.
pub const fn conclude(ended: Ended, cancelled: bool) -> Result<(), Diagnostic> {
    match ended {
        Ended::Exit(_) | Ended::Signal | Ended::Unobserved if cancelled => Err(Diagnostic::ProviderUnavailable),
        Ended::Exit(0) => Ok(()),
        Ended::Exit(PREPARER_TRANSFER_FAILED) => Err(Diagnostic::RuntimeDownloadFailed),
        Ended::Exit(_) | Ended::Signal | Ended::Unobserved => Err(Diagnostic::ProviderUnavailable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W 155. H 152. Status 65 alone means that a transfer failed; a cancellation wins over any status.
    #[test]
    fn only_the_private_status_names_a_failed_transfer() {
        assert_eq!(conclude(Ended::Exit(0), false), Ok(()));
        assert_eq!(conclude(Ended::Exit(65), false), Err(Diagnostic::RuntimeDownloadFailed));
        for status in (-2..=255).filter(|status| *status != 0 && *status != 65) {
            assert_eq!(conclude(Ended::Exit(status), false), Err(Diagnostic::ProviderUnavailable), "{status}");
        }
        for ended in [Ended::Signal, Ended::Unobserved] {
            assert_eq!(conclude(ended, false), Err(Diagnostic::ProviderUnavailable));
        }
        for ended in [Ended::Exit(0), Ended::Exit(65), Ended::Exit(1), Ended::Signal, Ended::Unobserved] {
            assert_eq!(conclude(ended, true), Err(Diagnostic::ProviderUnavailable));
        }
    }
}
