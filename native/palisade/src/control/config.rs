//! What Core is told, and by whom: an option wins over its variable, that over the file, that over the default.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context as _;
use palisade_control::limits::BODY_BUDGET_MIN_BYTES;
use palisade_control::store::Location;
use palisade_control::{Options, SealKey};
use palisade_core::deployment::origin::Origin;

use super::file;
use super::settings::{SETTINGS, Setting, find};
use crate::logs::Format;
use crate::usage::Usage;

/// The variable that names the file.
const FILE_VARIABLE: &str = "OAC_CORE_CONFIG";

/// Where a value came from, the strongest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Option(&'static str),
    Variable(&'static str),
    File { path: PathBuf, line: usize },
    Default,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Option(option) => write!(f, "option {option}"),
            Self::Variable(variable) => write!(f, "variable {variable}"),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Source {
    /// Of two sources of one rank neither wins.
    const fn rank(&self) -> u8 {
        match self {
            Self::Option(_) => 0,
            Self::Variable(_) => 1,
            Self::File { .. } => 2,
            Self::Default => 3,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) text: String,
    pub(super) source: Source,
}

/// The effective value of every setting that has one.
#[derive(Debug)]
pub(super) struct Config {
    values: BTreeMap<&'static str, Value>,
    file: Option<PathBuf>,
}

impl Config {
    /// Gathers what was given. An empty variable counts as absent.
    pub(super) fn gather(
        given: Vec<(&'static str, Option<String>)>,
        file: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let environment = |name: &str| environment(name).filter(|value| !value.is_empty());
        let file = file.map(Path::to_owned).or_else(|| environment(FILE_VARIABLE).map(PathBuf::from));
        let mut values = BTreeMap::new();
        for setting in SETTINGS.iter().filter(|setting| setting.default.is_some()) {
            let text = setting.default.unwrap_or_default().to_owned();
            values.insert(setting.key, Value { text, source: Source::Default });
        }
        if let Some(path) = &file {
            for entry in file::read(path)? {
                let source = Source::File { path: path.clone(), line: entry.line };
                values.insert(entry.setting.key, Value { text: entry.text, source });
            }
        }
        for setting in &SETTINGS {
            if let Some(text) = environment(setting.variable) {
                values.insert(setting.key, Value { text, source: Source::Variable(setting.variable) });
            }
        }
        for (key, text) in given.into_iter().filter_map(|(key, text)| Some((key, text?))) {
            let option = find(key).and_then(|setting| setting.option).unwrap_or(key);
            values.insert(key, Value { text, source: Source::Option(option) });
        }
        Ok(Self { values, file })
    }

    /// The file that was read.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        debug_assert!(find(key).is_some(), "{key} is a setting");
        self.values.get(key)
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.get(key).map(|value| value.text.clone())
    }

    /// Every setting with its value.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static Setting, Option<&Value>)> {
        SETTINGS.iter().map(|setting| (setting, self.values.get(setting.key)))
    }

    /// The database: the one of the two settings that has the stronger source.
    pub(super) fn store(&self) -> anyhow::Result<Location> {
        let directory = |value: &Value| Location::Directory(PathBuf::from(&value.text));
        let url = |value: &Value| Location::Url(value.text.clone());
        match (self.get("data"), self.get("database_url")) {
            (Some(data), None) => Ok(directory(data)),
            (None, Some(database)) => Ok(url(database)),
            (Some(data), Some(database)) if data.source.rank() < database.source.rank() => Ok(directory(data)),
            (Some(data), Some(database)) if data.source.rank() > database.source.rank() => Ok(url(database)),
            (Some(data), Some(database)) => {
                let (one, other) = (&data.source, &database.source);
                Err(Usage(format!("two databases are named, data ({one}) and database_url ({other}); name one")).into())
            }
            (None, None) => Err(Usage(
                "no database is named; name a folder for the embedded one with --data, or a PostgreSQL database in \
                 OAC_DATABASE_URL"
                    .to_owned(),
            )
            .into()),
        }
    }

    pub(super) fn listen(&self) -> anyhow::Result<SocketAddr> {
        let listen = self.parsed("listen", "an address and a port such as 127.0.0.1:8080")?;
        listen.context("a default is always there")
    }

    pub(super) fn metrics_listen(&self) -> anyhow::Result<Option<SocketAddr>> {
        self.parsed("metrics_listen", "an address and a port such as 127.0.0.1:9464")
    }

    /// What `serve` takes.
    pub(super) fn options(&self) -> anyhow::Result<Options> {
        let least = BODY_BUDGET_MIN_BYTES >> 20;
        let expected = format!("an integer from {least} to 1048576");
        let mebibytes: u64 = self.parsed("body_budget_mib", &expected)?.context("a default is always there")?;
        if !(least..=1 << 20).contains(&mebibytes) {
            return Err(self.refuse("body_budget_mib", &expected));
        }
        Ok(Options {
            listen: self.listen()?,
            store: self.store()?,
            public_url: self.public_url()?,
            admin_key_file: self.text("admin_key_file").map(PathBuf::from),
            admin_key_digests: self.text("admin_key_sha256s"),
            metrics_listen: self.metrics_listen()?,
            body_budget_bytes: mebibytes << 20,
            node_payload: self.text("node_payload").map(PathBuf::from),
            credential_key_file: self.text("credential_key_file").map(PathBuf::from),
            credential_key: self.credential_key()?,
        })
    }

    pub(super) fn log_format(&self) -> anyhow::Result<Format> {
        let format = self.get("log_format").and_then(|value| Format::from_name(&value.text));
        format.ok_or_else(|| self.refuse("log_format", "text or json"))
    }

    fn public_url(&self) -> anyhow::Result<Option<String>> {
        let url = self.text("public_url");
        match url.as_deref().map(Origin::parse) {
            Some(None) => Err(self.refuse(
                "public_url",
                "a lower-case https or http origin without path, query or user, such as https://core.example",
            )),
            Some(Some(_)) | None => Ok(url),
        }
    }

    fn credential_key(&self) -> anyhow::Result<Option<SealKey>> {
        let key = self.get("credential_key").map(|value| SealKey::parse(&value.text));
        key.transpose().map_err(|_| self.refuse("credential_key", "64 lower-case hexadecimal characters"))
    }

    fn parsed<T: FromStr>(&self, key: &'static str, expected: &str) -> anyhow::Result<Option<T>> {
        let parsed = self.get(key).map(|value| value.text.parse().map_err(|_| self.refuse(key, expected)));
        parsed.transpose()
    }

    /// Names the setting and where its value stands, and never the value.
    fn refuse(&self, key: &'static str, expected: &str) -> anyhow::Error {
        let source = self.get(key).map_or(Source::Default, |value| value.source.clone());
        Usage(format!("{key} is not understood ({source}); expected {expected}")).into()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "throw-away files of a test")]
mod tests {
    use super::*;

    fn gather(option: Option<&str>, variable: Option<&str>, file: Option<&str>) -> anyhow::Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("core.toml");
        if let Some(text) = file {
            std::fs::write(&path, text).unwrap();
        }
        let environment = |name: &str| (name == "OAC_CORE_LISTEN").then(|| variable.map(str::to_owned)).flatten();
        Config::gather(vec![("listen", option.map(str::to_owned))], file.map(|_| path.as_path()), environment)
    }

    #[test]
    fn an_option_wins_over_its_variable_that_over_the_file_that_over_the_default() {
        let (option, variable, file) = (Some("1.1.1.1:1"), Some("2.2.2.2:2"), Some("listen = \"3.3.3.3:3\""));
        for (config, port) in [
            (gather(option, variable, file), 1),
            (gather(None, variable, file), 2),
            (gather(None, Some(""), file), 3),
            (gather(None, None, file), 3),
            (gather(None, None, None), 8080),
        ] {
            assert_eq!(config.unwrap().listen().unwrap().port(), port);
        }
    }

    #[test]
    fn a_value_that_is_not_understood_is_named_with_its_place_and_not_shown() {
        let told = gather(None, None, Some("\nlisten = \"hunter2\"")).unwrap().listen().unwrap_err().to_string();
        assert!(
            told.starts_with("listen is not understood (") && told.contains("core.toml line 2); expected"),
            "{told}"
        );
        assert!(!told.contains("hunter2"), "{told}");
    }

    #[test]
    fn a_public_url_that_is_no_origin_is_wrong_usage() {
        for url in ["ftp://hunter2", "https://core.example/hunter2", "core.example", "https://User@core.example"] {
            let given = vec![("public_url", Some(url.to_owned())), ("data", Some("d".to_owned()))];
            let refused = Config::gather(given, None, |_| None).unwrap().options().unwrap_err();
            assert!(refused.is::<Usage>(), "{url}");
            let told = refused.to_string();
            assert!(told.starts_with("public_url is not understood (option --public-url)"), "{told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn the_stronger_source_names_the_database_and_equal_ones_are_refused() {
        let config = |data: Option<&str>, url: Option<&str>| {
            let given = vec![("data", data.map(str::to_owned))];
            Config::gather(given, None, |name| url.filter(|_| name == "OAC_DATABASE_URL").map(str::to_owned)).unwrap()
        };
        assert!(matches!(config(Some("d"), Some("u")).store().unwrap(), Location::Directory(_)));
        assert!(matches!(config(None, Some("u")).store().unwrap(), Location::Url(_)));
        assert!(config(None, None).store().unwrap_err().to_string().contains("--data"));
        let both = |name: &str| matches!(name, "OAC_CORE_DATA" | "OAC_DATABASE_URL").then(|| "hunter2".to_owned());
        let told = Config::gather(Vec::new(), None, both).unwrap().store().unwrap_err().to_string();
        assert!(told.contains("variable OAC_CORE_DATA") && !told.contains("hunter2"), "{told}");
    }
}
