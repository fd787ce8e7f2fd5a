//! What a caller hears of a download.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::limits::PROGRESS_FILE_BYTES;

/// Something that happened to one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// It was there already, whole and verified.
    Kept {
        /// The logical path.
        path: &'a str,
    },
    /// A request is about to be made.
    Started {
        /// The logical path.
        path: &'a str,
        /// Bytes that an earlier download left.
        from: u64,
        /// Bytes of the whole file.
        size: u64,
    },
    /// Bytes arrived. Comes often.
    Advanced {
        /// The logical path.
        path: &'a str,
        /// Bytes so far.
        bytes: u64,
        /// Bytes of the whole file.
        size: u64,
    },
    /// What was there is no part of the file and was discarded.
    Restarted {
        /// The logical path.
        path: &'a str,
    },
    /// It is whole, verified and durable.
    Finished {
        /// The logical path.
        path: &'a str,
        /// Bytes of the whole file.
        size: u64,
    },
}

/// Hears of a download. An error stops it.
pub trait Progress: Send {
    /// Takes one event; must not block for long.
    fn event(&mut self, event: Event<'_>) -> io::Result<()>;
}

/// Hears nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn event(&mut self, _: Event<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Lines for people and journals: one per file, and for each file of 50 MiB or more one per 10 %.
#[derive(Debug)]
pub struct Lines<W> {
    out: W,
    /// Tenths that were said already, by path.
    said: BTreeMap<String, u64>,
}

impl<W: Write> Lines<W> {
    /// Writes to `out`.
    pub const fn new(out: W) -> Self {
        Self { out, said: BTreeMap::new() }
    }

    fn advanced(&mut self, path: &str, bytes: u64, size: u64) -> io::Result<()> {
        let tenth = bytes.saturating_mul(10) / size.max(1);
        let said = self.said.entry(path.to_owned()).or_default();
        if size < PROGRESS_FILE_BYTES || tenth <= *said || tenth > 9 {
            return Ok(());
        }
        *said = tenth;
        self.line(&format!("{path}: {}0 % of {} MiB", tenth, size >> 20))
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}").and_then(|()| self.out.flush())
    }
}

impl<W: Write + Send> Progress for Lines<W> {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Kept { path } => self.line(&format!("{path}: is there")),
            Event::Started { from: 0, .. } => Ok(()),
            Event::Started { path, from, .. } => self.line(&format!("{path}: goes on from byte {from}")),
            Event::Advanced { path, bytes, size } => self.advanced(path, bytes, size),
            Event::Restarted { path } => {
                self.said.remove(path);
                self.line(&format!("{path}: starts over"))
            }
            Event::Finished { path, size } => self.line(&format!("{path}: {size} bytes, verified")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_gets_a_line_per_tenth_and_a_small_one_a_single_line() {
        let mut lines = Lines::new(Vec::new());
        for (path, size) in [("small", PROGRESS_FILE_BYTES - 1), ("large", PROGRESS_FILE_BYTES)] {
            lines.event(Event::Started { path, from: 0, size }).unwrap();
            for step in 0..=1000 {
                lines.event(Event::Advanced { path, bytes: size * step / 1000, size }).unwrap();
            }
            lines.event(Event::Finished { path, size }).unwrap();
        }
        let text = String::from_utf8(lines.out).unwrap();
        let said: Vec<_> = text.lines().collect();
        assert_eq!(said.len(), 1 + 9 + 1, "{text}");
        assert_eq!((said[1], said[9]), ("large: 10 % of 50 MiB", "large: 90 % of 50 MiB"));
        assert_eq!(said[10], "large: 52428800 bytes, verified");
    }
}
