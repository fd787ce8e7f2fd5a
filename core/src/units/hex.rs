//! Lower-case hexadecimal characters, without a branch for each.

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// No digit.
const NONE: u8 = 0xff;
/// The value of each character.
const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut value = 0;
    while value < 16 {
        values[DIGITS[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// The two characters of a byte.
pub(super) const fn pair(byte: u8) -> [u8; 2] {
    [DIGITS[(byte >> 4) as usize], DIGITS[(byte & 0xf) as usize]]
}

/// The two bytes of four characters.
pub(super) const fn word(text: [u8; 4]) -> Option<[u8; 2]> {
    let [a, b, c, d] =
        [VALUES[text[0] as usize], VALUES[text[1] as usize], VALUES[text[2] as usize], VALUES[text[3] as usize]];
    // A value has no high bit, what is none has it.
    if (a | b | c | d) & 0x80 != 0 { None } else { Some([a << 4 | b, c << 4 | d]) }
}
