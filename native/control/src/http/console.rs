//! What a console asks before it shows anything (node-host §5.7).

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, HeaderName};
use palisade_core::admin::console::ConsoleConfig;

use crate::Core;
use crate::openapi::{Routes, get};

const CONFIG: &str = "/console/config";

pub(super) fn routes() -> Routes {
    let reading = get(CONFIG, "read_console_config", "Which installer and which node files this Core offers");
    Routes::new().on(reading.answers::<ConsoleConfig>(StatusCode::OK), config)
}

/// Looked at anew with every request: a publication needs no restart.
async fn config(State(core): State<Core>) -> ([(HeaderName, &'static str); 1], Json<ConsoleConfig>) {
    let offer = match core.payload() {
        Some(payload) => payload.offer().await,
        None => None,
    };
    let (installer, providers) = offer.map_or((None, Vec::new()), |offer| (offer.installer, offer.providers));
    let config = ConsoleConfig {
        node_installer: installer.is_some(),
        node_installer_sha256: installer,
        node_artifacts: providers.into_iter().map(str::to_owned).collect(),
    };
    ([(CACHE_CONTROL, "no-store")], Json(config))
}
