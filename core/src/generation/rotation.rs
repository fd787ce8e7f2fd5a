//! Fairness without state of its own: an ordered walk that starts after a cursor and wraps.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Every entry once, ascending after `cursor`, then from the start up to and including it.
pub(super) fn after<K: Ord + Copy, V>(map: &BTreeMap<K, V>, cursor: Option<K>) -> impl Iterator<Item = (&K, &V)> {
    let tail = map.range((cursor.map_or(Unbounded, Excluded), Unbounded));
    let head = cursor.map(|cursor| map.range((Unbounded, Included(cursor))));
    tail.chain(head.into_iter().flatten())
}
