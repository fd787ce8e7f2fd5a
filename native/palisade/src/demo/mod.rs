//! stub
pub(crate) fn run(_options: &crate::cli::Demo) -> anyhow::Result<std::process::ExitCode> {
    anyhow::bail!("the demo is not built yet")
}
