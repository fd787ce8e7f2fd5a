//! The commands that an operator runs on a host, printed as the console shows them.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use palisade_core::admin::client::{create_enrollment, read_console, read_deployment};
use palisade_core::admin::console::ConsoleConfig;
use palisade_core::admin::deployment::Deployment;
use palisade_core::deployment::capacity::Approval;
use palisade_core::install::{self, Install, Uninstall};
use palisade_core::limits::INSTALLER_MAX_BYTES;
use palisade_core::units::Digest;
use serde_json::json;

use super::{Core, show};
use crate::cli::Operator;

#[derive(Debug, Args)]
pub(crate) struct InstallCommand {
    #[command(flatten)]
    operator: Operator,
    /// Approved sandboxes at once [default: from what the node measures]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_active: Option<u32>,
    /// Approved sandboxes with the suspended ones [default: from what the node measures]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_retained: Option<u32>,
}

/// Issues a token, and prints the command that spends it. Everything else is looked at before, so that no token is wasted.
pub(super) async fn install(options: &InstallCommand) -> anyhow::Result<ExitCode> {
    let core = Core::of(&options.operator)?;
    let (config, installer_sha256, deployment) = offered(&core).await?;
    let provider =
        deployment.provider.context("no provider is selected; select one with `palisade deployment apply`")?;
    let installation_id = installation(&deployment)?;
    let wanted = |token: &str| {
        made(install::install(&Install {
            installer_sha256: &installer_sha256,
            source_url: &deployment.core_url,
            core_url: &deployment.core_url,
            installation_id: &installation_id,
            token,
        }))
    };
    wanted(&Digest::of(b"").to_string())?;
    if !config.node_artifacts.iter().any(|name| name == provider.name()) {
        let name = provider.name();
        bail!(
            "core does not offer every file that a node of {name} needs; publish the release with `palisade release publish`"
        );
    }
    let limits = Approval { max_active: options.max_active, max_retained: options.max_retained };
    let issued = core.ask(create_enrollment(limits)).await?;
    let command = wanted(&issued.token)?;
    let told = json!({
        "command": command, "enrollment_id": issued.enrollment_id, "expires_at": issued.expires_at,
    });
    show(options.operator.json, &told, || {
        eprintln!(
            "for one host, until {}; run it there in bash, dash or zsh, and keep it to yourself",
            issued.expires_at
        );
        command.clone()
    })
}

/// Prints the command that makes a node a plain host again.
pub(super) async fn uninstall(options: &Operator) -> anyhow::Result<ExitCode> {
    let core = Core::of(options)?;
    let (_, installer_sha256, deployment) = offered(&core).await?;
    let installation_id = installation(&deployment)?;
    let command = made(install::uninstall(&Uninstall {
        installer_sha256: &installer_sha256,
        source_url: &deployment.core_url,
        installation_id: &installation_id,
    }))?;
    show(options.json, &json!({ "command": command }), || {
        eprintln!("first remove the node here with `palisade nodes remove`; then run this on its host");
        command.clone()
    })
}

/// Prints the command that shows a node's log on its host.
pub(super) async fn log(options: &Operator) -> anyhow::Result<ExitCode> {
    let deployment = Core::of(options)?.ask(read_deployment()).await?;
    let command = made(install::log(&installation(&deployment)?))?;
    show(options.json, &json!({ "command": command }), || command.clone())
}

/// The command, or whose word it was that no command is made of.
fn made(command: Result<String, install::Refused>) -> anyhow::Result<String> {
    command.context("no command can be made of what core says of itself; its public url comes from --public-url")
}

async fn offered(core: &Core) -> anyhow::Result<(ConsoleConfig, String, Deployment)> {
    let config = core.ask(read_console()).await?;
    let Some(installer) = config.node_installer_sha256 else {
        bail!(
            "core offers no installer: it serves a folder with --node-payload, `palisade release publish` puts a release \
             there, and its node-install has at most {INSTALLER_MAX_BYTES} bytes"
        );
    };
    Ok((config, installer.to_string(), core.ask(read_deployment()).await?))
}

fn installation(deployment: &Deployment) -> anyhow::Result<String> {
    let installation = deployment.installation_id.context("no core has claimed this installation yet; start one")?;
    Ok(installation.to_string())
}
