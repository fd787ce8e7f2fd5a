//! Keys are read from files, so that they stand in no argument.

use std::path::Path;

use anyhow::{Context as _, bail};

/// The first key of a file with one key a line.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    let keys = std::fs::read_to_string(file).with_context(|| format!("cannot read the key file {}", file.display()))?;
    let key = keys.lines().map(str::trim).find(|line| !line.is_empty());
    let key = key.with_context(|| format!("the key file {} holds no key", file.display()))?;
    // Anything else cannot be sent, and nobody would know why.
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "the first line of the key file {} is no key; expected printable ascii characters without space",
            file.display()
        );
    }
    Ok(key.to_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "throw-away files of a test")]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_key_and_what_cannot_be_one_is_refused_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "\n a-core-key \nanother\n").unwrap();
        assert_eq!(read(&file).unwrap(), "a-core-key");
        for text in ["hunter2 \u{1}\n", "hunter2 with space\n", "hunter2é\n"] {
            std::fs::write(&file, text).unwrap();
            let refused = read(&file).unwrap_err().to_string();
            assert!(refused.contains(&file.display().to_string()) && !refused.contains("hunter2"), "{refused}");
        }
    }
}
