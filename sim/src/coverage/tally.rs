//! What one history reached. It is counted at every event, so a name is known by where it lies.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Counts of one history. The same name may lie in several places.
#[derive(Debug, Default)]
pub(crate) struct Tally(HashMap<(usize, usize), (&'static str, u64), BuildHasherDefault<Mixer>>);

impl Tally {
    pub(crate) fn hit(&mut self, name: &'static str) {
        self.0.entry((name.as_ptr().addr(), name.len())).or_insert((name, 0)).1 += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.values().copied()
    }

    /// How often `name` was reached.
    #[cfg(test)]
    pub(crate) fn of(&self, name: &str) -> u64 {
        self.iter().filter(|(counted, _)| *counted == name).map(|(_, count)| count).sum()
    }
}

/// Spreads addresses; nobody chooses them to do harm.
#[derive(Debug, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0.rotate_left(5) ^ number as u64).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}
