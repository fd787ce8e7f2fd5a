//! What the service manager is told: that Core listens, how it is, and that it stops (systemd's `Type=notify`).

use sd_notify::NotifyState;
use tokio_util::sync::CancellationToken;

use crate::{Execution, Lease};

/// Core listens. A standby says so as well, because its start has ended; then every change of the lease until `stop`.
pub(crate) async fn follow(execution: Execution, stop: CancellationToken) {
    let mut lease = execution.lease();
    tell(&[NotifyState::Ready, NotifyState::Status(&status(lease))]);
    while let Some(changed) = stop.run_until_cancelled(execution.changed(lease)).await {
        lease = changed;
        tell(&[NotifyState::Status(&status(lease))]);
    }
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping: open requests may end")]);
}

fn status(lease: Option<Lease>) -> String {
    match lease {
        Some(lease) => format!("ready: owns execution under epoch {}", lease.epoch.get()),
        None => "standby: another core owns execution, or the database does not answer".to_owned(),
    }
}

/// Without a service manager this does nothing.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
