//! Whether a program can run where there is nothing but itself.

use std::path::Path;

use crate::Error;

/// The bytes of a program that needs no loader and no library, which the image does not hold.
pub(crate) fn static_program(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = std::fs::read(path).map_err(Error::file(path))?;
    match interpreter(&bytes) {
        Some(false) => Ok(bytes),
        Some(true) => Err(Error::unusable(path, "is linked dynamically: a static x86-64 program is needed")),
        None => Err(Error::unusable(path, "is no x86-64 program: a static x86-64 program is needed")),
    }
}

/// Whether an x86-64 ELF program asks for an interpreter; `None` when it is no such program.
fn interpreter(bytes: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, length: usize| -> Option<u64> {
        let field = bytes.get(at..at.checked_add(length)?)?;
        Some(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let is_x86_64 = bytes.starts_with(b"\x7fELF\x02\x01") && number(18, 2)? == 62;
    if !is_x86_64 {
        return None;
    }
    let (table, entry, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let at = usize::try_from(table.checked_add(index * entry)?).ok()?;
        if number(at, 4)? == u64::from(INTERPRETER) {
            return Some(true);
        }
    }
    Some(false)
}
