//! Decisions from a seed. Each purpose has a stream of its own, so that leaving one decision out moves few others.

use oorandom::Rand64;
use palisade_core::units::Id;

/// One stream of decisions.
#[derive(Debug, Clone)]
pub(crate) struct Random(Rand64);

impl Random {
    /// The stream `purpose` of `seed`.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(Rand64::new(u128::from(seed) << 64 | u128::from(purpose)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.rand_u64()
    }

    /// 0 … `limit` − 1; 0 when there is nothing to choose from.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.0.rand_range(0..limit) }
    }

    /// `low` … `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `share` of 1,000 cases.
    pub(crate) fn chance(&mut self, share: u32) -> bool {
        share > 0 && self.below(1_000) < u64::from(share)
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[index(self.below(choices.len() as u64))]
    }

    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        (u128::from(self.next()) << 64 | u128::from(self.next())).to_be_bytes()
    }

    pub(crate) fn id(&mut self) -> Id {
        Id::from_random(self.bytes())
    }
}

/// A small number as an index.
pub(crate) fn index(number: u64) -> usize {
    usize::try_from(number).expect("indices are small")
}
