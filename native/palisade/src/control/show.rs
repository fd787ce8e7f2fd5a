//! `palisade core config`: what is effective, and where it came from.

use std::process::ExitCode;

use serde::Serialize;

use super::config::Config;
use crate::operator::table::table;
use crate::print;

/// What is shown of a value that is secret.
const MASK: &str = "***";

#[derive(Serialize)]
struct Shown {
    setting: &'static str,
    /// `null`: it has none.
    value: Option<String>,
    masked: bool,
    source: String,
}

#[derive(Serialize)]
struct Effective {
    file: Option<String>,
    settings: Vec<Shown>,
}

pub(super) fn run(config: &Config, json: bool) -> anyhow::Result<ExitCode> {
    let shown = config.all().map(|(setting, value)| Shown {
        setting: setting.key,
        value: value.map(|value| if setting.secret { MASK.to_owned() } else { value.text.clone() }),
        masked: setting.secret && value.is_some(),
        source: value.map_or_else(|| format!("none; variable {}", setting.variable), |value| value.source.to_string()),
    });
    let effective = Effective { file: config.file().map(|path| path.display().to_string()), settings: shown.collect() };
    let text = if json {
        serde_json::to_string(&effective)? + "\n"
    } else {
        let rows = effective.settings.into_iter();
        let rows = rows.map(|row| [row.setting.to_owned(), row.value.unwrap_or_else(|| "-".to_owned()), row.source]);
        table(["SETTING", "VALUE", "FROM"], rows)
    };
    // What cannot be served with is refused here as well, after it was shown.
    let code = print(text.as_bytes())?;
    config.options().map(|_| code)
}
