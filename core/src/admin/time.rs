//! Time stamps of answers: RFC 3339 in UTC (deployment §1.0).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::wire::time::Instant;

const DAY_MS: i64 = 86_400_000;

/// An instant in whole milliseconds since 1970-01-01T00:00:00Z, of the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, JsonSchema)]
pub struct Timestamp(#[schemars(with = "String", extend("format" = "date-time"))] pub i64);

impl Timestamp {
    /// Milliseconds from `earlier`, 0 when it is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// Whole seconds since 1970, rounded down.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Reads an RFC 3339 time; digits beyond the millisecond are dropped.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let Instant { seconds, nanoseconds } = Instant::parse(text)?;
        Some(Self(seconds * 1000 + i64::from(nanoseconds / 1_000_000)))
    }
}

/// Year, month and day of a day since 1970-01-01; years begin in March so that leap days come last.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = (shifted_month + 2) % 12 + 1;
    let year = year_of_era + shifted.div_euclid(146_097) * 400 + (month <= 2) as i64;
    (year, month, day_of_year - (153 * shifted_month + 2) / 5 + 1)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0.div_euclid(DAY_MS));
        let millis = self.0.rem_euclid(DAY_MS);
        let (seconds, millis) = (millis / 1000, millis % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("expected an RFC 3339 time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_read_back_from_their_text() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_399_001, "2100-02-28T23:59:59.001Z"),
        ] {
            assert_eq!(Timestamp(millis).to_string(), text);
            assert_eq!(Timestamp::parse(text), Some(Timestamp(millis)));
        }
        assert_eq!(Timestamp::parse("1970-01-01T00:00:01Z"), Some(Timestamp(1000)));
    }

    /// Counts the calendar up day by day, over two whole cycles of four centuries.
    #[test]
    fn every_day_has_the_date_that_follows_the_day_before() {
        let (mut year, mut month, mut day) = (1600, 1, 1);
        let first = -135_140;
        assert_eq!(Timestamp(first * DAY_MS).to_string(), "1600-01-01T00:00:00.000Z");
        for days in first..first + 2 * 146_097 {
            assert_eq!(civil_from_days(days), (year, month, day), "day {days}");
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            day += 1;
            if day > lengths[usize::try_from(month - 1).unwrap()] {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }

    #[test]
    fn spans_and_seconds_round_towards_the_past() {
        assert_eq!(Timestamp(5).since(Timestamp(2)), 3);
        assert_eq!(Timestamp(2).since(Timestamp(5)), 0);
        assert_eq!(Timestamp(1999).seconds(), 1);
        assert_eq!(Timestamp(-1).seconds(), -1);
        assert_eq!(Timestamp::parse("1970-01-01T00:00:01.987654321Z"), Some(Timestamp(1987)));
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in [
            "",
            "1970-01-01",
            "1970-02-30T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01t00:00:00Z",
            "1970-01-01T00:00:00.Z",
            "+970-01-01T00:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }
}
