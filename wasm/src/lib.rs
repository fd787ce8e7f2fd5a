//! Palisade's rules for the Web console: the same code that Core and the nodes run, as JavaScript functions.
//!
//! Every function answers one JSON text, which `index.js` parses; so the module needs nothing of its host but the
//! memory that the bindings copy texts through.

mod command;
mod verdict;

pub use command::{Command, install, log, uninstall};
pub use verdict::{frame, specification, specification_digest};

use wasm_bindgen::prelude::wasm_bindgen;

/// `decodeFrame` of the package: grade, type and reason of one message.
#[wasm_bindgen(js_name = decodeFrame)]
#[must_use]
pub fn decode_frame(message: &[u8]) -> String {
    text(&frame(message))
}

/// `validateSpecification` of the package: whether the specification is valid for a provider, and what is wrong.
#[wasm_bindgen(js_name = validateSpecification)]
#[must_use]
pub fn validate_specification(provider: &str, json: &str) -> String {
    text(&specification(provider, json))
}

/// `specificationDigest` of the package: digest and canonical text of a valid specification.
#[wasm_bindgen(js_name = specificationDigest)]
#[must_use]
pub fn digest_specification(provider: &str, json: &str) -> String {
    text(&specification_digest(provider, json))
}

/// `installCommand` of the package: what an operator types on a host to make it a node.
#[wasm_bindgen(js_name = installCommand)]
#[must_use]
pub fn install_command(json: &str) -> String {
    text(&install(json))
}

/// `uninstallCommand` of the package: what makes a node a plain host again.
#[wasm_bindgen(js_name = uninstallCommand)]
#[must_use]
pub fn uninstall_command(json: &str) -> String {
    text(&uninstall(json))
}

/// `logCommand` of the package: what shows the log of an installation's node.
#[wasm_bindgen(js_name = logCommand)]
#[must_use]
pub fn log_command(installation_id: &str) -> String {
    text(&log(installation_id))
}

fn text(answer: &impl serde::Serialize) -> String {
    serde_json::to_string(answer).expect("texts and numbers serialise")
}
