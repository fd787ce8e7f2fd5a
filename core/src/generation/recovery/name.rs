//! Names in `generations/` (node-host §1.5).

use crate::units::Generation;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// `<g>.json`.
    Configuration(Generation),
    /// `<g>.preparing`.
    Preparing(Generation),
    /// `<g>.collecting`.
    Collecting(Generation),
    /// `<g>.dropped`.
    Dropped(Generation),
    /// `<g>.lease`.
    Lease(Generation),
    /// `<g>.lease-identity`.
    LeaseRecord(Generation),
    /// What an interrupted write left behind, or nothing of ours: ignored.
    Unknown,
}

/// A name that ends like a record and is none: the whole scan is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("a file in state/node/generations is named like a record, but for no generation; remove or rename it")]
pub struct IllegalName;

impl Name {
    /// Reads a name: a canonical number up to 2^63 − 1, a dot, and the suffix of a record.
    ///
    /// # Errors
    /// The suffix of a record behind anything else.
    pub fn parse(text: &str) -> Result<Self, IllegalName> {
        let Some((number, suffix)) = text.rsplit_once('.') else { return Ok(Self::Unknown) };
        let name = match suffix {
            "json" => Self::Configuration,
            "preparing" => Self::Preparing,
            "collecting" => Self::Collecting,
            "dropped" => Self::Dropped,
            "lease" => Self::Lease,
            "lease-identity" => Self::LeaseRecord,
            _ => return Ok(Self::Unknown),
        };
        let canonical = !number.starts_with('0') && number.bytes().all(|byte| byte.is_ascii_digit());
        let generation = number.parse().ok().filter(|_| canonical).and_then(Generation::new);
        generation.map(name).ok_or(IllegalName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that only resembles a record's is never taken for one, and never passed over.
    #[test]
    fn names_of_records_are_canonical() {
        let generation = |number| Generation::new(number).unwrap();
        assert_eq!(Name::parse("7.json"), Ok(Name::Configuration(generation(7))));
        assert_eq!(Name::parse("10.preparing"), Ok(Name::Preparing(generation(10))));
        assert_eq!(Name::parse("1.collecting"), Ok(Name::Collecting(generation(1))));
        assert_eq!(Name::parse("1.dropped"), Ok(Name::Dropped(generation(1))));
        assert_eq!(Name::parse("2.lease"), Ok(Name::Lease(generation(2))));
        assert_eq!(Name::parse("2.lease-identity"), Ok(Name::LeaseRecord(generation(2))));
        assert_eq!(Name::parse("9223372036854775807.json"), Ok(Name::Configuration(generation(i64::MAX as u64))));
        for illegal in ["0.json", "01.json", "+1.json", "-1.json", " 1.json", "1 .json", ".json", "a.json", "1.2.json"]
        {
            assert_eq!(Name::parse(illegal), Err(IllegalName), "{illegal}");
            assert_eq!(Name::parse(&illegal.replace("json", "dropped")), Err(IllegalName), "{illegal}");
        }
        assert_eq!(Name::parse("9223372036854775808.preparing"), Err(IllegalName));
        for unknown in ["1.json.partial", ".1.json.partial", "json", "1", "", "1.JSON", "1.json2", "notes.txt"] {
            assert_eq!(Name::parse(unknown), Ok(Name::Unknown), "{unknown}");
        }
    }
}
