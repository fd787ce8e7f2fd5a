//! Nothing but tests: Core's hub and the node's connection loop, as they are, in a simulated network (decision 31).
//!
//! `tests/network` runs them over turmoil's streams and listeners under virtual time. What is real: the node's dial and
//! connection loop, the WebSocket shell on both sides, Core's HTTP server, its connect route and its connection tasks.
//! What is not: the network, the clock, Core's records (in memory) and the providers (instant, or hanging on demand).
//!
//! A seed gives one history, to the millisecond. `cargo test -p palisade-turmoil` takes seconds; the long form,
//! `cargo test -p palisade-turmoil --release -- --ignored`, lets 10,000 nodes lose Core at once.

#![forbid(unsafe_code)]
