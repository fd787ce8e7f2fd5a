//! Any text as one word of a shell.

/// The text in single quotes, between which a shell of the POSIX family reads nothing as a command.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn a_quote_ends_the_quotes_stands_for_itself_and_begins_them_again() {
        assert_eq!(quote(""), "''");
        assert_eq!(quote("a b$(c)`d`\\"), r"'a b$(c)`d`\'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote("'"), r"''\'''");
    }
}
