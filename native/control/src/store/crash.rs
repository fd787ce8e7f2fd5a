//! A process that ends at a chosen commit, so that a test can see what that leaves. A release build has none of this.
//!
//! `PALISADE_TEST_KILL_AT=after:7` ends it right after the seventh commit of the owner, `before:7` when everything of that
//! transaction was done except its commit.

/// One commit.
pub(super) struct Commit {
    #[cfg(debug_assertions)]
    number: Option<u64>,
}

/// The next commit; `owners` are those that prove the owner's epoch, and only they are counted.
#[cfg(not(debug_assertions))]
pub(super) const fn next(_owners: bool) -> Commit {
    Commit {}
}

#[cfg(not(debug_assertions))]
impl Commit {
    pub(super) const fn before(&self) {}
    pub(super) const fn after(&self) {}
}

#[cfg(debug_assertions)]
pub(super) fn next(owners: bool) -> Commit {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COMMITS: AtomicU64 = AtomicU64::new(0);
    Commit { number: owners.then(|| COMMITS.fetch_add(1, Ordering::Relaxed) + 1) }
}

#[cfg(debug_assertions)]
impl Commit {
    pub(super) fn before(&self) {
        self.end_at("before");
    }

    pub(super) fn after(&self) {
        self.end_at("after");
    }

    fn end_at(&self, moment: &str) {
        use nix::sys::signal::{Signal, raise};
        let chosen = std::env::var("PALISADE_TEST_KILL_AT").ok();
        let chosen = chosen.as_deref().and_then(|chosen| chosen.strip_prefix(moment)?.strip_prefix(':')?.parse().ok());
        if chosen.is_some() && chosen == self.number {
            // Nothing is written, closed or told any more.
            let _ = raise(Signal::SIGKILL);
        }
    }
}
