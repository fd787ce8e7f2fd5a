//! Both halves of a connection between Core and a node, without I/O (wire §4–7).

pub mod hub;
