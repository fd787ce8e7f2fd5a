//! Seeds that once found a fault or that reach something rare are replayed for ever.

use palisade_sim::{Coverage, History};

/// Seeds stand first on their line; what follows says why they are kept.
#[test]
fn every_seed_of_the_corpus_keeps_every_promise() {
    let mut replayed = 0;
    for line in include_str!("../corpus/seeds.txt").lines() {
        let Some(seed) = line.split_whitespace().next().filter(|word| !word.starts_with('#')) else { continue };
        let seed = seed.parse().expect("a line of the corpus begins with a seed");
        if let Err(failure) = History::new(seed).run(&mut Coverage::default()) {
            panic!("{failure}");
        }
        replayed += 1;
    }
    assert!(replayed > 10, "the corpus holds {replayed} seeds");
}
