//! Core keys that are added and revoked while Core runs. Only digests are stored. Both stand in the audit log.

use palisade_core::units::Digest;
use serde::Serialize;

use super::{Columns, Result, Timestamp, Tx};
use crate::keys::credential_id;
use crate::limits::CORE_KEYS_MAX;

/// What the audit log calls a stored key.
const RESOURCE: &str = "core_key";

/// What is known of a stored Core key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoreKey {
    /// The beginning of its digest, as the audit log names it.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// When it was added.
    pub created_at: Timestamp,
    /// Since when it is refused.
    pub revoked_at: Option<Timestamp>,
}

/// What became of a key that was to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Added {
    /// It is stored.
    Stored(CoreKey),
    /// There are [`CORE_KEYS_MAX`] keys that are not revoked.
    Full,
}

/// What became of a key that was to be revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    /// It is refused from now on.
    Now,
    /// It was refused before.
    Before,
    /// There is no such key.
    Unknown,
}

impl Tx {
    /// The digests of the keys that are not revoked.
    pub async fn core_key_digests(&mut self) -> Result<Vec<Digest>> {
        let query = "SELECT key_sha256 FROM core_keys WHERE revoked_at IS NULL ORDER BY id";
        let rows = sqlx::query(query).fetch_all(&mut **self).await?;
        rows.iter().map(|row| row.digest("key_sha256")).collect()
    }

    /// Every key, revoked ones included, oldest first.
    pub async fn core_keys(&mut self) -> Result<Vec<CoreKey>> {
        let query = "SELECT id, name, created_at, revoked_at FROM core_keys ORDER BY created_at, id";
        let rows = sqlx::query(query).fetch_all(&mut **self).await?;
        let read = |row: &sqlx::any::AnyRow| {
            Ok(CoreKey {
                id: row.text("id")?,
                name: row.text("name")?,
                created_at: row.time("created_at")?,
                revoked_at: row.time_opt("revoked_at")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Stores the digest of a new key.
    pub async fn create_core_key(&mut self, key: Digest, name: &str) -> Result<Added> {
        if self.core_key_digests().await?.len() >= CORE_KEYS_MAX {
            return Ok(Added::Full);
        }
        let stored =
            CoreKey { id: credential_id(key), name: name.to_owned(), created_at: self.now().await?, revoked_at: None };
        sqlx::query("INSERT INTO core_keys (id, key_sha256, name, created_at) VALUES ($1, $2, $3, $4)")
            .bind(&stored.id)
            .bind(key.to_string())
            .bind(&stored.name)
            .bind(stored.created_at.0)
            .execute(&mut **self)
            .await?;
        self.audit_on_host("create", RESOURCE, &stored.id).await?;
        Ok(Added::Stored(stored))
    }

    /// Revokes a key for good.
    pub async fn revoke_core_key(&mut self, id: &str) -> Result<Revoked> {
        let now = self.now().await?;
        let revoked = sqlx::query("UPDATE core_keys SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL")
            .bind(id)
            .bind(now.0)
            .execute(&mut **self)
            .await?;
        if revoked.rows_affected() == 1 {
            self.audit_on_host("revoke", RESOURCE, id).await?;
            return Ok(Revoked::Now);
        }
        let known = sqlx::query("SELECT id FROM core_keys WHERE id = $1").bind(id).fetch_optional(&mut **self).await?;
        Ok(known.map_or(Revoked::Unknown, |_| Revoked::Before))
    }
}
