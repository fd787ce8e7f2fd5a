//! What is in a file of a release.

use std::fs::File;
use std::io::{self, Read as _};

use palisade_core::units::Digest;
use sha2::{Digest as _, Sha256};

/// Bytes that are hashed at once.
const PIECE_BYTES: usize = 256 * 1024;

/// SHA-256 of everything in the file from where it stands.
///
/// # Errors
/// It cannot be read.
pub fn digest(mut file: &File) -> io::Result<Digest> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; PIECE_BYTES]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Digest::from_bytes(hash.finalize().into())),
            read => hash.update(&buffer[..read]),
        }
    }
}
