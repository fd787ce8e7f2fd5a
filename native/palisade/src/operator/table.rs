//! Aligned columns for a terminal.

use comfy_table::{Table, presets};

/// A table with a header and no lines.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header).add_rows(rows);
    table.lines().map(|line| line.trim().to_owned() + "\n").collect()
}

/// A size that a person reads at a glance; `-` when it is unknown.
pub(crate) fn bytes(size: Option<u64>) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let Some(size) = size else { return "-".to_owned() };
    let power = (size.max(1).ilog2() / 10).min(4);
    let tenths = u128::from(size) * 10 / (1 << (10 * power));
    match power {
        0 => format!("{size} B"),
        _ => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[power as usize]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_below_them() {
        for (size, shown) in [
            (None, "-"),
            (Some(0), "0 B"),
            (Some(1023), "1023 B"),
            (Some(1536), "1.5 KiB"),
            (Some(3 << 30), "3.0 GiB"),
            (Some(u64::MAX), "16777215.9 TiB"),
        ] {
            assert_eq!(bytes(size), shown);
        }
    }
}
