//! Both halves of a connection between Core and a node, without I/O (wire §4–7).

pub mod backoff;
pub mod hub;
pub mod lanes;
pub mod node;

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash, Hasher as _};

    use super::*;
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
        let health = |cpu_utilization| Health {
            observed_at: "2026-01-01T00:00:00Z".into(),
            active_operations: 0,
            cpu_utilization: Some(cpu_utilization),
            total_memory_bytes: None,
            effective_cpu_cores: None,
            cpu_count: None,
            available_memory_bytes: None,
            available_disk_bytes: None,
            generations: Vec::new(),
        };
        assert_eq!((health(0.0), hash(&health(0.0))), (health(-0.0), hash(&health(-0.0))));
        assert_ne!(hash(&health(0.0)), hash(&health(0.5)));
    }
}
