//! Which superseded selections Core keeps (deployment §4.6).

use std::collections::BTreeSet;

use crate::limits::COLLECTION_MAX;

/// Whether a superseded selection is copied to the retained generations: only when something refers to it.
#[must_use]
pub fn is_retained(superseded: u64, referenced: &BTreeSet<u64>) -> bool {
    superseded > 0 && referenced.contains(&superseded)
}

/// Retained generations to delete in one pass: neither current nor referenced, ascending, at most 32.
#[must_use]
pub fn collectable(current: u64, retained: &BTreeSet<u64>, referenced: &BTreeSet<u64>) -> Vec<u64> {
    let free = |generation: &&u64| **generation != current && !referenced.contains(generation);
    retained.iter().filter(free).take(COLLECTION_MAX).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D 83. A referenced generation is retained and never collected; others go lowest first, 32 at a time.
    #[test]
    fn unreferenced_generations_are_collected_in_order() {
        let referenced = BTreeSet::from([2, 5]);
        assert!(is_retained(2, &referenced) && !is_retained(3, &referenced));
        assert!(!is_retained(0, &BTreeSet::from([0])));
        assert_eq!(collectable(6, &BTreeSet::from([1, 2, 3, 5, 6]), &referenced), [1, 3]);
        let many: BTreeSet<u64> = (1..=40).collect();
        assert_eq!(collectable(41, &many, &BTreeSet::new()), (1..=32).collect::<Vec<_>>());
    }
}
