//! Memory from `/proc/meminfo` (wire §8.2).

use super::expressible;

/// Bytes; `None` is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Memory {
    pub(super) total: Option<u64>,
    pub(super) available: Option<u64>,
}

pub(super) fn read(meminfo: Option<&str>) -> Memory {
    let Some(meminfo) = meminfo else { return Memory::default() };
    let total = bytes(meminfo, "MemTotal:").filter(|total| *total > 0);
    let available = bytes(meminfo, "MemAvailable:").filter(|available| total.is_none_or(|total| *available <= total));
    Memory { total, available }
}

/// The value of the one line with this name, in kB.
fn bytes(meminfo: &str, name: &str) -> Option<u64> {
    let mut lines = meminfo.lines().filter(|line| line.split_ascii_whitespace().next() == Some(name));
    let (line, None) = (lines.next()?, lines.next()) else { return None };
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, value, "kB"] = words[..] else { return None };
    if !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    expressible(value.parse::<u64>().ok()?.checked_mul(1024)?)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn both_values_are_read_among_others() {
        let memory = read(Some("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:\t10 kB\nMemTotalOther: 5 kB\n"));
        assert_eq!(memory, Memory { total: Some(1_024_000), available: Some(10_240) });
    }

    #[rstest]
    #[case("MemTotal: 0 kB")]
    #[case("MemTotal: -1 kB")]
    #[case("MemTotal: +1 kB")]
    #[case("MemTotal: 18446744073709551615 kB")]
    #[case("MemTotal: 18446744073709551616 kB")]
    #[case("MemTotal: 9007199254740992 kB")]
    #[case("MemTotal: 1 MB")]
    #[case("MemTotal: 1 KB")]
    #[case("MemTotal: 1")]
    #[case("MemTotal: 1 kB more")]
    #[case("MemTotal: one kB")]
    #[case("MemTotal: 0x1 kB")]
    #[case("MemTotal: 1 kB\nMemTotal: 1 kB")]
    #[case("memtotal: 1 kB")]
    #[case("")]
    /// W 169. A total that is no positive number of kB in exactly one line is unknown.
    fn a_doubtful_total_is_unknown(#[case] meminfo: &str) {
        assert_eq!(read(Some(meminfo)).total, None);
    }

    /// W 169. Available 0 is a measurement.
    #[test]
    fn no_available_memory_is_known() {
        assert_eq!(read(Some("MemTotal: 1 kB\nMemAvailable: 0 kB")).available, Some(0));
    }

    #[test]
    fn more_available_than_there_is_is_unknown() {
        assert_eq!(read(Some("MemTotal: 1 kB\nMemAvailable: 2 kB")), Memory { total: Some(1024), available: None });
    }

    /// W 168. Without the file both are unknown.
    #[test]
    fn a_missing_file_leaves_both_unknown() {
        assert_eq!(read(None), Memory::default());
    }
}
