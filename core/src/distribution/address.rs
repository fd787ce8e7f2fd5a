//! Addresses that bytes may come from (node-host §5.2, §5.5).

use super::Commit;
use crate::deployment::origin::Origin;

/// Whether a manifest may name this folder as the place of its files: https, versioned, and nothing secret in it.
///
/// One segment of the path is the release's tag: `build-` and the commit, or a tag that begins with `v`. `latest` moves, so
/// no segment may be called that.
#[must_use]
pub fn is_release_folder(url: &str, commit: &Commit) -> bool {
    let Some(path) = path_of(url) else { return false };
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut segments = path.split('/');
    let built = format!("build-{commit}");
    let is_tag = |segment: &str| segment == built || is_version(segment);
    path.split('/').any(is_tag) && segments.all(|segment| !matches!(segment, "" | "." | ".." | "latest"))
}

/// `v` and a digit, then letters, digits and `.-_+`.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| {
        rest.starts_with(|first: char| first.is_ascii_digit())
            && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+'))
    })
}

/// Whether a download may be sent on to this address: absolute, https, and without user, fragment, whitespace or backslash.
#[must_use]
pub fn is_redirect_target(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    is_plain(url) && !url.contains('#') && Origin::parse(&url[..url.len() - rest.len() + authority.len()]).is_some()
}

/// The path of an https address without user, query and fragment, from behind its first slash.
fn path_of(url: &str) -> Option<&str> {
    let (_, path) = url.strip_prefix("https://")?.split_once('/')?;
    let origin = &url[..url.len() - path.len()];
    (is_plain(url) && !path.contains(['?', '#']) && Origin::parse(origin).is_some()).then_some(path)
}

/// Printable ASCII without space, backslash and percent-encoded tricks in the authority.
fn is_plain(url: &str) -> bool {
    url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H 35. The base is versioned https without user, query or fragment.
    #[test]
    fn a_release_folder_is_versioned_and_secure() {
        let commit = Commit::parse(&"ab".repeat(20)).unwrap();
        let built = format!("https://files.example/download/build-{commit}");
        for good in [built.as_str(), "https://files.example/v1.2.3", "https://files.example:8443/a/v2/files/"] {
            assert!(is_release_folder(good, &commit), "{good}");
        }
        let other = format!("https://files.example/build-{}", "cd".repeat(20));
        for bad in [
            "",
            "v1",
            "http://files.example/v1",
            "ftp://files.example/v1",
            "https://files.example",
            "https://files.example/",
            "https://files.example/files",
            "https://files.example/v",
            "https://files.example/vendor",
            "https://files.example/latest/v1",
            "https://files.example/v1/latest",
            "https://files.example/../v1",
            "https://files.example//v1",
            "https://files.example/v1//",
            "https://user@files.example/v1",
            "https://user:secret@files.example/v1",
            "https://files.example/v1?a=b",
            "https://files.example/v1#a",
            "https://files.example/v1 ",
            "https://files.example/v1\n",
            "https://files.example\\v1",
            &other,
        ] {
            assert!(!is_release_folder(bad, &commit), "{bad:?}");
        }
    }

    /// H 12, H 14. A redirect leads to https, with nothing hidden in the address. A query is where storage services sign.
    #[test]
    fn a_redirect_leads_to_a_plain_https_address() {
        for good in ["https://files.example/a", "https://files.example", "https://10.0.0.1:8443/a?signature=x%2F"] {
            assert!(is_redirect_target(good), "{good}");
        }
        for bad in [
            "",
            "/a",
            "//files.example/a",
            "http://files.example/a",
            "HTTPS://files.example/a",
            "https:///a",
            "https://user@files.example/a",
            "https://user:secret@files.example/a",
            "https://files.example/a#b",
            "https://files.example/a b",
            "https://files.example/a\tb",
            "https://files.example\\@evil.example/a",
            "https://files.example:0/a",
            "https://files.example?@evil.example#",
            "data:text/plain,a",
            "file:///etc/passwd",
        ] {
            assert!(!is_redirect_target(bad), "{bad:?}");
        }
    }
}
