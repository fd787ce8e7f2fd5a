//! CPU utilization between two samples of `/proc/stat` (wire §8.1).

/// user, nice, system, idle, iowait, irq, softirq, steal. Guest time is inside user and nice.
const COUNTED: usize = 8;
const IDLE: usize = 3;
const IOWAIT: usize = 4;

/// The last sample of one connection.
#[derive(Debug, Default)]
pub(super) struct Baseline(Option<Vec<u64>>);

impl Baseline {
    /// The share of time since the last sample in which the processors worked. `stat` always becomes the baseline.
    pub(super) fn sample(&mut self, stat: Option<&str>) -> Option<f64> {
        let counters = stat.and_then(counters);
        let last = std::mem::replace(&mut self.0, counters.clone())?;
        utilization(&last, &counters?)
    }
}

/// Every counter of the first line, which must be that of all processors together.
fn counters(stat: &str) -> Option<Vec<u64>> {
    let mut words = stat.lines().next()?.split_ascii_whitespace();
    let counters: Vec<u64> = match words.next()? {
        "cpu" => words.map(counter).collect::<Option<_>>()?,
        _ => return None,
    };
    (counters.len() >= 4).then_some(counters)
}

fn counter(word: &str) -> Option<u64> {
    if word.bytes().all(|byte| byte.is_ascii_digit()) { word.parse().ok() } else { None }
}

fn utilization(last: &[u64], now: &[u64]) -> Option<f64> {
    if last.len() != now.len() {
        return None;
    }
    let deltas: Vec<u64> = now.iter().zip(last).map(|(now, last)| now.checked_sub(*last)).collect::<Option<_>>()?;
    let counted = &deltas[..deltas.len().min(COUNTED)];
    let total = counted.iter().try_fold(0_u64, |sum, delta| sum.checked_add(*delta))?;
    let idle = counted[IDLE] + counted.get(IOWAIT).copied().unwrap_or(0);
    #[allow(clippy::cast_precision_loss, reason = "a ratio of ticks needs no more than the precision of a double")]
    (total > 0).then(|| (total - idle) as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn second(first: &str, then: &str) -> Option<f64> {
        let mut baseline = Baseline::default();
        assert_eq!(baseline.sample(Some(first)), None);
        baseline.sample(Some(then))
    }

    #[rstest]
    #[case::without_guest_time("cpu 0 0 0 0 0 0 0 0 0 0", "cpu 20 5 5 50 10 4 3 3 20 5", 0.4)]
    #[case::all_idle("cpu 9 0 0 10 0 0 0 0", "cpu 9 0 0 60 50 0 0 0", 0.0)]
    #[case::all_busy("cpu 0 0 0 10 5 0 0 0", "cpu 90 5 5 10 5 0 0 0", 1.0)]
    #[case::four_counters("cpu 0 0 0 0", "cpu 1 0 0 3", 0.25)]
    #[case::other_lines_do_not_matter("cpu  0 0 0 0\ncpu0 x", "cpu  1 1 0 2\nintr -1", 0.5)]
    /// W 161. The first sample is unknown; then busy time of the counted eight, guest time inside it.
    fn utilization_is_busy_time(#[case] first: &str, #[case] then: &str, #[case] expected: f64) {
        let found = second(first, then).unwrap();
        assert!((found - expected).abs() < 1e-12, "{found}");
    }

    #[rstest]
    #[case::missing_line("cpu0 9 9 9 9 9")]
    #[case::empty("")]
    #[case::no_counters("cpu")]
    #[case::three_counters("cpu 9 9 9")]
    #[case::malformed("cpu 9 9 9 9 x")]
    #[case::malformed_guest("cpu 9 9 9 9 9 9 9 9 x")]
    #[case::signed("cpu 9 9 9 9 +9")]
    #[case::negative("cpu 9 9 9 -9 9")]
    #[case::overflowing_counter("cpu 18446744073709551616 9 9 9 9")]
    #[case::unchanged("cpu 1 2 3 4 5")]
    #[case::reset("cpu 0 0 0 0 0")]
    #[case::changed_count("cpu 9 9 9 9 9 9")]
    #[case::overflowing_sum("cpu 18446744073709551615 18446744073709551615 9 9 9")]
    /// W 162. Everything that is no interval is unknown.
    fn no_interval_is_unknown(#[case] then: &str) {
        assert_eq!(second("cpu 1 2 3 4 5", then), None);
    }

    /// W 163. A failed read loses the baseline, so the sample after it is unknown as well.
    #[rstest]
    #[case(None)]
    #[case(Some("cpu x"))]
    fn a_failed_read_makes_the_following_sample_unknown(#[case] failed: Option<&str>) {
        let mut baseline = Baseline::default();
        baseline.sample(Some("cpu 0 0 0 0"));
        assert_eq!(baseline.sample(failed), None);
        assert_eq!(baseline.sample(Some("cpu 5 0 0 5")), None);
        assert_eq!(baseline.sample(Some("cpu 10 0 0 10")), Some(0.5));
    }

    /// W 164. One counter that goes back is unknown though the total grows; the next interval counts again.
    #[test]
    fn a_decreasing_counter_is_unknown_once() {
        let mut baseline = Baseline::default();
        baseline.sample(Some("cpu 10 0 0 10"));
        assert_eq!(baseline.sample(Some("cpu 9 0 0 100")), None);
        assert_eq!(baseline.sample(Some("cpu 12 0 0 101")), Some(0.75));
    }
}
