//! What is mounted where. Nothing is ever removed through a mount: what stands behind it belongs to somebody else.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// Whether something is mounted on `path` or below it, a folder of the same disk included. The path has no links.
pub(crate) fn at_or_below(path: &Path) -> io::Result<bool> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(point).any(|point| point.starts_with(path)))
}

/// The mount point of one line: its fifth field, in which the kernel writes white space and backslashes in octal.
fn point(line: &[u8]) -> Option<PathBuf> {
    let mut field = line.split(|byte| *byte == b' ').nth(4)?;
    let mut path = Vec::new();
    while let [first, rest @ ..] = field {
        let digits = rest.get(..3).filter(|_| *first == b'\\').and_then(|digits| str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            path.push(byte);
            field = &rest[3..];
        } else {
            path.push(*first);
            field = rest;
        }
    }
    Some(PathBuf::from(OsString::from_vec(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_read_as_the_kernel_writes_it() {
        let line = br"36 35 98:0 /mnt1 /a\040b\134c\11 rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(point(line), Some(PathBuf::from("/a b\\c\\11")));
        assert_eq!(point(b""), None);
        assert!(at_or_below(Path::new("/proc")).unwrap() && !at_or_below(Path::new("/proc/self/fd/none")).unwrap());
    }
}
