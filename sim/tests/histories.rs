//! Twenty thousand histories, and everything that they must reach: `cargo test --profile simulation -p palisade-sim`.
//! Without optimisation only the first few happen.

use palisade_sim::{Campaign, Seeds};

fn campaign(histories: u64) -> Campaign {
    let campaign = Campaign::of(&Seeds::new(1..histories + 1));
    for failure in &campaign.failures {
        println!("{failure}");
    }
    assert_eq!(campaign.broken, 0, "of {} histories", campaign.histories);
    campaign
}

/// Promises 1 to 12 and 14 to 16, and what clients are told, hold in each of a few histories.
#[test]
fn a_few_histories_keep_every_promise() {
    campaign(150);
}

/// The same in twenty thousand, and everything that is listed as reachable is reached.
#[cfg(not(unoptimised))]
#[test]
fn twenty_thousand_histories_keep_every_promise_and_reach_everything() {
    let campaign = campaign(20_000);
    println!("{}", campaign.coverage);
    assert_eq!(campaign.coverage.missing(), Vec::<&str>::new(), "never reached");
}
