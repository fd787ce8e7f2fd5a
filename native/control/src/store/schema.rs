//! Which version of the schema a database has.

use std::collections::BTreeSet;

use serde::Serialize;
use sqlx::Row as _;

use super::open::MIGRATIONS;
use super::{Location, OpenError, Store};

/// One step of the migration history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Its number.
    pub version: i64,
    /// Its name.
    pub name: String,
}

/// What a database has of the migration history, and what this version of Core has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Schema {
    /// Newest step that was applied; 0 for an empty database.
    pub found: i64,
    /// Newest step that this version of Core knows.
    pub needed: i64,
    /// Steps that are not applied yet, in their order.
    pub missing: Vec<Step>,
}

impl Schema {
    /// Whether the database holds nothing yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.found == 0
    }

    /// Refuses what this version of Core cannot work with. An empty database is no such thing.
    pub fn usable(&self) -> Result<(), OpenError> {
        let (found, needed) = (self.found, self.needed);
        match () {
            () if found > needed => Err(OpenError::Newer { found, needed }),
            () if self.is_empty() || self.missing.is_empty() => Ok(()),
            () => Err(OpenError::Older { found, needed }),
        }
    }

    fn of(applied: &BTreeSet<i64>) -> Self {
        let known = MIGRATIONS.iter().filter(|step| !step.migration_type.is_down_migration());
        let steps = known.map(|step| Step { version: step.version, name: step.description.replace(' ', "_") });
        let steps: Vec<_> = steps.collect();
        let needed = steps.last().map_or(0, |step| step.version);
        let missing = steps.into_iter().filter(|step| !applied.contains(&step.version)).collect();
        Self { found: applied.last().copied().unwrap_or(0), needed, missing }
    }
}

/// What [`migrate`] did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Migrated {
    /// The version before.
    pub from: i64,
    /// The version now.
    pub to: i64,
    /// The steps that were applied, in their order; empty when there was nothing to do.
    pub applied: Vec<Step>,
}

/// Brings a database to the schema of this version of Core, each step in a transaction of its own. A new database is made.
/// Refused while a running Core owns it.
pub async fn migrate(location: &Location) -> Result<Migrated, OpenError> {
    let store = Store::reach(location).await?;
    let schema = store.schema().await?;
    if schema.found > schema.needed {
        schema.usable()?;
    }
    // What was never set up has nobody who could own it.
    let owner = if schema.is_empty() {
        None
    } else {
        Some(store.acquire_ownership().await.map_err(OpenError::Ownership)?.ok_or(OpenError::Owned)?)
    };
    store.upgrade().await?;
    drop(owner);
    let migrated = Migrated { from: schema.found, to: store.schema().await?.found, applied: schema.missing };
    store.close().await;
    Ok(migrated)
}

impl Store {
    /// Which version the database has.
    pub async fn schema(&self) -> Result<Schema, OpenError> {
        self.read_schema().await.map_err(|error| self.names_its_file(error))
    }

    async fn read_schema(&self) -> Result<Schema, OpenError> {
        if !self.has_history().await? {
            return Ok(Schema::of(&BTreeSet::new()));
        }
        let rows = sqlx::query("SELECT version FROM _sqlx_migrations").fetch_all(self.pool()).await?;
        let applied = rows.iter().map(|row| row.try_get(0)).collect::<sqlx::Result<_>>()?;
        Ok(Schema::of(&applied))
    }

    async fn has_history(&self) -> Result<bool, OpenError> {
        Ok(sqlx::query(self.dialect().has_history()).fetch_optional(self.pool()).await?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_and_a_newer_schema_are_refused_with_the_next_step() {
        let all: BTreeSet<i64> = MIGRATIONS.iter().map(|step| step.version).collect();
        let newest = *all.last().unwrap();
        assert!(Schema::of(&BTreeSet::new()).usable().is_ok() && Schema::of(&all).usable().is_ok());
        let older = Schema::of(&all.range(..newest).copied().collect()).usable().unwrap_err();
        assert!(older.to_string().contains("palisade core migrate"), "{older}");
        let newer = Schema::of(&all.iter().copied().chain([newest + 1]).collect()).usable().unwrap_err();
        assert!(matches!(newer, OpenError::Newer { .. }));
    }
}
