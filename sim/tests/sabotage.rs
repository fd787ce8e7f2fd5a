//! The books find what is broken on purpose: each planted fault is caught, and shown as the smallest history that breaks.

#![cfg(not(unoptimised))]

use palisade_sim::{Campaign, Sabotage};

/// Histories in which every planted fault must be found.
const HISTORIES: u64 = 5_000;

/// Every planted fault breaks its promise within a few histories, and the shrunken history is shown.
#[test]
fn every_planted_fault_is_found() {
    let mut missed = Vec::new();
    for sabotage in Sabotage::ALL {
        match Campaign::hunt(sabotage, 1, HISTORIES) {
            Ok(failure) if promises(sabotage).contains(&failure.broken.promise) => {
                println!("{sabotage:?} is found by {failure}");
            }
            Ok(failure) => missed.push(format!("{sabotage:?} breaks something else: {failure}")),
            Err(histories) => missed.push(format!("{sabotage:?} after {histories} histories")),
        }
    }
    assert!(missed.is_empty(), "not found: {}", missed.join("\n"));
}

/// What each planted fault breaks.
fn promises(sabotage: Sabotage) -> &'static [&'static str] {
    match sabotage {
        Sabotage::NodeIgnoresFence => &["promise 2", "promise 3", "promise 3, 5 or 9"],
        Sabotage::CoreReplaysCommand | Sabotage::CoreForgetsAttempt | Sabotage::CoreSendsCaptureAgain => &["promise 4"],
        Sabotage::CoreReleasesEarly | Sabotage::CoreForgetsFailedTarget => &["no sandbox is lost"],
        Sabotage::CoreAcceptsTwice => &["promise 1"],
        Sabotage::CoreNeverTiresOfSilence => &["E1", "convergence"],
        Sabotage::CoreTakesUnknownCodeForFailure => &["promise 12"],
        Sabotage::DiskDropsEpoch => &["promise 15"],
        Sabotage::NodeTrustsStaleRetention => &["promise 3, 5 or 9", "promise 5"],
        Sabotage::CollectionIgnoresHolds => &["promise 7"],
        Sabotage::PreparerIgnoresDropped => &["promise 6"],
        Sabotage::ClockStopsInSuspend => &["promise 8"],
        Sabotage::HeartbeatWaitsForProvider => &["promise 10"],
        Sabotage::NodeBelievesProxy | Sabotage::NodeGivesUpOnConflict => &["promise 11"],
        Sabotage::EnginePrunesStrangers => &["promise 16"],
        Sabotage::EngineKillsAtStart | Sabotage::CoreDropsSnapshotEarly | Sabotage::CoreExpiresEarly => {
            &["no sandbox is deleted by mistake"]
        }
        Sabotage::EngineStartsSourceAgain => &["no sandbox is duplicated"],
        Sabotage::CoreStopsInHaste | Sabotage::CoreNeverEnds => &["drain"],
    }
}
