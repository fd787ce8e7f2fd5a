//! Both halves of a connection between Core and a node, without I/O (wire §4–7).

pub mod backoff;
pub mod hub;
pub mod lanes;
pub mod node;
