//! Aligned columns for a terminal.

use comfy_table::{Table, presets};

/// A table with a header and no lines.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows = rows.into_iter().map(|row| row.map(|cell| inert(&cell)));
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header).add_rows(rows);
    table.lines().map(|line| line.trim().to_owned() + "\n").collect()
}

/// A text whose every character is shown and does nothing else: a node chooses its own name, and a terminal obeys control
/// characters and those that turn the direction of writing.
fn inert(text: &str) -> String {
    let active = |character: char| {
        character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if active(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
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

    /// A node enrolls with a name that would colour the terminal, set its title, and write from right to left.
    #[test]
    fn a_name_cannot_command_the_terminal() {
        let name = "n\u{1b}[31m\u{1b}]0;title\u{7}\t\u{202e}é";
        let shown = table(["NODE", "NAME"], [["1".to_owned(), name.to_owned()]]);
        assert!(shown.contains(r"n\u{1b}[31m\u{1b}]0;title\u{7}\t\u{202e}é"), "{shown}");
        assert!(shown.chars().all(|character| character == '\n' || !character.is_control()), "{shown:?}");
    }

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
