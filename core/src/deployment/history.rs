//! Host history: complete buckets of samples, aligned to the epoch (deployment §8.2).

use crate::admin::node::{History, Point};
use crate::admin::time::Timestamp;
use crate::strict::Object;

/// A range that an administrator may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// `1h`, one point a minute.
    Hour,
    /// `6h`, one point every five minutes.
    SixHours,
    /// `24h`, one point every fifteen minutes.
    Day,
}

/// One stored sample; `None` is unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The node's own time of the observation.
    pub observed_at: Timestamp,
    /// 0 … 1.
    pub cpu_utilization: Option<f64>,
    /// Total less available.
    pub memory_used_bytes: Option<u64>,
    /// Bytes.
    pub available_disk_bytes: Option<u64>,
}

impl Range {
    /// The range with exactly this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "1h" => Some(Self::Hour),
            "6h" => Some(Self::SixHours),
            "24h" => Some(Self::Day),
            _ => None,
        }
    }

    /// Its name in a query.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::SixHours => "6h",
            Self::Day => "24h",
        }
    }

    /// Length of a bucket in seconds, and their number.
    #[must_use]
    pub const fn buckets(self) -> (u32, u32) {
        match self {
            Self::Hour => (60, 60),
            Self::SixHours => (300, 72),
            Self::Day => (900, 96),
        }
    }

    const fn bucket_ms(self) -> i64 {
        self.buckets().0 as i64 * 1000
    }

    /// Start of the oldest bucket; the newest is the last complete one before `now`.
    #[must_use]
    pub const fn start(self, now: Timestamp) -> Timestamp {
        let end = now.0.div_euclid(self.bucket_ms()) * self.bucket_ms();
        Timestamp(end - self.buckets().1 as i64 * self.bucket_ms())
    }

    /// Every bucket of the range, the empty ones too.
    #[must_use]
    pub fn history(self, samples: &[Sample], now: Timestamp) -> History {
        let start = self.start(now).0;
        let (resolution, count) = self.buckets();
        let mut points: Vec<Object<Point>> =
            (0..i64::from(count)).map(|at| Object(empty(Timestamp(start + at * self.bucket_ms())))).collect();
        for sample in samples {
            let at = (sample.observed_at.0 - start).div_euclid(self.bucket_ms());
            if let Some(Object(point)) = usize::try_from(at).ok().and_then(|at| points.get_mut(at)) {
                add(point, sample);
            }
        }
        History { resolution_seconds: resolution.into(), points }
    }
}

const fn empty(start: Timestamp) -> Point {
    Point { start, cpu_utilization_max: None, memory_used_bytes_max: None, available_disk_bytes_min: None }
}

/// Each metric on its own: what one sample does not know, another may.
fn add(point: &mut Point, sample: &Sample) {
    let cpu = [point.cpu_utilization_max, sample.cpu_utilization].into_iter().flatten();
    point.cpu_utilization_max = cpu.reduce(f64::max);
    point.memory_used_bytes_max = point.memory_used_bytes_max.max(sample.memory_used_bytes);
    let disk = [point.available_disk_bytes_min, sample.available_disk_bytes].into_iter().flatten();
    point.available_disk_bytes_min = disk.min();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D 82. Every complete bucket of each range is there, aligned to the epoch in UTC.
    #[test]
    fn buckets_are_complete_and_aligned() {
        let now = Timestamp(1_700_000_123_456);
        for (name, seconds, count) in [("1h", 60, 60), ("6h", 300, 72), ("24h", 900, 96)] {
            let range = Range::from_name(name).unwrap();
            let history = range.history(&[], now);
            assert_eq!((history.resolution_seconds, history.points.len()), (seconds, count));
            let starts: Vec<i64> = history.points.iter().map(|Object(point)| point.start.0).collect();
            let step = i64::try_from(seconds).unwrap() * 1000;
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == step));
            assert!(starts.iter().all(|start| start % step == 0));
            let end = starts.last().unwrap() + step;
            assert!(end <= now.0 && now.0 - end < step, "the newest bucket is the last complete one");
        }
        for name in ["", "1H", "2h", "24h ", "day"] {
            assert_eq!(Range::from_name(name), None, "{name:?}");
        }
    }

    /// D 82. Each metric of a bucket is its own extreme; a metric that nobody measured is null.
    #[test]
    fn a_bucket_keeps_the_extremes() {
        let now = Timestamp(3_600_000);
        let sample = |at, cpu, memory, disk| Sample {
            observed_at: Timestamp(at),
            cpu_utilization: cpu,
            memory_used_bytes: memory,
            available_disk_bytes: disk,
        };
        let samples = [
            sample(-1, Some(1.0), None, None),
            sample(0, Some(0.5), Some(7), None),
            sample(59_999, Some(0.25), Some(9), None),
            sample(60_000, None, None, Some(4)),
            sample(90_000, None, Some(1), Some(3)),
            sample(3_600_000, Some(1.0), None, None),
        ];
        let points = Range::Hour.history(&samples, now).points;
        let shown = |at: usize| {
            let Object(point) = points[at];
            (point.cpu_utilization_max, point.memory_used_bytes_max, point.available_disk_bytes_min)
        };
        assert_eq!(shown(0), (Some(0.5), Some(9), None));
        assert_eq!(shown(1), (None, Some(1), Some(3)));
        assert!((2..60).all(|at| shown(at) == (None, None, None)));
    }

    /// D 82. A sample belongs to the bucket of its time, wherever the range begins.
    #[test]
    fn a_sample_lands_in_the_bucket_of_its_time() {
        let now = Timestamp(1_700_000_123_456);
        let start = Range::Hour.start(now).0;
        let at = |ms| Sample {
            observed_at: Timestamp(start + ms),
            cpu_utilization: Some(0.5),
            memory_used_bytes: None,
            available_disk_bytes: None,
        };
        let points = Range::Hour.history(&[at(-1), at(60_000), at(3_599_999), at(3_600_000)], now).points;
        let hit: Vec<usize> = (0..60).filter(|&at| points[at].0.cpu_utilization_max.is_some()).collect();
        assert_eq!(hit, [1, 59]);
    }
}
