//! The owner loop: the one place that changes lifecycles.

use tokio_util::sync::CancellationToken;

use crate::Core;

/// Drives every lifecycle while this process holds the execution lease, until `stop`.
pub async fn run(core: Core, stop: CancellationToken) {
    while stop.run_until_cancelled(core.owner_woken()).await.is_some() {}
}
