use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use palisade_core::admin::client::create_enrollment;
use palisade_core::deployment::capacity::Approval;

use super::{Core, new_private_file, show};
use crate::cli::{TokenCreate, TokensCommand};

pub(super) async fn run(command: &TokensCommand) -> anyhow::Result<ExitCode> {
    match command {
        TokensCommand::Create(options) => create(options).await,
    }
}

/// The file is made before the token is asked for, so that a token that cannot be kept is never issued.
async fn create(options: &TokenCreate) -> anyhow::Result<ExitCode> {
    let core = Core::of(&options.operator)?;
    let file = options.out.as_ref().map(|path| {
        let file = new_private_file(path);
        file.with_context(|| format!("cannot make {}", path.display())).map(|file| (path, file))
    });
    let file = file.transpose()?;
    let limits = Approval { max_active: options.max_active, max_retained: options.max_retained };
    let issued = core.ask(create_enrollment(limits)).await;
    let Some((path, mut file)) = file else {
        let issued = issued?;
        return show(options.operator.json, &issued, || {
            eprintln!("valid once, until {}", issued.expires_at);
            issued.token.clone()
        });
    };
    let issued = issued.inspect_err(|_| drop(std::fs::remove_file(path)))?;
    writeln!(file, "{}", issued.token).with_context(|| format!("cannot write {}", path.display()))?;
    let told = serde_json::json!({ "enrollment_id": issued.enrollment_id, "expires_at": issued.expires_at });
    show(options.operator.json, &told, || format!("{}: valid once, until {}", path.display(), issued.expires_at))
}
