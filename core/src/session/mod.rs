//! Both halves of a connection between Core and a node, without I/O (wire §4–7).

pub mod backoff;
pub mod hub;
pub mod lanes;
pub mod node;

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash, Hasher as _};

    use super::*;
    use crate::testing;
    use crate::wire::payload::Health;

    fn hash(value: &impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        hasher.finish()
    }

    /// A model checker compares states by value: what is equal hashes alike, zeros of either sign included.
    #[test]
    fn every_machine_can_be_cloned_compared_and_hashed() {
        fn comparable<T: Clone + Eq + Hash>() {}
        comparable::<node::Node>();
        comparable::<node::Action>();
        comparable::<hub::Connection>();
        comparable::<hub::Action>();
        comparable::<hub::reservations::Reservations>();
        comparable::<lanes::Lanes>();
        comparable::<backoff::Backoff>();
        comparable::<crate::generation::Table>();
        comparable::<crate::lifecycle::Lifecycle>();
        comparable::<crate::outcome::Answer<'static>>();
        let health = |utilization| Health { cpu_utilization: Some(utilization), ..testing::health([]) };
        assert_eq!((health(0.0), hash(&health(0.0))), (health(-0.0), hash(&health(-0.0))));
        assert_ne!(hash(&health(0.0)), hash(&health(0.5)));
    }
}
