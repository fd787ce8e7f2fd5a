//! Where each file of a release is served (node-host §5.7). Nodes write these paths and Core reads them.

use std::fmt;

use super::Commit;
use super::manifest::is_filename;

/// Everything that is served stands below this.
pub const PREFIX: &str = "/node-install/";

/// One file of one release, as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route<'a> {
    /// Which release; `None` for the one that is offered now.
    pub release: Option<Commit>,
    /// Which file.
    pub file: File<'a>,
}

/// A file of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum File<'a> {
    /// `manifest.json`.
    Manifest,
    /// `SHA256SUMS`.
    Sums,
    /// The installer, one executable (decision 23).
    Installer,
    /// The system-call filter.
    Seccomp,
    /// A file that the manifest declares, by its published name.
    Artifact(&'a str),
}

/// The folder of the files that the manifest declares.
pub const ARTIFACTS: &str = "artifacts";
/// The folder of the releases in a payload folder.
pub const RELEASES: &str = "releases";
/// The pointer to the release that is offered now.
pub const POINTER: &str = "active.json";

impl<'a> File<'a> {
    /// The four files that every release has.
    pub const FIXED: [Self; 4] = [Self::Manifest, Self::Sums, Self::Installer, Self::Seccomp];

    /// Where it stands below the folder of its release.
    #[must_use]
    pub fn path(self) -> std::borrow::Cow<'a, str> {
        match self {
            Self::Manifest => "manifest.json".into(),
            Self::Sums => "SHA256SUMS".into(),
            Self::Installer => "node-install".into(),
            Self::Seccomp => super::catalogue::SECCOMP.into(),
            Self::Artifact(name) => format!("{ARTIFACTS}/{name}").into(),
        }
    }
}

impl<'a> Route<'a> {
    /// Reads the path of a request exactly as it came, without decoding anything: another way to write a path is no path.
    #[must_use]
    pub fn parse(path: &'a str) -> Option<Self> {
        let rest = path.strip_prefix(PREFIX)?;
        let of_release = rest.strip_prefix(RELEASES).and_then(|rest| rest.strip_prefix('/'));
        let (release, rest) = match of_release {
            Some(rest) => {
                let (commit, rest) = rest.split_once('/')?;
                (Some(Commit::parse(commit).ok()?), rest)
            }
            None => (None, rest),
        };
        let fixed = File::FIXED.into_iter().find(|file| file.path() == rest);
        let artifact = || {
            let name = rest.strip_prefix(ARTIFACTS)?.strip_prefix('/')?;
            is_filename(name).then_some(File::Artifact(name))
        };
        Some(Self { release, file: fixed.or_else(artifact)? })
    }
}

impl fmt::Display for Route<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        if let Some(commit) = &self.release {
            write!(f, "{RELEASES}/{commit}/")?;
        }
        f.write_str(&self.file.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_reads_back() {
        let commit = Commit::parse(&"ab".repeat(20)).unwrap();
        for release in [None, Some(commit)] {
            for file in File::FIXED.into_iter().chain([File::Artifact("oac-x-linux-amd64-msb")]) {
                let route = Route { release: release.clone(), file };
                assert_eq!(Route::parse(&route.to_string()), Some(route.clone()), "{route}");
            }
        }
        let seccomp = Route { release: None, file: File::Seccomp };
        assert_eq!(seccomp.to_string(), "/node-install/runtime/seccomp.json");
    }

    /// H 21, H 33. Exact paths only: no pointer, no listing, no nesting, no other spelling of a path.
    #[test]
    fn anything_but_an_exact_path_is_no_route() {
        let commit = "ab".repeat(20);
        for rest in [
            "",
            "/",
            "active.json",
            "releases",
            "releases/",
            "artifacts",
            "artifacts/",
            "artifacts/.",
            "artifacts/..",
            "artifacts/a/b",
            "artifacts/../manifest.json",
            "artifacts/a%2fb",
            "artifacts/%2e%2e",
            "manifest.json/",
            "/manifest.json",
            "./manifest.json",
            "runtime/../manifest.json",
            "runtime/",
            "runtime/other.json",
            "MANIFEST.JSON",
            "manifest%2ejson",
            "node-install.pyz",
            "releases/latest/manifest.json",
            "releases//manifest.json",
            "releases/../manifest.json",
            &format!("releases/{commit}"),
            &format!("releases/{commit}/"),
            &format!("releases/{commit}/active.json"),
            &format!("releases/{commit}/releases/{commit}/manifest.json"),
            &format!("releases/{}/manifest.json", commit.to_uppercase()),
        ] {
            assert_eq!(Route::parse(&format!("{PREFIX}{rest}")), None, "{rest}");
        }
        for path in
            ["", "/", "/node-install", "/node-installer", "node-install/manifest.json", "/x/node-install/SHA256SUMS"]
        {
            assert_eq!(Route::parse(path), None, "{path}");
        }
    }
}
