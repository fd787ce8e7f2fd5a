//! Saying what an environment waits for, and whom, once that takes long (E23).

use std::time::Duration;

use palisade_core::admin::node::ComputePhase as Phase;
use palisade_core::lifecycle::{Allocation, Facts};
use palisade_core::limits::HINT_AFTER_MS;
use tokio::time::Instant;

use crate::execution::Lease;
use crate::store::work::Work;

/// What one environment waits for, since when, and when that was said last.
#[derive(Default)]
pub(super) struct Waiting(Option<(&'static str, Instant, u32)>);

impl Waiting {
    /// Looks at the facts once more. Says something after half a minute, and after each doubling of the time.
    pub(super) fn look(&mut self, facts: &Facts, lease: Lease, work: &Work) {
        let Some(goal) = goal(facts) else { return self.0 = None };
        let now = Instant::now();
        let (known, since, said) = self.0.get_or_insert((goal, now, 0));
        if *known != goal {
            (*known, *since, *said) = (goal, now, 0);
        }
        let waited = now.duration_since(*since);
        if waited < Duration::from_millis(HINT_AFTER_MS.saturating_mul(1 << (*said).min(16))) {
            return;
        }
        *said += 1;
        tracing::warn!(
            environment = %work.environment,
            allocation = ?work.allocation.map(|allocation| allocation.id),
            incarnation = ?work.compute.as_ref().and_then(|held| held.state.current()).map(|current| current.generation),
            node = ?work.placement.map(|placed| placed.node),
            node_away_ms = ?facts.node.away_ms(),
            owner_epoch = lease.epoch.get(),
            waited_s = waited.as_secs(),
            "still waiting {goal}"
        );
    }
}

/// What is to come about; `None` when nothing is under way.
fn goal(facts: &Facts) -> Option<&'static str> {
    match facts.allocation {
        Allocation::None => Some("for its node to be ready for a new sandbox"),
        Allocation::Creating(_) => Some("for the sandbox to run"),
        Allocation::CleanupPending { .. } => Some("for the removal of the sandbox to be confirmed"),
        Allocation::Released => None,
        Allocation::Running => {
            let turn = facts.turn.map(|_| "for the node to run a turn");
            facts.compute.map_or(turn, |compute| compute_goal(compute.phase, turn))
        }
    }
}

fn compute_goal(phase: Phase, turn: Option<&'static str>) -> Option<&'static str> {
    match phase {
        Phase::Disabled => Some("for the name of the sandbox's compute"),
        Phase::Running => turn,
        Phase::Quiescing | Phase::Suspending => Some("for the sandbox to be suspended"),
        Phase::Suspended => turn.and(Some("for room on the sandbox's own node to restore it")),
        Phase::Restoring | Phase::Waking => Some("for the sandbox to be restored"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use palisade_core::testing::{epoch, id};
    use serde_json::Value;
    use sqlx::Executor as _;

    use super::*;
    use crate::store::{Location, Store};

    /// What was logged, line by line.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Log {
        fn take(&self) -> Vec<Value> {
            let text = std::mem::take(&mut *self.0.lock().unwrap());
            serde_json::Deserializer::from_slice(&text).into_iter().map(Result::unwrap).collect()
        }
    }

    /// An environment that was never placed.
    async fn work(location: &Location) -> Work {
        let store = Store::open(location).await.unwrap();
        let mut tx = store.write().await.unwrap();
        for insert in [
            format!("INSERT INTO projects VALUES ('{0}', '{1}', 'name', 1, NULL)", id(4), id(5)),
            format!(
                "INSERT INTO sessions VALUES ('{}', '{}', '{}', 'openai_hosted', NULL, 1, NULL)",
                id(6),
                id(4),
                id(5)
            ),
            format!(
                "INSERT INTO environments (id, session_id, status, created_at, changed_at) \
                 VALUES ('{}', '{}', 'pending', 1, 1)",
                id(7),
                id(6)
            ),
        ] {
            tx.execute(sqlx::AssertSqlSafe(insert)).await.unwrap();
        }
        tx.commit().await.unwrap();
        store.work(id(7)).await.unwrap().unwrap()
    }

    /// E23. Nobody waits without a hint: after half a minute the log says what is waited for, and whom, with the epoch of
    /// the owner; then after each doubling, and for another goal anew.
    #[tokio::test]
    async fn a_long_wait_is_told_after_half_a_minute_and_then_ever_more_rarely() {
        let directory = tempfile::tempdir().unwrap();
        let work = work(&Location::Directory(directory.path().to_owned())).await;
        let lease = Lease { epoch: epoch(3), installation: id(1) };
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        let _logging = tracing::subscriber::set_default(subscriber);
        tokio::time::pause();

        let mut waiting = Waiting::default();
        let unplaced = work.facts(false, false, false);
        let mut waits = async |facts: &Facts, seconds: u64| {
            waiting.look(facts, lease, &work);
            tokio::time::advance(Duration::from_millis(1_000 * seconds - 1)).await;
            waiting.look(facts, lease, &work);
            assert_eq!(log.take(), [] as [Value; 0], "within {seconds} s");
            tokio::time::advance(Duration::from_millis(1)).await;
            waiting.look(facts, lease, &work);
            waiting.look(facts, lease, &work);
            log.take()
        };
        let told = waits(&unplaced, 30).await;
        let [line] = &told[..] else { panic!("one line, but {told:?}") };
        assert_eq!(line["level"], "WARN");
        let fields = &line["fields"];
        assert_eq!(fields["message"], "still waiting for its node to be ready for a new sandbox");
        assert_eq!((&fields["environment"], &fields["owner_epoch"]), (&id(7).to_string().into(), &3.into()));
        assert_eq!((&fields["waited_s"], &fields["node"]), (&30.into(), &"None".into()));
        assert_eq!(waits(&unplaced, 30).await.len(), 1, "after a minute");
        assert_eq!(waits(&unplaced, 60).await.len(), 1, "after two minutes");

        let creating = Facts { allocation: Allocation::Creating(palisade_core::lifecycle::Attempt::None), ..unplaced };
        let told = waits(&creating, 30).await;
        assert_eq!(told[0]["fields"]["message"], "still waiting for the sandbox to run");
        let released = Facts { allocation: Allocation::Released, ..unplaced };
        waiting.look(&released, lease, &work);
        assert_eq!(waiting.0, None, "nothing is under way");
    }
}
