//! The frame grammar: one type per frame and payload, strict decoding, encoding, limits.

pub mod frame;
pub mod payload;
