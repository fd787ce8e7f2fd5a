//! RFC 3339 times as the wire writes them.

/// A point in time: seconds since 1970-01-01T00:00:00Z and nanoseconds of that second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// 0 … 999 999 999.
    pub nanoseconds: u32,
}

/// First second of the year 10000.
const YEAR_10000: i64 = 253_402_300_800;

impl Instant {
    /// Reads `YYYY-MM-DDTHH:MM:SS[.fraction](Z|±HH:MM)`: upper-case letters, seconds 00 to 59, at most nine
    /// fraction digits, an offset of at most 23:59.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (head, rest) = bytes.split_at_checked(19)?;
        for (at, separator) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
            if head[at] != separator {
                return None;
            }
        }
        let (year, month, day) = (digits(&head[..4])?, digits(&head[5..7])?, digits(&head[8..10])?);
        if !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
            return None;
        }
        let clock = clock(digits(&head[11..13])?, digits(&head[14..16])?)? + second(digits(&head[17..19])?)?;
        let (nanoseconds, zone) = fraction(rest)?;
        let seconds = days_before(year, month, day) * 86_400 + clock - offset(zone)?;
        Some(Self { seconds, nanoseconds })
    }

    /// Whether the instant, in UTC, lies in the years 1970 to 9999.
    #[must_use]
    pub const fn in_observed_years(self) -> bool {
        self.seconds >= 0 && self.seconds < YEAR_10000
    }
}

fn digits(bytes: &[u8]) -> Option<i64> {
    bytes.iter().try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
}

fn clock(hour: i64, minute: i64) -> Option<i64> {
    (hour <= 23 && minute <= 59).then_some(hour * 3_600 + minute * 60)
}

fn second(second: i64) -> Option<i64> {
    (second <= 59).then_some(second)
}

/// Nanoseconds of an optional fraction, and what follows it.
fn fraction(rest: &[u8]) -> Option<(u32, &[u8])> {
    let Some(rest) = rest.strip_prefix(b".") else {
        return Some((0, rest));
    };
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&length) {
        return None;
    }
    let (value, zone) = rest.split_at(length);
    let missing = u32::try_from(9 - length).ok()?;
    let nanoseconds = u32::try_from(digits(value)?).ok()? * 10_u32.pow(missing);
    Some((nanoseconds, zone))
}

/// Seconds that the zone is ahead of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    match zone {
        b"Z" => Some(0),
        [sign @ (b'+' | b'-'), hour @ .., b':', tens, ones] if hour.len() == 2 => {
            let ahead = clock(digits(hour)?, digits(&[*tens, *ones])?)?;
            Some(if *sign == b'-' { -ahead } else { ahead })
        }
        _ => None,
    }
}

const fn days_of(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar.
const fn days_before(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last day of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era_days = year.div_euclid(400) * 146_097;
    let year = year.rem_euclid(400);
    era_days + year * 365 + year / 4 - year / 100 + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("1970-01-01T00:00:00Z", 0, 0)]
    #[case("2026-10-01T08:00:00.123456Z", 1_790_841_600, 123_456_000)]
    #[case("1970-01-01T01:00:00+01:00", 0, 0)]
    #[case("1969-12-31T23:59:59.000000001-00:00", -1, 1)]
    #[case("2000-02-29T00:00:00Z", 951_782_400, 0)]
    #[case("9999-12-31T23:59:59Z", 253_402_300_799, 0)]
    #[case("0001-01-01T00:00:00Z", -62_135_596_800, 0)]
    #[case("0000-03-01T00:00:00+23:59", -62_162_035_200 - 86_340, 0)]
    fn times_are_read(#[case] text: &str, #[case] seconds: i64, #[case] nanoseconds: u32) {
        assert_eq!(Instant::parse(text), Some(Instant { seconds, nanoseconds }));
    }

    /// Counts the calendar up day by day, over every year that a time can be written in.
    #[test]
    fn every_day_follows_the_day_before() {
        let mut days = Instant::parse("0000-01-01T00:00:00Z").unwrap().seconds / 86_400;
        for year in 0..=9_999 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            for (month, length) in (1..).zip(lengths) {
                assert_eq!(days_of(year, month), length, "{year}-{month}");
                for day in [1, length] {
                    assert_eq!(days_before(year, month, day), days + day - 1, "{year}-{month}-{day}");
                }
                days += length;
            }
        }
        assert_eq!(days * 86_400, YEAR_10000);
    }

    #[rstest::rstest]
    #[case("1969-12-31T23:59:59.999999999Z", false)]
    #[case("1970-01-01T00:00:00Z", true)]
    #[case("9999-12-31T23:59:59.999999999Z", true)]
    #[case("9999-12-31T23:59:00-00:01", false)]
    fn observed_years_are_1970_to_9999_in_utc(#[case] text: &str, #[case] within: bool) {
        assert_eq!(Instant::parse(text).unwrap().in_observed_years(), within);
    }

    #[rstest::rstest]
    fn other_texts_are_no_times(
        #[values(
            "",
            "2026-10-01",
            "2026-10-01t08:00:00Z",
            "2026-10-01T08:00:00z",
            "2026-10-01 08:00:00Z",
            "2026-10-01T08:00:60Z",
            "2026-10-01T24:00:00Z",
            "2026-10-01T08:60:00Z",
            "2026-02-29T08:00:00Z",
            "1900-02-29T08:00:00Z",
            "2026-13-01T08:00:00Z",
            "2026-00-01T08:00:00Z",
            "2026-04-31T08:00:00Z",
            "2026-10-00T08:00:00Z",
            "2026-10-01T08:00:00",
            "2026-10-01T08:00:00.Z",
            "2026-10-01T08:00:00.1234567890Z",
            "2026-10-01T08:00:00,5Z",
            "2026-10-01T08:00:00+24:00",
            "2026-10-01T08:00:00+23:60",
            "2026-10-01T08:00:00+2359",
            "2026-10-01T08:00:00ZZ",
            "+026-10-01T08:00:00Z",
            "2026-10-01T8:00:00Z",
            "\u{ff12}026-10-01T08:00:00Z",
            "2026-10-01T08:00:00+1:000",
            "2026-10-01T08:00:00+1:00",
            "2026-10-01T08:00:00+001:00"
        )]
        text: &str,
    ) {
        assert_eq!(Instant::parse(text), None);
    }
}
