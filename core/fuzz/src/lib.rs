//! One function for each fuzz target. Each takes any bytes, and panics when a promise is broken.
//!
//! The fuzz binaries in `targets/` and the stable test `../tests/corpora.rs` run the same functions.

pub mod decode;
pub mod hub;
pub mod node;
pub mod recovery;
pub mod roundtrip;
pub mod specification;
mod values;
