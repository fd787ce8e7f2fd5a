//! Free disk where the state lies (wire §8).

use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::expressible;

/// Bytes that an unprivileged process may still write; unknown on any doubt, never another filesystem's.
pub(super) fn available(directory: &Path) -> Option<u64> {
    let stat = statvfs(directory).ok()?;
    product(stat.blocks_available(), stat.fragment_size())
}

fn product(blocks: u64, block_bytes: u64) -> Option<u64> {
    if block_bytes == 0 {
        return None;
    }
    blocks.checked_mul(block_bytes).and_then(expressible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_size_is_unknown() {
        assert_eq!(product(3, 4096), Some(12_288));
        assert_eq!(product(0, 4096), Some(0));
        assert_eq!(product(3, 0), None);
        assert_eq!(product(1 << 52, 4096), None);
        assert_eq!(product(1 << 41, 4096), None);
    }
}
