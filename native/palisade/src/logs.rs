//! Logs go to standard error, so that standard output stays readable by programs.

use std::io::Write as _;

use tracing::Level;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::usage::Usage;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

impl Format {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Text, Self::Json].into_iter().find(|format| format.name() == name)
    }
}

/// What the environment wants logged.
pub(crate) fn wanted(default: &str) -> String {
    std::env::var("PALISADE_LOG").ok().filter(|wanted| !wanted.is_empty()).unwrap_or_else(|| default.to_owned())
}

/// The option, or what the environment says.
pub(crate) fn format(option: Option<Format>) -> anyhow::Result<Format> {
    let variable = std::env::var("PALISADE_LOG_FORMAT").ok().filter(|name| !name.is_empty());
    match (option, variable) {
        (Some(format), _) => Ok(format),
        (None, None) => Ok(Format::Text),
        (None, Some(name)) => {
            let known = Format::from_name(&name);
            known.ok_or_else(|| Usage("PALISADE_LOG_FORMAT is not understood; expected text or json".to_owned()).into())
        }
    }
}

/// Starts to log what `wanted` names.
///
/// Other crates are heard from `info` up, whatever the operator asks for: below that, those for HTTP, WebSocket and the
/// Docker engine log what they carry, which is credentials, standard input and output.
pub(crate) fn start(wanted: &str, format: Format) {
    let filter = EnvFilter::try_new(wanted).unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "warning: PALISADE_LOG is not understood, info is used: {error}");
        EnvFilter::new("info")
    });
    let discreet = filter_fn(|event| *event.level() <= Level::INFO || event.target().starts_with("palisade"));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines.with_filter(discreet)).init();
}
