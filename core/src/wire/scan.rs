//! Looking at many characters of a JSON text at once.

/// Bytes that are looked at one word at a time before a string counts as long.
const SHORT: usize = 64;
/// Bytes of a long string that are looked at twice while they are at hand.
const BLOCK: usize = 16 * 1024;

const WORD: usize = size_of::<u64>();
const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES << 7;

/// How many characters stand before the next quote.
#[inline]
pub(super) fn quote(text: &[u8]) -> Option<usize> {
    match short(text, |word| zeros(word ^ (ONES * u64::from(b'"')))) {
        Ok(at) => Some(at),
        Err(seen) => memchr::memchr(b'"', &text[seen..]).map(|at| seen + at),
    }
}

/// How many characters stand for themselves in a JSON string: up to a quote, a backslash or a control character.
#[inline]
pub(super) fn plain(text: &[u8]) -> usize {
    short(text, special).unwrap_or_else(|seen| seen + long(&text[seen..]))
}

/// Where the first mark is among the whole words at the beginning, or how many characters these are.
#[inline]
fn short(text: &[u8], marks: impl Fn(u64) -> u64) -> Result<usize, usize> {
    let (mut rest, mut seen) = (text, 0);
    while seen < SHORT
        && let Some((word, behind)) = rest.split_first_chunk()
    {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return Ok(seen + first(marks));
        }
        (rest, seen) = (behind, seen + WORD);
    }
    Err(seen)
}

/// [`plain`] for what is left of a text that is long, or shorter than a word.
fn long(text: &[u8]) -> usize {
    for (at, block) in text.chunks(BLOCK).enumerate() {
        let end = memchr::memchr2(b'"', b'\\', block);
        let block = &block[..end.unwrap_or(block.len())];
        if block.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < b' ' {
            let control = block.iter().position(|byte| *byte < b' ');
            return at * BLOCK + control.unwrap_or(block.len());
        }
        if end.is_some() {
            return at * BLOCK + block.len();
        }
    }
    text.len()
}

/// The high bit of each byte that is zero; bytes behind the first one may be wrong.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// The high bit of each byte that is a quote, a backslash or a control character; bytes behind the first one may be
/// wrong.
const fn special(word: u64) -> u64 {
    let control = word.wrapping_sub(ONES * b' ' as u64) & !word & HIGHS;
    control | zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64))
}

const fn first(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

/// The length of the JSON number that stands at the beginning.
pub(super) fn number(text: &[u8]) -> Option<usize> {
    let digits = |from: usize| {
        let count = text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then_some(from + count)
    };
    let integer = usize::from(text.first() == Some(&b'-'));
    let mut end = digits(integer)?;
    if text[integer] == b'0' && end > integer + 1 {
        return None;
    }
    if text.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        end = digits(end + 1 + sign)?;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BLOCK, number, plain, quote};

    fn slow(text: &[u8]) -> usize {
        let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
        text.iter().position(special).unwrap_or(text.len())
    }

    proptest! {
        #[test]
        fn texts_are_scanned_as_character_by_character(
            start in prop::collection::vec(any::<u8>(), 0..20),
            length in prop_oneof![0..200_usize, BLOCK - 20..BLOCK + 90],
            filler in prop::sample::select(&[b'a', 0x7f, 0x80, 0xff, b' ', b'!', b'#'][..]),
            end in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut text = vec![filler; length];
            text.extend(&end);
            prop_assert_eq!(plain(&text), slow(&text));
            prop_assert_eq!(quote(&text), text.iter().position(|byte| *byte == b'"'));
            text.splice(0..0, start);
            prop_assert_eq!(plain(&text), slow(&text));
            prop_assert_eq!(quote(&text), text.iter().position(|byte| *byte == b'"'));
        }
    }

    #[test]
    fn numbers_end_where_json_says() {
        for (text, length) in [
            ("0", Some(1)),
            ("-0.5e-7,", Some(7)),
            ("12]", Some(2)),
            ("1E+2 ", Some(4)),
            ("0x", Some(1)),
            ("01", None),
            ("-", None),
            ("", None),
            ("1.", None),
            ("1.e1", None),
            (".5", None),
            ("1e", None),
            ("1e+", None),
            ("+1", None),
        ] {
            assert_eq!(number(text.as_bytes()), length, "{text}");
        }
    }
}
