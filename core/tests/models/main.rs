//! The real machines, explored exhaustively within stated bounds.
//!
//! What is abstract in all three models: the network (a message arrives once, in order, or never), the store (one step
//! for one transaction), the provider, and time: each party's clock stands still, and a deadline may pass at any moment.
//!
//! Every model can be built with one rule broken. The checker must then find a history that shows the damage: a model
//! that cannot fail proves nothing.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod check;
mod creation;
mod fixtures;
mod ownership;
mod retention;
