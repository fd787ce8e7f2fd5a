//! Core keys: who may administer this installation. Only SHA-256 digests are kept.
//!
//! Fixed keys come from a file or the environment and last as long as the process. Stored keys are added and revoked in
//! the database while Core runs; [`CoreKeys::follow`] reads them every [`KEYS_INTERVAL`], so that no restart is needed and
//! a request with a wrong key costs the database nothing.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use palisade_core::units::Digest;
use subtle::{Choice, ConstantTimeEq as _};
use tokio_util::sync::CancellationToken;

use crate::limits::KEYS_INTERVAL;
use crate::store::{Result, Store};

/// The digests of the accepted Core keys. Clones share them.
#[derive(Clone)]
pub struct CoreKeys {
    fixed: Arc<[Digest]>,
    stored: Arc<RwLock<Vec<Digest>>>,
}

/// Why keys were refused. Never holds a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// There is no key at all.
    #[error(
        "no core key; add one to the database with `palisade core keys add`, or name a file of keys with \
         --admin-key-file, or their digests in OAC_CORE_KEY_SHA256S"
    )]
    None,
    /// A key cannot be sent in a header, or is too easily guessed.
    #[error("line {line} of the core key file is no key; expected 16 to 256 printable ascii characters without space")]
    Key {
        /// Line of the file, from 1.
        line: usize,
    },
    /// The list of digests cannot be read.
    #[error("OAC_CORE_KEY_SHA256S is malformed; expected a json array of 64-character lower-case sha-256 digests")]
    Digests,
}

/// Names a key without being it: the beginning of its digest, 12 hexadecimal digits.
#[must_use]
pub fn credential_id(key: Digest) -> String {
    let mut id = key.to_string();
    id.truncate(12);
    id
}

impl CoreKeys {
    /// Reads a key file, one key a line (empty lines are skipped), and a JSON array of digests; either may be absent.
    pub fn read(file: Option<&str>, digests: Option<&str>) -> Result<Self, KeysError> {
        let mut fixed = file.map_or_else(|| Ok(Vec::new()), digest_lines)?;
        if let Some(text) = digests {
            let listed: Vec<Digest> = serde_json::from_str(text).map_err(|_| KeysError::Digests)?;
            fixed.extend(listed);
        }
        Ok(Self { fixed: fixed.into(), stored: Arc::default() })
    }

    /// The digest of the key that `bearer` is, if it is one. Takes the same time whichever key matches.
    #[must_use]
    pub fn matching(&self, bearer: &str) -> Option<Digest> {
        let digest = Digest::of(bearer.as_bytes());
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner);
        let all = self.fixed.iter().chain(stored.iter());
        let found = all.fold(Choice::from(0), |found, key| found | key.as_bytes().ct_eq(digest.as_bytes()));
        bool::from(found).then_some(digest)
    }

    /// Whether nobody could administer this installation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.stored.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes over the keys that are stored now.
    pub async fn reload(&self, store: &Store) -> Result<()> {
        let stored = store.read().await?.core_key_digests().await?;
        let mut current = self.stored.write().unwrap_or_else(PoisonError::into_inner);
        if *current != stored {
            tracing::info!(keys = stored.len(), "the stored core keys are taken over");
            *current = stored;
        }
        Ok(())
    }

    /// [`CoreKeys::reload`] again and again until `stop`. While the database does not answer the known keys stay accepted:
    /// nothing can be changed with them then.
    pub(crate) async fn follow(self, store: Store, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(KEYS_INTERVAL)).await.is_some() {
            if let Some(Err(error)) = stop.run_until_cancelled(self.reload(&store)).await {
                tracing::debug!(%error, "the stored core keys cannot be read; they are read again");
            }
        }
    }
}

impl fmt::Debug for CoreKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = self.stored.read().unwrap_or_else(PoisonError::into_inner).len();
        write!(f, "CoreKeys({})", self.fixed.len() + stored)
    }
}

fn digest_lines(text: &str) -> Result<Vec<Digest>, KeysError> {
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, key)| !key.is_empty());
    lines
        .map(|(at, key)| {
            let valid = (16..=256).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
            if valid { Ok(Digest::of(key.as_bytes())) } else { Err(KeysError::Key { line: at + 1 }) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "a-core-key-of-some-length";

    #[test]
    fn keys_come_from_a_file_and_digests_from_the_environment() {
        let digests = format!(r#"["{}"]"#, Digest::of(b"another-core-key-altogether"));
        let keys = CoreKeys::read(Some(&format!("\n{KEY}\n")), Some(&digests)).unwrap();
        assert_eq!(keys.matching(KEY), Some(Digest::of(KEY.as_bytes())));
        assert!(keys.matching("another-core-key-altogether").is_some());
        assert_eq!(keys.matching("a-core-key-of-some-lengtH"), None);
        assert_eq!(keys.matching(""), None);
        assert!(!keys.is_empty());
    }

    #[test]
    fn refusals_name_the_line_and_never_the_key() {
        assert!(CoreKeys::read(None, None).unwrap().is_empty());
        assert!(CoreKeys::read(Some(" \n"), Some("[]")).unwrap().is_empty());
        let error = CoreKeys::read(Some(&format!("{KEY}\nwith a space in the key\n")), None).unwrap_err();
        assert_eq!(error, KeysError::Key { line: 2 });
        assert!(!error.to_string().contains("with a space"));
        assert_eq!(CoreKeys::read(None, Some(r#"["ABC"]"#)).unwrap_err(), KeysError::Digests);
        assert!(!format!("{:?}", CoreKeys::read(Some(KEY), None).unwrap()).contains(KEY));
    }
}
