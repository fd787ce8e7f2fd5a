//! The audit log of administrative changes (deployment §3.7).

use palisade_core::units::Id;
use serde::{Deserialize, Serialize};

use super::{Result, Tx};

/// Who changed something. No member is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Names the Core key without being it.
    pub credential_id: String,
    /// The request.
    pub request_id: Id,
    /// The trace that it belongs to.
    pub trace_id: Id,
}

impl Source {
    /// As a text that [`Source::read`] takes: the starter of a reset answers for what the owner does later.
    pub(super) fn stored(&self) -> String {
        serde_json::to_string(self).expect("a struct of texts always serialises")
    }

    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|source: &Self| !source.credential_id.is_empty())
    }
}

impl Tx {
    /// Records an administrative action in the transaction that does it; when this fails, so does the action.
    pub async fn audit(
        &mut self,
        action: &str,
        resource_type: &str,
        resource: Id,
        project: Option<Id>,
        source: &Source,
    ) -> Result<()> {
        self.record_action(action, "core key", resource_type, &resource.to_string(), project, source).await
    }

    /// Records what an operator did on the host of the database, where no key is needed. Who that was, only the host knows.
    pub(super) async fn audit_on_host(&mut self, action: &str, resource_type: &str, resource: &str) -> Result<()> {
        let [request_id, trace_id] = [Id::from_random(rand::random()), Id::from_random(rand::random())];
        let source = Source { credential_id: "host".to_owned(), request_id, trace_id };
        self.record_action(action, "operator on the host", resource_type, resource, None, &source).await
    }

    async fn record_action(
        &mut self,
        action: &str,
        actor: &str,
        resource_type: &str,
        resource: &str,
        project: Option<Id>,
        source: &Source,
    ) -> Result<()> {
        let now = self.now().await?;
        sqlx::query(
            "INSERT INTO admin_audit_log (id, created_at, admin_credential_id, actor_label, action, project_id, \
             resource_type, resource_id, request_id, trace_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(Id::from_random(rand::random()).to_string())
        .bind(now.0)
        .bind(&source.credential_id)
        .bind(actor)
        .bind(action)
        .bind(project.map(|id| id.to_string()))
        .bind(resource_type)
        .bind(resource)
        .bind(source.request_id.to_string())
        .bind(source.trace_id.to_string())
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}
