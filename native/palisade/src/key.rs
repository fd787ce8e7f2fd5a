//! Keys are read from files, so that they stand in no argument.

use std::path::Path;

use anyhow::Context as _;

/// The first key of a file with one key a line.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    let keys = std::fs::read_to_string(file).with_context(|| format!("cannot read the key file {}", file.display()))?;
    let key = keys.lines().map(str::trim).find(|line| !line.is_empty());
    Ok(key.with_context(|| format!("the key file {} holds no key", file.display()))?.to_owned())
}
