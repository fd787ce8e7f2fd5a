//! Enrollment tokens, and the nodes that they make (deployment §1.6, §1.13).

use palisade_core::deployment::capacity::{Approval, Capacity};
use palisade_core::units::{Digest, Generation, Id};

use super::generations::signed;
use super::nodes::limit;
use super::{Columns, Result, Timestamp, Tx};
use crate::limits::ENROLLMENT_TOKEN_LIFE_MS;

/// A token that may still be used.
#[derive(Debug, Clone, Copy)]
pub struct Token {
    /// Public handle of the enrollment command.
    pub id: Id,
    /// The installation that issued it.
    pub installation: Id,
    /// Approved limits.
    pub approval: Approval,
}

/// A node that enrolls, checked.
#[derive(Debug)]
pub struct NewNode<'a> {
    /// Chosen by the node.
    pub id: Id,
    /// The claimed installation.
    pub installation: Id,
    /// Checked name.
    pub name: &'a str,
    /// The node's own namespace digest.
    pub backend_fingerprint: Digest,
    /// Digest of its credential.
    pub credential: Digest,
    /// Approved limits.
    pub capacity: Capacity,
    /// Digest of the target.
    pub specification_digest: Digest,
    /// The target.
    pub generation: Generation,
    /// The public URL.
    pub core_url: &'a str,
    /// Handle of the enrollment command.
    pub enrollment_id: Id,
}

impl Tx {
    /// Stores a new token, of which only the digest is known here. Returns when it expires.
    pub async fn issue_token(
        &mut self,
        token: Digest,
        id: Id,
        installation: Id,
        approval: Approval,
    ) -> Result<Timestamp> {
        let now = self.now().await?;
        let expires_at = Timestamp(now.0.saturating_add(ENROLLMENT_TOKEN_LIFE_MS));
        sqlx::query(
            "INSERT INTO runtime_node_enrollments \
             (token_sha256, id, installation_id, created_at, expires_at, max_active, max_retained) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(token.to_string())
        .bind(id.to_string())
        .bind(installation.to_string())
        .bind(now.0)
        .bind(expires_at.0)
        .bind(approval.max_active.map(i64::from))
        .bind(approval.max_retained.map(i64::from))
        .execute(&mut **self)
        .await?;
        Ok(expires_at)
    }

    /// The token with this digest, unless it is unknown, consumed or expired.
    pub async fn token(&mut self, token: Digest) -> Result<Option<Token>> {
        let now = self.now().await?;
        let row = sqlx::query(
            "SELECT id, installation_id, max_active, max_retained FROM runtime_node_enrollments \
             WHERE token_sha256 = $1 AND consumed_at IS NULL AND expires_at > $2",
        )
        .bind(token.to_string())
        .bind(now.0)
        .fetch_optional(&mut **self)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let set = |column| row.int_opt(column)?.map(|_| limit(&row, column)).transpose();
        Ok(Some(Token {
            id: row.id("id")?,
            installation: row.id("installation_id")?,
            approval: Approval { max_active: set("max_active")?, max_retained: set("max_retained")? },
        }))
    }

    /// Consumes a token for a node; false when somebody else was faster.
    pub async fn consume_token(&mut self, token: Digest, node: Id, now: Timestamp) -> Result<bool> {
        let consumed = sqlx::query(
            "UPDATE runtime_node_enrollments SET consumed_at = $2, node_id = $3 \
             WHERE token_sha256 = $1 AND consumed_at IS NULL AND expires_at > $2",
        )
        .bind(token.to_string())
        .bind(now.0)
        .bind(node.to_string())
        .execute(&mut **self)
        .await?;
        Ok(consumed.rows_affected() == 1)
    }

    /// Stores a new node, whose pin starts as the generation it enrolled with; false when the id was used before, be it
    /// by a removed node.
    pub async fn insert_node(&mut self, node: &NewNode<'_>, now: Timestamp) -> Result<bool> {
        let inserted = sqlx::query(
            "INSERT INTO runtime_nodes (id, installation_id, name, backend_fingerprint, credential_sha256, max_active, \
             max_retained, specification_digest, deployment_generation, core_url, enrollment_id, ready_generation, \
             created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $9, $12) ON CONFLICT (id) DO NOTHING",
        )
        .bind(node.id.to_string())
        .bind(node.installation.to_string())
        .bind(node.name)
        .bind(node.backend_fingerprint.to_string())
        .bind(node.credential.to_string())
        .bind(i64::from(node.capacity.max_active))
        .bind(i64::from(node.capacity.max_retained))
        .bind(node.specification_digest.to_string())
        .bind(signed(node.generation))
        .bind(node.core_url)
        .bind(node.enrollment_id.to_string())
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(inserted.rows_affected() == 1)
    }
}
