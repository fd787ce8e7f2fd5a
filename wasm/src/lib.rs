//! Palisade's rules for the Web console: the same code that Core and the nodes run, as JavaScript functions.
//!
//! Every function answers one JSON text, which `index.js` parses; so the module needs nothing of its host but the
//! memory that the bindings copy texts through.

mod verdict;

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

fn text(answer: &impl serde::Serialize) -> String {
    serde_json::to_string(answer).expect("texts and numbers serialise")
}
