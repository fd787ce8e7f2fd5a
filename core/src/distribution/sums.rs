//! `SHA256SUMS` (node-host §5.2).

use std::collections::BTreeMap;

use crate::limits::METADATA_MAX_BYTES;
use crate::units::Digest;

/// Path → digest of every file that it lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sums(BTreeMap<String, Digest>);

/// Why a list was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSums {
    /// Too large, or no text.
    #[error("expected at most 1 MiB of text")]
    Text,
    /// A line of another form.
    #[error("line {0}: expected 64 lower-case hexadecimal characters, two spaces and a relative path")]
    Line(usize),
    /// Lines out of order, or one name twice.
    #[error("line {0}: expected names in rising order, each once")]
    Order(usize),
}

impl Sums {
    /// A list of these files.
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, Digest)>) -> Self {
        Self(files.into_iter().map(|(path, digest)| (path.to_owned(), digest)).collect())
    }

    /// Reads a whole list; every line ends with a line feed.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidSums> {
        let text = std::str::from_utf8(bytes).map_err(|_| InvalidSums::Text)?;
        if bytes.len() > METADATA_MAX_BYTES || !(text.is_empty() || text.ends_with('\n')) {
            return Err(InvalidSums::Text);
        }
        let mut files = BTreeMap::new();
        for (number, line) in (1..).zip(text.split_terminator('\n')) {
            let (path, digest) = entry(line).ok_or(InvalidSums::Line(number))?;
            let rises = files.last_key_value().is_none_or(|(last, _): (&String, _)| last.as_str() < path);
            if !rises {
                return Err(InvalidSums::Order(number));
            }
            files.insert(path.to_owned(), digest);
        }
        Ok(Self(files))
    }

    /// What it says about a file.
    #[must_use]
    pub fn of(&self, path: &str) -> Option<Digest> {
        self.0.get(path).copied()
    }

    /// Every path it lists, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let lines = self.0.iter().map(|(path, digest)| format!("{digest}  {path}\n"));
        lines.collect::<String>().into_bytes()
    }
}

fn entry(line: &str) -> Option<(&str, Digest)> {
    let (digest, path) = line.split_once("  ")?;
    let clean = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    clean.then_some((path, Digest::parse(digest).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_written_sorted_and_reads_back() {
        let sums = Sums::new([("runtime/seccomp.json", Digest::of(b"b")), ("manifest.json", Digest::of(b"a"))]);
        let text = String::from_utf8(sums.to_bytes()).unwrap();
        let names: Vec<_> = text.lines().map(|line| &line[66..]).collect();
        assert_eq!(names, ["manifest.json", "runtime/seccomp.json"]);
        assert!(sums.paths().eq(names));
        assert_eq!(Sums::parse(text.as_bytes()).unwrap(), sums);
        assert_eq!((sums.of("manifest.json"), sums.of("other")), (Some(Digest::of(b"a")), None));
    }

    /// H 25. Duplicate names, malformed lines and paths that leave the folder.
    #[test]
    fn a_malformed_list_is_refused() {
        let digest = Digest::of(b"a");
        let line = |path: &str| format!("{digest}  {path}\n");
        assert!(Sums::parse(line("a").as_bytes()).is_ok());
        for bad in [
            line("a").trim_end().to_owned(),
            line("a").to_uppercase(),
            line("a").replace("  ", " "),
            line("a").replace("  ", " *"),
            line(""),
            line("/a"),
            line("../a"),
            line("a/../b"),
            line("a b"),
            line("a\r"),
            line("a\\b"),
            line("a") + &line("a"),
            line("b") + &line("a"),
            format!("\n{}", line("a")),
            "x".repeat(METADATA_MAX_BYTES) + "\n",
        ] {
            assert!(Sums::parse(bad.as_bytes()).is_err(), "{bad:.200}");
        }
        assert_eq!(Sums::parse(b"\xff\n"), Err(InvalidSums::Text));
    }

    #[test]
    fn a_list_of_one_mebibyte_is_read_and_one_byte_more_is_refused() {
        let line = |length: usize| format!("{}  {}\n", Digest::of(b"a"), "p".repeat(length - 67));
        assert!(Sums::parse(line(METADATA_MAX_BYTES).as_bytes()).is_ok());
        assert_eq!(Sums::parse(line(METADATA_MAX_BYTES + 1).as_bytes()), Err(InvalidSums::Text));
    }
}
