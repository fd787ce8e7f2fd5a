//! `palisade core migrate`, `backup` and `restore`.

use std::process::ExitCode;

use palisade_control::store::{Location, backup, migrate, restore};

use super::args::{BackupArgs, RestoreArgs, StoreArgs, StoreJson};
use super::config::Config;
use super::environment;
use crate::operator::show;
use crate::operator::table::bytes;

/// The database that is named.
pub(super) fn location(options: &StoreArgs) -> anyhow::Result<Location> {
    Config::gather(options.given(), options.config.as_deref(), environment)?.store()
}

pub(super) async fn bring_up_to_date(options: &StoreJson) -> anyhow::Result<ExitCode> {
    let migrated = migrate(&location(&options.store)?).await?;
    show(options.json, &migrated, || {
        let steps = migrated.applied.iter().map(|step| format!("applied {:04} {}\n", step.version, step.name));
        let steps: String = steps.collect();
        match migrated.from {
            0 => format!("{steps}the new database has schema version {}", migrated.to),
            from if from == migrated.to => format!("nothing to do: the database has schema version {from} already"),
            from => format!("{steps}the database went from schema version {from} to {}", migrated.to),
        }
    })
}

pub(super) async fn back_up(options: &BackupArgs) -> anyhow::Result<ExitCode> {
    let made = backup(&location(&options.store)?, &options.file).await?;
    show(options.json, &made, || {
        format!("{}: {}, schema version {}, checked", made.path.display(), bytes(Some(made.bytes)), made.schema)
    })
}

pub(super) async fn restore_backup(options: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let made = restore(&location(&options.store)?, &options.file).await?;
    show(options.json, &made, || {
        format!("{}: {}, schema version {}, epoch raised", made.path.display(), bytes(Some(made.bytes)), made.schema)
    })
}
