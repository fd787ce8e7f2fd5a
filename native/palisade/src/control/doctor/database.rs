//! The database, as a Core would find it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use palisade_control::store::{Location, OpenError, Ownership, Store};
use tokio::time::timeout;

use crate::findings::Finding;

/// Longest look at a database that does not answer.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// Difference of the clocks from which on times in answers and logs do not match any more.
const SKEW_MAX_MS: u64 = 2000;

/// What was found, who owns execution, and how many keys are stored, as far as anybody could say.
pub(super) async fn look(location: &Location) -> (Vec<Finding>, Option<Ownership>, Option<usize>) {
    match timeout(LOOK_MAX, Store::beside(location)).await {
        Ok(Ok(store)) => {
            let seen = inside(&store, location).await;
            store.close().await;
            seen
        }
        Ok(Err(error @ OpenError::Missing { .. })) => {
            let next = "`palisade core migrate` makes it, and so does the first start";
            (vec![Finding::warning("database", error.to_string(), next)], None, Some(0))
        }
        Ok(Err(error)) => (vec![unreachable(&error.to_string())], None, None),
        Err(_) => (vec![unreachable("the database did not answer")], None, None),
    }
}

fn unreachable(found: &str) -> Finding {
    let next = "is it running, is its address right, and may this user use it? Core cannot start without it";
    Finding::problem("database", found, next)
}

async fn inside(store: &Store, location: &Location) -> (Vec<Finding>, Option<Ownership>, Option<usize>) {
    let (schema, usable) = match store.schema().await {
        Ok(schema) => (schema.clone(), schema.usable()),
        Err(error) => return (vec![unreachable(&error.to_string())], None, None),
    };
    let mut findings = vec![Finding::ok("database", "it answers")];
    findings.push(match usable {
        Err(error) => Finding::problem("schema", error.to_string(), "see there"),
        Ok(()) if schema.is_empty() => {
            let next = "`palisade core migrate` sets it up, and so does the first start";
            Finding::warning("schema", "the database is empty", next)
        }
        Ok(()) => Finding::ok("schema", format!("version {}, as this core needs it", schema.found)),
    });
    findings.push(clock(store, location).await);
    if schema.is_empty() {
        return (findings, None, Some(0));
    }
    let owner = store.ownership(location).await;
    findings.push(match &owner {
        Ok(Ownership::Held(by)) => Finding::ok("execution", format!("owned by {by}")),
        Ok(Ownership::Free) => Finding::ok("execution", "owned by nobody: no core runs on this database"),
        Err(error) => Finding::warning("execution", error.to_string(), "it is unknown whether a core runs"),
    });
    (findings, owner.ok(), stored_keys(store).await)
}

async fn stored_keys(store: &Store) -> Option<usize> {
    let mut tx = store.read().await.ok()?;
    tx.core_key_digests().await.ok().map(|keys| keys.len())
}

/// Nothing that is decided compares the two clocks; whoever reads logs beside answers does.
async fn clock(store: &Store, location: &Location) -> Finding {
    const CHECK: &str = "clock";
    if matches!(location, Location::Directory(_)) {
        return Finding::ok(CHECK, "the database uses this host's clock");
    }
    let before = now_ms();
    let read = async { store.read().await?.now().await };
    let Ok(Ok(there)) = timeout(LOOK_MAX, read).await else {
        return Finding::warning(CHECK, "the database did not tell its time", "run the doctor again");
    };
    let here = before.midpoint(now_ms());
    let skew = u64::try_from(there.0).unwrap_or(0).abs_diff(here);
    let found = format!("the database's clock is {skew} ms away from this host's");
    if skew <= SKEW_MAX_MS {
        return Finding::ok(CHECK, found);
    }
    Finding::warning(CHECK, found, "let both hosts keep their time with NTP: logs and answers tell different times")
}

fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
