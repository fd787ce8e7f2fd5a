//! The configuration file. What it says is never quoted in an error: it may hold a password.

use std::path::Path;

use anyhow::{Context as _, bail};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::{Form, SETTINGS, Setting, find};
use crate::usage::Usage;

/// One line of the file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) setting: &'static Setting,
    pub(super) text: String,
    /// Counted from 1.
    pub(super) line: usize,
}

/// Reads a file with nothing in it but known settings.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    let refused =
        |error: anyhow::Error| Usage(format!("the configuration file {} is refused: {error}", path.display())).into();
    parse(&text).map_err(refused)
}

fn parse(text: &str) -> anyhow::Result<Vec<Entry>> {
    let line = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or_else(String::new, |span| format!("line {}: ", line(span.start)));
        anyhow::anyhow!("{at}it is no TOML; expected lines such as listen = \"127.0.0.1:8080\"")
    })?;
    let entries = table.get_ref().iter().map(|(key, value)| entry(key.get_ref(), value, line(key.span().start)));
    entries.collect()
}

fn entry(key: &str, value: &Spanned<DeValue<'_>>, line: usize) -> anyhow::Result<Entry> {
    let Some(setting) = find(key) else {
        let known: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
        bail!("line {line}: unknown member {}; expected one of {}", shown(key), known.join(", "));
    };
    let text = written(value.get_ref(), setting.form);
    let text = text.with_context(|| format!("line {line}: {key} must be {}", setting.form.expected()))?;
    Ok(Entry { setting, text, line })
}

/// A name as somebody wrote it, without what a terminal would obey.
fn shown(key: &str) -> String {
    let name: String = key.chars().filter(|character| !character.is_control()).take(64).collect();
    format!("`{name}`")
}

fn written(value: &DeValue<'_>, form: Form) -> Option<String> {
    match form {
        Form::Text => value.as_str().map(str::to_owned),
        Form::Integer => {
            value.as_integer().filter(|number| number.radix() == 10).map(|number| number.as_str().to_owned())
        }
        Form::Texts => {
            let texts = value.as_array()?.iter().map(|item| item.get_ref().as_str());
            let texts: Vec<&str> = texts.collect::<Option<_>>()?;
            serde_json::to_string(&texts).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn members_are_read_with_their_lines() {
        let text = "# a comment\nlisten = \"127.0.0.1:1\"\nbody_budget_mib = 256\nadmin_key_sha256s = [\"a\", \"b\"]\n";
        let entries = parse(text).unwrap();
        let read =
            |key| entries.iter().find(|entry| entry.setting.key == key).map(|entry| (entry.text.as_str(), entry.line));
        assert_eq!(read("listen"), Some(("127.0.0.1:1", 2)));
        assert_eq!(read("body_budget_mib"), Some(("256", 3)));
        assert_eq!(read("admin_key_sha256s"), Some(("[\"a\",\"b\"]", 4)));
    }

    #[test]
    fn an_unknown_member_is_refused_with_its_line_and_what_is_expected() {
        let told = refused("listen = \"127.0.0.1:1\"\nlistne = \"127.0.0.1:2\"\n");
        assert!(
            told.starts_with("line 2: unknown member `listne`; expected one of listen, public_url, data"),
            "{told}"
        );
        assert!(refused("[core]\nlisten = \"127.0.0.1:1\"\n").starts_with("line 1: unknown member `core`"));
        assert!(refused("Listen = \"127.0.0.1:1\"").contains("`Listen`"), "letter case counts");
    }

    #[test]
    fn no_refusal_quotes_a_value() {
        for text in [
            "database_url = \"hunter2",
            "database_url = hunter2",
            "database_url = [\"hunter2\"]",
            "admin_key_sha256s = \"hunter2\"",
            "admin_key_sha256s = [\"hunter2\", 1]",
            "listen = \"a\"\nlisten = \"hunter2\"",
            "body_budget_mib = \"hunter2\"",
            "= \"hunter2\"",
        ] {
            let told = refused(text);
            assert!(told.starts_with("line ") && !told.contains("hunter2"), "{told}");
        }
    }
}
