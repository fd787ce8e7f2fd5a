//! What a server's answer to a download means (node-host §5.5). The bytes themselves are judged by size and SHA-256.

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Bytes that are there already; 0 asks for the whole file.
    pub from: u64,
    /// Bytes of the whole file, as the manifest declares them.
    pub size: u64,
}

/// What the head of an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head<'a> {
    /// The HTTP status.
    pub status: u16,
    /// Bytes of the body, when it says so.
    pub length: Option<u64>,
    /// `Content-Range`.
    pub range: Option<&'a str>,
}

/// What to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The body continues what is there.
    Continue,
    /// The body is the whole file: what is there is discarded.
    Restart,
    /// What is there is no part of the file any more: discard it and ask for the whole file.
    Discard,
    /// Ask at the address that the answer names.
    Follow,
    /// Nothing is wrong that time could not mend.
    Retry,
    /// The server refuses for good.
    Refused,
    /// The body cannot be the declared file.
    Foreign,
}

/// Judges the head of an answer.
#[must_use]
pub fn judge(asked: Asked, head: Head<'_>) -> Verdict {
    match head.status {
        200 if exceeds(head.length, asked.size) => Verdict::Foreign,
        200 => Verdict::Restart,
        206 if asked.from == 0 => Verdict::Refused,
        206 if exceeds(head.length, asked.size.saturating_sub(asked.from)) => Verdict::Discard,
        206 if continues(asked, head.range) => Verdict::Continue,
        206 | 416 if asked.from > 0 => Verdict::Discard,
        301 | 302 | 303 | 307 | 308 => Verdict::Follow,
        408 | 425 | 429 | 500 | 502 | 503 | 504 => Verdict::Retry,
        _ => Verdict::Refused,
    }
}

fn exceeds(length: Option<u64>, room: u64) -> bool {
    length.is_some_and(|length| length > room)
}

/// Whether `bytes first-last/total` begins where we stopped, ends within the file, and names the same file size.
fn continues(asked: Asked, range: Option<&str>) -> bool {
    let parts = || {
        let (span, total) = range?.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = span.split_once('-')?;
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?, total))
    };
    parts().is_some_and(|(first, last, total)| {
        let same = total == "*" || total.parse() == Ok(asked.size);
        first == asked.from && (first..asked.size).contains(&last) && same
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: Asked = Asked { from: 40, size: 100 };
    const START: Asked = Asked { from: 0, size: 100 };

    fn partial(range: &str) -> Verdict {
        judge(MIDDLE, Head { status: 206, length: None, range: Some(range) })
    }

    /// H 6. Only a range that starts where we stopped, in a file of the declared size, continues.
    #[test]
    fn only_the_range_that_was_asked_for_continues() {
        for good in ["bytes 40-99/100", "bytes 40-99/*", "bytes 40-59/100"] {
            assert_eq!(partial(good), Verdict::Continue, "{good}");
        }
        for bad in [
            "",
            "bytes 0-99/100",
            "bytes 39-99/100",
            "bytes 41-99/100",
            "bytes 40-100/100",
            "bytes 40-39/100",
            "bytes 40-99/101",
            "bytes */100",
            "items 40-99/100",
            "bytes 40-99",
            "bytes 40-99/99999999999999999999",
        ] {
            assert_eq!(partial(bad), Verdict::Discard, "{bad}");
        }
        let none = Head { status: 206, length: None, range: None };
        assert_eq!(judge(MIDDLE, none), Verdict::Discard);
        assert_eq!(judge(START, Head { range: Some("bytes 0-99/100"), ..none }), Verdict::Refused, "nobody asked");
        let too_long = Head { status: 206, length: Some(61), range: Some("bytes 40-99/100") };
        assert_eq!(judge(MIDDLE, too_long), Verdict::Discard);
    }

    /// H 3, H 4. Which statuses time can mend.
    #[test]
    fn every_status_has_its_verdict() {
        let of = |status| judge(MIDDLE, Head { status, length: None, range: None });
        for status in 100..=599 {
            let expected = match status {
                200 => Verdict::Restart,
                206 | 416 => Verdict::Discard,
                301 | 302 | 303 | 307 | 308 => Verdict::Follow,
                408 | 425 | 429 | 500 | 502 | 503 | 504 => Verdict::Retry,
                _ => Verdict::Refused,
            };
            assert_eq!(of(status), expected, "{status}");
        }
        assert_eq!(judge(START, Head { status: 416, length: None, range: None }), Verdict::Refused);
    }

    #[test]
    fn a_body_that_announces_too_much_is_not_read() {
        let whole = |length| judge(START, Head { status: 200, length, range: None });
        assert_eq!(whole(Some(101)), Verdict::Foreign);
        for length in [None, Some(100), Some(99), Some(0)] {
            assert_eq!(whole(length), Verdict::Restart);
        }
    }
}
