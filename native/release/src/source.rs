//! Which source a release was built from.

use std::path::Path;
use std::process::Command;

use palisade_core::distribution::Commit;

use crate::Error;

/// The commit and the tree of a source, 40 lower-case hexadecimal characters each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    commit: Commit,
    tree: Commit,
    modified: bool,
}

impl Source {
    /// `None` unless both are 40 lower-case hexadecimal characters.
    #[must_use]
    pub fn new(commit: &str, tree: &str) -> Option<Self> {
        let (commit, tree) = (Commit::parse(commit).ok()?, Commit::parse(tree).ok()?);
        Some(Self { commit, tree, modified: false })
    }

    /// What `git` says about the folder.
    ///
    /// # Errors
    /// [`Error::Source`] without `git` or outside a repository.
    pub fn of(folder: &Path) -> Result<Self, Error> {
        let source = Self::new(&git(folder, &["rev-parse", "HEAD"])?, &git(folder, &["rev-parse", "HEAD^{tree}"])?);
        let Some(source) = source else { return Err(refusal(folder, "git names no SHA-1 commit")) };
        let modified = !git(folder, &["status", "--porcelain"])?.is_empty();
        Ok(Self { modified, ..source })
    }

    /// The commit.
    #[must_use]
    pub const fn commit(&self) -> &Commit {
        &self.commit
    }

    /// The tree of the commit.
    #[must_use]
    pub const fn tree(&self) -> &Commit {
        &self.tree
    }

    /// Whether the folder differed from the commit when it was looked at.
    #[must_use]
    pub const fn modified(&self) -> bool {
        self.modified
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String, Error> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output();
    let output = output.map_err(|error| refusal(folder, &format!("git does not start: {error}")))?;
    if !output.status.success() {
        return Err(refusal(folder, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn refusal(folder: &Path, problem: &str) -> Error {
    Error::Source { path: folder.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_lower_case_identifiers_are_taken() {
        let good = "0123456789abcdef0123456789abcdef01234567";
        assert!(Source::new(good, good).is_some());
        for bad in ["", &good[1..], &good.to_uppercase(), &format!("{good}0")] {
            assert!(Source::new(bad, good).is_none(), "{bad}");
            assert!(Source::new(good, bad).is_none(), "{bad}");
        }
    }
}
