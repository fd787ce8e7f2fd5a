//! What was measured.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::process::{Growth, Load};
use super::tally::{Reasons, Tally};
use crate::cli::Fleet;

#[derive(Serialize)]
pub(crate) struct Report {
    /// Whether it was asked to end early.
    pub(crate) interrupted: bool,
    nodes: u32,
    seconds: f64,
    connections_open: u32,
    connections_a_second: f64,
    heartbeats_sent: u64,
    heartbeats_acknowledged: u64,
    acknowledgement_ms: Latency,
    refused: Reasons,
    closed: Reasons,
    /// Of one core; absent for a Core that is not our own.
    core_cpu: Option<Load>,
    /// For each connection; absent for a Core that is not our own.
    core_memory: Option<Growth>,
}

/// Quantiles, in milliseconds.
#[derive(Serialize)]
struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Report {
    pub(crate) fn new(
        options: &Fleet,
        tally: &Tally,
        interrupted: bool,
        lasted: Duration,
        connections_a_second: f64,
        core_cpu: Option<Load>,
        core_memory: Option<Growth>,
    ) -> Self {
        let latencies = tally.latencies_us();
        Self {
            interrupted,
            nodes: options.nodes,
            seconds: lasted.as_secs_f64(),
            connections_open: tally.open(),
            connections_a_second,
            heartbeats_sent: tally.heartbeats(),
            heartbeats_acknowledged: latencies.len() as u64,
            acknowledgement_ms: Latency::of(&latencies),
            refused: tally.refusals(),
            closed: tally.ends(),
            core_cpu,
            core_memory,
        }
    }
}

impl Latency {
    fn of(ascending_us: &[u32]) -> Self {
        let at = |percent: usize| {
            let index = (ascending_us.len() * percent).div_ceil(100).saturating_sub(1);
            ascending_us.get(index).map_or(0.0, |us| f64::from(*us) / 1e3)
        };
        Self { p50: at(50), p90: at(90), p99: at(99), max: at(100) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, connections_open, connections_a_second, .. } = self;
        writeln!(f, "connections     {connections_open} open of {nodes}, opened {connections_a_second:.0} a second")?;
        writeln!(
            f,
            "heartbeats      {} sent in {:.1} s, {} acknowledged",
            self.heartbeats_sent, self.seconds, self.heartbeats_acknowledged
        )?;
        let Latency { p50, p90, p99, max } = self.acknowledgement_ms;
        writeln!(f, "acknowledgement p50 {p50:.1} ms, p90 {p90:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")?;
        reasons(f, "refused", &self.refused)?;
        reasons(f, "closed", &self.closed)?;
        if let Some(Load { user, system }) = self.core_cpu {
            let all = user + system;
            writeln!(f, "core processor  {:.1} % of one core ({:.1} % user)", all * 100.0, user * 100.0)?;
        }
        if let Some(growth) = self.core_memory {
            let (resident, proportional) = (growth.resident_bytes, growth.proportional_bytes);
            writeln!(f, "core memory     {resident} bytes a connection resident, {proportional} proportional")?;
        }
        if self.interrupted {
            writeln!(f, "the measurement was interrupted")?;
        }
        Ok(())
    }
}

fn reasons(f: &mut fmt::Formatter<'_>, what: &str, reasons: &Reasons) -> fmt::Result {
    if reasons.is_empty() {
        return writeln!(f, "{what:<16}none");
    }
    reasons.iter().try_for_each(|(reason, count)| writeln!(f, "{what:<16}{count} × {reason}"))
}

#[cfg(test)]
mod tests {
    use super::Latency;

    #[test]
    fn quantiles_are_measured_values() {
        let all: Vec<u32> = (1..=200).map(|ms| ms * 1000).collect();
        let Latency { p50, p90, p99, max } = Latency::of(&all);
        assert_eq!([p50, p90, p99, max].map(|ms| ms.to_string()), ["100", "180", "198", "200"]);
        assert_eq!(Latency::of(&[]).max.to_string(), "0");
    }
}
