//! What 20,000 histories must reach.

pub(super) const NAMES: &[&str] = &[];
