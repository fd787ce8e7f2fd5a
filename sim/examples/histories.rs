//! Runs histories and prints what they reached: `histories [first seed] [how many]`. Fails as `palisade sim` does.

use std::process::ExitCode;

use palisade_sim::{Campaign, Seeds};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual: u64| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (first, count) = (number(1), number(1_000));
    let campaign = Campaign::of(&Seeds::new(first..first + count));
    for failure in &campaign.failures {
        println!("{failure}");
    }
    println!("{}", campaign.coverage);
    println!("{} histories, {} broken", campaign.histories, campaign.broken);
    if campaign.held() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
