//! When Core heard of each node, as Core itself notes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use tokio::task::JoinHandle;

use super::super::api::Api;

/// Time between two looks: no heartbeat falls between two.
const LOOK_EVERY: Duration = Duration::from_millis(500);

type Heard = BTreeMap<String, BTreeSet<Timestamp>>;

/// Listens for as long as it is there.
pub(super) struct Beats {
    heard: Arc<Mutex<Heard>>,
    listening: JoinHandle<()>,
}

impl Beats {
    pub(super) fn listen(api: &Api) -> Self {
        let (api, heard) = (api.clone(), Arc::new(Mutex::new(Heard::new())));
        let noted = Arc::clone(&heard);
        let listening = tokio::spawn(async move {
            loop {
                // Whoever needs Core notices when it does not answer.
                if let Ok(nodes) = api.core(Method::GET, "/core/v1/sandbox/nodes", None).await {
                    for node in nodes["data"].as_array().into_iter().flatten() {
                        let at = node["last_seen_at"].as_str().and_then(|at| at.parse().ok());
                        if let (Some(name), Some(at)) = (node["name"].as_str(), at) {
                            locked(&noted).entry(name.to_owned()).or_default().insert(at);
                        }
                    }
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        Self { heard, listening }
    }

    /// How often Core has heard of the node.
    pub(super) fn count(&self, name: &str) -> usize {
        locked(&self.heard).get(name).map_or(0, BTreeSet::len)
    }

    /// The longest time between two of them.
    pub(super) fn longest_pause(&self, name: &str) -> Duration {
        let heard = locked(&self.heard);
        let times: Vec<_> = heard.get(name).into_iter().flatten().collect();
        let pauses = times.windows(2).map(|pair| pair[0].duration_until(*pair[1]).unsigned_abs());
        pauses.max().unwrap_or_default()
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

fn locked(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}
