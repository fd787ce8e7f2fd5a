//! `palisade core keys`: who may administer this installation.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use palisade_control::limits::{CORE_KEYS_MAX, KEYS_INTERVAL};
use palisade_control::store::Store;
use palisade_control::store::core_keys::{Added, CoreKey, Revoked};
use palisade_core::deployment::node::valid_name;
use palisade_core::units::Digest;
use serde::Serialize;

use super::args::{KeyAdd, KeyRevoke, KeysCommand, StoreArgs, StoreJson};
use super::store;
use crate::operator::table::table;
use crate::operator::{new_private_file, show};
use crate::usage::Usage;

pub(super) async fn run(command: &KeysCommand) -> anyhow::Result<ExitCode> {
    match command {
        KeysCommand::Add(options) => add(options).await,
        KeysCommand::List(options) => list(options).await,
        KeysCommand::Revoke(options) => revoke(options).await,
    }
}

async fn add(options: &KeyAdd) -> anyhow::Result<ExitCode> {
    if !valid_name(options.name.as_bytes()) {
        return Err(Usage("--name must have 1 to 128 bytes, not be blank, and hold no NUL, CR or LF".to_owned()).into());
    }
    let store = open(&options.store).await?;
    let key = new_key();
    // On disk before it is stored: a key that cannot be kept is never accepted.
    let file = options.out.as_deref().map(|path| keep(path, &key)).transpose()?;
    let added = insert(&store, &key, &options.name).await;
    if let (Err(_), Some(path)) = (&added, &file) {
        drop(std::fs::remove_file(path));
    }
    let added = added?;
    store.close().await;
    told(options, &added, &key)
}

/// The key goes to the file or to standard output, once.
fn told(options: &KeyAdd, added: &CoreKey, key: &str) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Told<'t> {
        id: &'t str,
        name: &'t str,
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<&'t str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file: Option<&'t Path>,
    }
    let file = options.out.as_deref();
    let told = Told { id: &added.id, name: &added.name, key: file.is_none().then_some(key), file };
    let within = KEYS_INTERVAL.as_secs();
    show(options.json, &told, || {
        if let Some(file) = file {
            return format!("{}: key {}; a running core accepts it within {within} s", file.display(), added.id);
        }
        eprintln!("key {}, shown this once; a running core accepts it within {within} s", added.id);
        key.to_owned()
    })
}

async fn insert(store: &Store, key: &str, name: &str) -> anyhow::Result<CoreKey> {
    let mut tx = store.write().await?;
    match tx.create_core_key(Digest::of(key.as_bytes()), name).await? {
        Added::Stored(added) => {
            tx.commit()
                .await
                .context("it is unknown whether the key was stored; look with `palisade core keys list`")?;
            Ok(added)
        }
        Added::Full => {
            bail!("there are {CORE_KEYS_MAX} core keys already; revoke one with `palisade core keys revoke ID`")
        }
    }
}

async fn list(options: &StoreJson) -> anyhow::Result<ExitCode> {
    let store = open(&options.store).await?;
    let keys = store.read().await?.core_keys().await?;
    store.close().await;
    show(options.json, &serde_json::json!({ "data": keys }), || {
        let state = |key: &CoreKey| key.revoked_at.map_or_else(|| "accepted".to_owned(), |at| format!("revoked {at}"));
        let rows = keys.iter().map(|key| [key.id.clone(), key.name.clone(), key.created_at.to_string(), state(key)]);
        table(["KEY", "NAME", "ADDED", "STATE"], rows)
    })
}

async fn revoke(options: &KeyRevoke) -> anyhow::Result<ExitCode> {
    let store = open(&options.store).await?;
    let mut tx = store.write().await?;
    let revoked = tx.revoke_core_key(&options.id).await?;
    let left = tx.core_key_digests().await?.len();
    tx.commit().await?;
    store.close().await;
    let within = KEYS_INTERVAL.as_secs();
    let text = match revoked {
        Revoked::Now => format!("key {} is revoked; a running core refuses it within {within} s", options.id),
        Revoked::Before => format!("key {} was revoked before", options.id),
        Revoked::Unknown => bail!("there is no stored key {}; `palisade core keys list` names them", options.id),
    };
    if left == 0 {
        eprintln!("note: no stored key is left; add one, unless core has a key file");
    }
    show(options.json, &serde_json::json!({ "id": options.id, "revoked": true, "accepted_keys": left }), || text)
}

async fn open(options: &StoreArgs) -> anyhow::Result<Store> {
    let store = Store::beside(&store::location(options)?).await?;
    let schema = store.schema().await?;
    schema.usable()?;
    if schema.is_empty() {
        bail!("the database is empty; `palisade core migrate` or `palisade core serve` sets it up");
    }
    Ok(store)
}

fn keep<'p>(path: &'p Path, key: &str) -> anyhow::Result<&'p Path> {
    let written = || -> std::io::Result<()> {
        let mut file = new_private_file(path)?;
        writeln!(file, "{key}")?;
        file.sync_all()?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    };
    written().with_context(|| format!("cannot make {}; name a new file", path.display()))?;
    Ok(path)
}

/// `ck_` and 32 random bytes in hexadecimal.
fn new_key() -> String {
    format!("ck_{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}
