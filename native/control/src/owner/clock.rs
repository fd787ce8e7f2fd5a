//! The owner's clock for deadlines that are stored.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use palisade_core::admin::time::Timestamp;
use palisade_core::lifecycle::Deadlines;
use palisade_core::units::{Id, Millis};
use tokio::time::Instant;

use crate::store::work::Work;

/// Which kept compute has been kept long enough; clones share what they have seen.
#[derive(Clone)]
pub(super) struct Clock {
    started: Instant,
    kept: Arc<Mutex<Deadlines<Id>>>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { started: Instant::now(), kept: Arc::default() }
    }
}

impl Clock {
    /// A clock that never jumps.
    pub(super) fn now(&self) -> Millis {
        Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Whether the compute of `work` was kept for long enough.
    pub(super) fn expired(&self, work: &Work) -> bool {
        let until = work.compute.as_ref().and_then(|held| held.retained_until);
        until.is_some_and(|until| self.kept().passed(work.environment, until, work.read_at, self.now()))
    }

    /// Those of all kept ones that have been kept for long enough; what is not kept any more is forgotten.
    pub(super) fn all_expired(&self, retained: &[(Id, Timestamp)], read_at: Timestamp) -> Vec<Id> {
        let (now, mut kept) = (self.now(), self.kept());
        let known: BTreeSet<_> = retained.iter().map(|(of, _)| *of).collect();
        kept.retain(|of| known.contains(of));
        let expired = retained.iter().filter(|(of, until)| kept.passed(*of, *until, read_at, now));
        expired.map(|(of, _)| *of).collect()
    }

    fn kept(&self) -> MutexGuard<'_, Deadlines<Id>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
