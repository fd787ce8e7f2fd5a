//! Provider credentials at rest: sealed for one installation and one generation, and opened for no other
//! (deployment §3.1).
//!
//! XChaCha20-Poly1305 with a random nonce of 24 bytes before the ciphertext; installation and generation are the
//! associated data. Core holds the key in memory only, and clears it at the end.

use std::fmt;

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use palisade_core::deployment::selection::ApiKey;
use palisade_core::units::{Generation, Id};
use zeroize::Zeroizing;

const NONCE_BYTES: usize = 24;

/// The key that credentials are sealed with.
#[derive(Clone)]
pub struct SealKey(XChaCha20Poly1305);

/// A key of another form. Its text never holds the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the credential key is malformed; expected 64 lower-case hexadecimal characters, such as `openssl rand -hex 32` makes"
)]
pub struct InvalidSealKey;

/// A credential that does not open: sealed with another key, for another installation or generation, or damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored credential does not open with this credential key for this installation and generation")]
pub struct Unopenable;

impl SealKey {
    /// Reads 32 bytes as 64 lower-case hexadecimal characters; white space around them is no part of it.
    pub fn parse(text: &str) -> Result<Self, InvalidSealKey> {
        let digits: &[u8; 64] = text.trim().as_bytes().try_into().map_err(|_| InvalidSealKey)?;
        let mut key = Zeroizing::new([0; 32]);
        for (byte, [high, low]) in key.iter_mut().zip(digits.as_chunks().0) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Ok(Self(XChaCha20Poly1305::new(&(*key).into())))
    }

    /// Seals a credential for one generation of one installation.
    #[must_use]
    pub fn seal(&self, key: &ApiKey, installation: Id, generation: Generation) -> Vec<u8> {
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let bound = bound(installation, generation);
        let payload = Payload { msg: key.expose().as_bytes(), aad: &bound };
        let sealed =
            self.0.encrypt(&XNonce::from(nonce), payload).expect("a key of 4096 bytes is below the cipher's limit");
        [nonce.as_slice(), &sealed].concat()
    }

    /// Opens what was sealed for this generation of this installation.
    pub fn open(&self, sealed: &[u8], installation: Id, generation: Generation) -> Result<ApiKey, Unopenable> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(Unopenable)?;
        let bound = bound(installation, generation);
        let opened = self.0.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: &bound });
        let key = String::from_utf8(opened.map_err(|_| Unopenable)?).map_err(|_| Unopenable)?;
        Ok(ApiKey::new(key))
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

fn nibble(digit: u8) -> Result<u8, InvalidSealKey> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidSealKey),
    }
}

/// Installation and generation, each of a fixed length.
fn bound(installation: Id, generation: Generation) -> Vec<u8> {
    [installation.as_bytes().as_slice(), &generation.get().to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(last: u8) -> Id {
        Id::from_random([last; 16])
    }

    fn generation(value: u64) -> Generation {
        Generation::new(value).unwrap()
    }

    /// D 25. What is sealed for one generation opens for that one alone, of that installation, with that key, unchanged.
    #[test]
    fn a_credential_opens_for_its_generation_alone() {
        let seal = SealKey::parse(&format!(" {}\n", "0a".repeat(32))).unwrap();
        let key = ApiKey::new("planted".to_owned());
        let sealed = seal.seal(&key, id(1), generation(3));
        assert_eq!(seal.open(&sealed, id(1), generation(3)).as_ref(), Ok(&key));
        assert_eq!(seal.open(&sealed, id(1), generation(2)), Err(Unopenable));
        assert_eq!(seal.open(&sealed, id(1), generation(4)), Err(Unopenable));
        assert_eq!(seal.open(&sealed, id(2), generation(3)), Err(Unopenable));
        let other = SealKey::parse(&"0b".repeat(32)).unwrap();
        assert_eq!(other.open(&sealed, id(1), generation(3)), Err(Unopenable));
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(seal.open(&damaged, id(1), generation(3)), Err(Unopenable), "byte {at}");
            assert_eq!(seal.open(&sealed[..at], id(1), generation(3)), Err(Unopenable), "{at} bytes");
        }
        assert_ne!(seal.seal(&key, id(1), generation(3)), sealed, "no nonce is used twice");
        assert!(!sealed.windows(7).any(|part| part == b"planted"));
    }

    #[test]
    fn a_seal_key_has_one_form_and_is_never_shown() {
        for text in ["", "0a", &"+f".repeat(32), &"0A".repeat(32), &"0a".repeat(31), &"0a".repeat(33)] {
            assert_eq!(SealKey::parse(text).err(), Some(InvalidSealKey), "{text}");
        }
        let key = SealKey::parse(&"0a".repeat(32)).unwrap();
        assert_eq!(format!("{key:?}"), "[secret]");
    }
}
