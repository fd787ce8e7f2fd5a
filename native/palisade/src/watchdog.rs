//! The service manager's watchdog: a role whose tasks do not run any more is ended and started again (systemd's
//! `WatchdogSec=`).

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

/// Serves one role, and says meanwhile that its tasks run, twice in every period that the manager waits.
///
/// Whoever says it runs on the same threads as the role and, unlike a signal's answer, does not once they all hang. Without
/// a watchdog this is the role alone.
pub(crate) async fn watched<T>(role: impl Future<Output = T>) -> T {
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else { return role.await };
    tokio::select! {
        ended = role => ended,
        never = tell(period / 2) => match never {},
    }
}

async fn tell(every: Duration) -> std::convert::Infallible {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = sd_notify::notify(&[NotifyState::Watchdog]) {
            tracing::warn!(%error, "the service manager's watchdog could not be told");
        }
    }
}
