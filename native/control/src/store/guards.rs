//! What never changes again, refused by the database itself (deployment §3.1–§3.4).
//!
//! The code that writes these tables keeps to it anyway. A guard makes a mistake in it, or a hand at the database, an
//! error instead of a wrong record.

use sqlx::{AnyConnection, Connection as _};

use super::dialect::Dialect;

/// A change that is refused.
#[derive(Debug, Clone, Copy)]
struct Guard {
    /// Its name in the database.
    name: &'static str,
    /// What is caught, such as `UPDATE OF a, b`.
    event: &'static str,
    /// The table.
    table: &'static str,
    /// Which of the caught changes are refused, in terms of the rows `OLD` and `NEW`.
    refused: &'static str,
    /// What the database says.
    reason: &'static str,
}

const GUARDS: [Guard; 7] = [
    Guard {
        name: "guard_deployment_rises",
        event: "UPDATE OF generation, owner_epoch",
        table: "runtime_deployment",
        refused: "NEW.generation < OLD.generation OR NEW.owner_epoch < OLD.owner_epoch",
        reason: "generation and owner epoch of the deployment only rise",
    },
    Guard {
        name: "guard_deployment_stays",
        event: "DELETE",
        table: "runtime_deployment",
        refused: "TRUE",
        reason: "the row of the deployment is never deleted",
    },
    Guard {
        name: "guard_generation_immutable",
        event: "UPDATE",
        table: "runtime_deployment_generations",
        refused: "TRUE",
        reason: "a superseded generation never changes",
    },
    Guard {
        name: "guard_node_identity",
        event: "UPDATE OF id, installation_id, credential_sha256, backend_fingerprint, specification_digest, \
                deployment_generation, removed_at",
        table: "runtime_nodes",
        refused: "NEW.id <> OLD.id OR NEW.installation_id <> OLD.installation_id \
                  OR NEW.credential_sha256 <> OLD.credential_sha256 \
                  OR NEW.backend_fingerprint <> OLD.backend_fingerprint \
                  OR NEW.specification_digest <> OLD.specification_digest \
                  OR NEW.deployment_generation <> OLD.deployment_generation \
                  OR (OLD.removed_at IS NOT NULL AND NEW.removed_at IS NULL)",
        reason: "the identity of a node never changes, and a removed one does not come back",
    },
    Guard {
        name: "guard_node_stays",
        event: "DELETE",
        table: "runtime_nodes",
        refused: "TRUE",
        reason: "the row of a node stays, so that its id is never used again",
    },
    Guard {
        name: "guard_placement_immutable",
        event: "UPDATE OF environment_id, node_id, deployment_generation",
        table: "runtime_placements",
        refused: "NEW.environment_id <> OLD.environment_id OR NEW.node_id <> OLD.node_id \
                  OR NEW.deployment_generation <> OLD.deployment_generation",
        reason: "a placement keeps its node and generation",
    },
    Guard {
        name: "guard_allocation_immutable",
        event: "UPDATE OF environment_id, node_id, deployment_generation, device_id",
        table: "runtime_allocations",
        refused: "NEW.environment_id <> OLD.environment_id OR NEW.node_id IS DISTINCT FROM OLD.node_id \
                  OR NEW.deployment_generation <> OLD.deployment_generation OR NEW.device_id <> OLD.device_id",
        reason: "an allocation keeps its environment, node, generation and device",
    },
];

/// Sets the guards that the database does not have yet.
pub(super) async fn set(dialect: Dialect, connection: &mut AnyConnection) -> sqlx::Result<()> {
    let mut tx = connection.begin_with(dialect.begin_write()).await?;
    for statement in preparations(dialect) {
        sqlx::query(*statement).execute(&mut *tx).await?;
    }
    for guard in GUARDS {
        let known = sqlx::query(find(dialect)).bind(guard.name).fetch_optional(&mut *tx).await?;
        if known.is_none() {
            sqlx::raw_sql(sqlx::AssertSqlSafe(creation(dialect, &guard))).execute(&mut *tx).await?;
        }
    }
    tx.commit().await
}

/// What must be there before a [`Guard`] is set; the first of several processes does it.
const fn preparations(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::Sqlite => &[],
        Dialect::Postgres => &[
            "SELECT pg_advisory_xact_lock(1885433961, 1)",
            "CREATE OR REPLACE FUNCTION palisade_refuse() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN RAISE EXCEPTION USING MESSAGE = TG_ARGV[0], ERRCODE = ''integrity_constraint_violation''; END'",
        ],
    }
}

/// Finds a guard by its name.
const fn find(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = $1",
        Dialect::Postgres => {
            "SELECT 1 FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE t.tgname = $1 AND c.relnamespace = \
             (SELECT relnamespace FROM pg_class WHERE oid = CAST('runtime_deployment' AS regclass))"
        }
    }
}

/// Sets a guard.
fn creation(dialect: Dialect, guard: &Guard) -> String {
    let Guard { name, event, table, refused, reason } = guard;
    match dialect {
        Dialect::Sqlite => format!(
            "CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN {refused} BEGIN SELECT RAISE(ABORT, '{reason}'); END"
        ),
        Dialect::Postgres => format!(
            "CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW WHEN ({refused}) \
             EXECUTE FUNCTION palisade_refuse('{reason}')"
        ),
    }
}
