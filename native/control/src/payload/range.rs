//! Which bytes a request wants.

use axum::http::{HeaderMap, HeaderName, header};

/// What a request asks of a file of known size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// All of it, also when the range is of another version, of several parts, or not understood.
    Whole,
    /// `length` bytes from byte `first` on, at least one.
    Part { first: u64, length: u64 },
    /// Nothing that the file has.
    Outside,
}

impl Wish {
    /// Reads `Range`, which counts only while `If-Range` is absent or names this very version.
    pub(super) fn of(headers: &HeaderMap, size: u64, version: Option<&str>) -> Self {
        let Some(range) = only(headers, header::RANGE) else { return Self::Whole };
        let applies = !headers.contains_key(header::IF_RANGE)
            || version.is_some_and(|version| only(headers, header::IF_RANGE) == Some(version));
        if applies { Self::parse(range, size) } else { Self::Whole }
    }

    fn parse(range: &str, size: u64) -> Self {
        let Some((first, last)) = range.strip_prefix("bytes=").and_then(|span| span.split_once('-')) else {
            return Self::Whole;
        };
        let span = match (number(first), number(last)) {
            (Some(first), Some(last)) if first > last => return Self::Whole,
            (Some(first), Some(last)) => (first, last.saturating_add(1).min(size)),
            (Some(first), None) if last.is_empty() => (first, size),
            (None, Some(suffix)) if first.is_empty() => (size.saturating_sub(suffix), size),
            (Some(_) | None, None) | (None, Some(_)) => return Self::Whole,
        };
        match span {
            (first, end) if first < end => Self::Part { first, length: end - first },
            _ => Self::Outside,
        }
    }

    /// What `Content-Range` says.
    pub(super) fn content_range(self, size: u64) -> Option<String> {
        match self {
            Self::Whole => None,
            Self::Part { first, length } => Some(format!("bytes {first}-{}/{size}", first + length - 1)),
            Self::Outside => Some(format!("bytes */{size}")),
        }
    }
}

/// Digits alone; a number beyond 64 bits lies beyond every file.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn wish(entries: &[(HeaderName, &'static str)], size: u64) -> Wish {
        let headers = entries.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        Wish::of(&headers, size, Some("\"v\""))
    }

    #[rstest]
    #[case("bytes=0-", Wish::Part { first: 0, length: 100 })]
    #[case("bytes=40-", Wish::Part { first: 40, length: 60 })]
    #[case("bytes=99-", Wish::Part { first: 99, length: 1 })]
    #[case("bytes=40-59", Wish::Part { first: 40, length: 20 })]
    #[case("bytes=40-40", Wish::Part { first: 40, length: 1 })]
    #[case("bytes=40-1000", Wish::Part { first: 40, length: 60 })]
    #[case("bytes=40-99999999999999999999", Wish::Part { first: 40, length: 60 })]
    #[case("bytes=-10", Wish::Part { first: 90, length: 10 })]
    #[case("bytes=-1000", Wish::Part { first: 0, length: 100 })]
    #[case("bytes=100-", Wish::Outside)]
    #[case("bytes=99999999999999999999-", Wish::Outside)]
    #[case("bytes=-0", Wish::Outside)]
    #[case("bytes=", Wish::Whole)]
    #[case("bytes=-", Wish::Whole)]
    #[case("bytes=9-8", Wish::Whole)]
    #[case("bytes=+1-", Wish::Whole)]
    #[case("bytes=1-x", Wish::Whole)]
    #[case("bytes=0-1,5-6", Wish::Whole)]
    #[case("items=0-1", Wish::Whole)]
    /// H 34. One range of a file, or the whole file.
    fn a_range_is_read(#[case] range: &'static str, #[case] expected: Wish) {
        assert_eq!(wish(&[(header::RANGE, range)], 100), expected);
    }

    #[test]
    fn a_range_of_another_version_is_the_whole_file() {
        let range = (header::RANGE, "bytes=40-");
        let part = Wish::Part { first: 40, length: 60 };
        assert_eq!(wish(&[range.clone(), (header::IF_RANGE, "\"v\"")], 100), part);
        for other in ["\"w\"", "W/\"v\"", "v", "Thu, 01 Jan 1970 00:00:00 GMT"] {
            assert_eq!(wish(&[range.clone(), (header::IF_RANGE, other)], 100), Wish::Whole, "{other}");
        }
        let unversioned = [range, (header::IF_RANGE, "\"v\"")].map(|(name, value)| (name, value.parse().unwrap()));
        assert_eq!(Wish::of(&unversioned.into_iter().collect(), 100, None), Wish::Whole);
        assert_eq!(wish(&[], 100), Wish::Whole);
    }

    #[test]
    fn an_empty_file_has_no_range() {
        assert_eq!(wish(&[(header::RANGE, "bytes=0-")], 0), Wish::Outside);
        assert_eq!(Wish::Outside.content_range(0).as_deref(), Some("bytes */0"));
        assert_eq!(Wish::Part { first: 40, length: 60 }.content_range(100).as_deref(), Some("bytes 40-99/100"));
    }
}
