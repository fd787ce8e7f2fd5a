//! Projects and their keys (deployment §11). A project owns one tenant; only digests of keys are stored.

use palisade_core::hosted::view::Project;
use palisade_core::units::{Digest, Id};
use sqlx::any::AnyRow;

use super::{Columns, Result, Timestamp, Tx};

/// The project behind a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Which project.
    pub project: Id,
    /// Its tenant.
    pub tenant: Id,
}

const PROJECTS: &str = "SELECT p.id, p.name, p.created_at, p.archived_at, \
     (SELECT COUNT(*) FROM project_keys k WHERE k.project_id = p.id AND k.revoked_at IS NULL) AS active_key_count \
     FROM projects p WHERE $1 = '' OR p.id = $1 ORDER BY p.created_at, p.id";

impl Tx {
    /// Creates a project with a tenant of its own.
    pub async fn create_project(&mut self, id: Id, name: &str, now: Timestamp) -> Result<()> {
        sqlx::query("INSERT INTO projects (id, tenant_id, name, created_at) VALUES ($1, $2, $3, $4)")
            .bind(id.to_string())
            .bind(Id::from_random(rand::random()).to_string())
            .bind(name)
            .bind(now.0)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// Every project, oldest first.
    pub async fn projects(&mut self) -> Result<Vec<Project>> {
        let rows = sqlx::query(PROJECTS).bind("").fetch_all(&mut **self).await?;
        rows.iter().map(read_project).collect()
    }

    /// One project.
    pub async fn project(&mut self, id: Id) -> Result<Option<Project>> {
        let row = sqlx::query(PROJECTS).bind(id.to_string()).fetch_optional(&mut **self).await?;
        row.as_ref().map(read_project).transpose()
    }

    /// Stores the digest of a new key.
    pub async fn create_project_key(
        &mut self,
        id: Id,
        project: Id,
        name: &str,
        key: Digest,
        now: Timestamp,
    ) -> Result<()> {
        sqlx::query(
            "INSERT INTO project_keys (id, project_id, name, key_sha256, created_at) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(id.to_string())
        .bind(project.to_string())
        .bind(name)
        .bind(key.to_string())
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    /// Revokes a key; whether there was one to revoke.
    pub async fn revoke_project_key(&mut self, id: Id, project: Id, now: Timestamp) -> Result<bool> {
        let revoked = sqlx::query(
            "UPDATE project_keys SET revoked_at = $3 WHERE id = $1 AND project_id = $2 AND revoked_at IS NULL",
        )
        .bind(id.to_string())
        .bind(project.to_string())
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(revoked.rows_affected() == 1)
    }
    /// The project of a key that is neither revoked nor of an archived project.
    pub async fn project_of_key(&mut self, key: Digest) -> Result<Option<Owner>> {
        let row = sqlx::query(
            "SELECT p.id, p.tenant_id FROM project_keys k JOIN projects p ON p.id = k.project_id \
             WHERE k.key_sha256 = $1 AND k.revoked_at IS NULL AND p.archived_at IS NULL",
        )
        .bind(key.to_string())
        .fetch_optional(&mut **self)
        .await?;
        row.map(|row| Ok(Owner { project: row.id("id")?, tenant: row.id("tenant_id")? })).transpose()
    }
}

fn read_project(row: &AnyRow) -> Result<Project> {
    Ok(Project {
        id: row.id("id")?,
        name: row.text("name")?,
        created_at: row.time("created_at")?,
        archived_at: row.time_opt("archived_at")?,
        active_key_count: row.count("active_key_count")?,
    })
}
