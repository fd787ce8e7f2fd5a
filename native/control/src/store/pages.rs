//! Pages over the sessions of every project (deployment §1.12).

use palisade_core::hosted::observations::Page;
use palisade_core::units::Id;

use super::{Columns, Result, Tx};

impl Tx {
    /// The sessions of a page with their projects, and whether there are more; `None` when the page is behind a session
    /// that is not there. Deleted ones are no part of it, but one may still be looked behind.
    pub async fn session_page(&mut self, page: Page) -> Result<Option<(Vec<(Id, Id)>, bool)>> {
        let (past, edge, order) = if page.newest_first { ("<", i64::MAX, "DESC") } else { (">", i64::MIN, "ASC") };
        let (created_at, id) = match page.after {
            None => (edge, String::new()),
            Some(id) => match self.session_created_at(id).await? {
                None => return Ok(None),
                Some(created_at) => (created_at, id.to_string()),
            },
        };
        let query = format!(
            "SELECT id, project_id FROM sessions WHERE deleted_at IS NULL \
             AND (created_at {past} $1 OR (created_at = $1 AND id {past} $2)) \
             ORDER BY created_at {order}, id {order} LIMIT $3"
        );
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX).saturating_add(1);
        let rows = sqlx::query(sqlx::AssertSqlSafe(query)).bind(created_at).bind(id).bind(limit).fetch_all(&mut **self);
        let mut sessions = Vec::new();
        for row in rows.await? {
            sessions.push((row.id("id")?, row.id("project_id")?));
        }
        let has_more = sessions.len() > page.limit;
        sessions.truncate(page.limit);
        Ok(Some((sessions, has_more)))
    }

    async fn session_created_at(&mut self, id: Id) -> Result<Option<i64>> {
        let row = sqlx::query("SELECT created_at FROM sessions WHERE id = $1").bind(id.to_string());
        row.fetch_optional(&mut **self).await?.map(|row| row.int("created_at")).transpose()
    }
}
