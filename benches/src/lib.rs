//! The frames that the benchmarks decode, and the same shapes without Palisade's rules.

pub mod plain;
pub mod sample;
pub mod summary;
