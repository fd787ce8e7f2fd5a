//! palisade
fn main() {}
