//! The provider configuration of one generation (node-host §1.9 I2).

use std::path::Path;
use std::sync::Arc;

use palisade_core::deployment::contract::{Provider as Kind, RuntimeMember};
use palisade_core::generation::configuration::{Configuration as Record, InvalidConfiguration};
use palisade_core::limits::PLAN_MAX_BYTES;
use palisade_core::units::{Digest, Generation, Id};
use palisade_docker::{DockerProvider, Resources};
use palisade_provider::Provider;

use crate::files::{self, FileError, Privacy};
use crate::origin::Origin;

/// What one deployment generation asks of this host. Nothing in it can override the specification.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// What stands in the file.
    pub(crate) record: Record,
    /// The Core that it was written for. Nothing is sent there: the address of the identity counts.
    core_url: Origin,
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file itself.
    #[error("the configuration cannot be used: {0}")]
    File(#[from] FileError),
    /// Its content.
    #[error("the configuration is refused: {0}")]
    Invalid(#[from] InvalidConfiguration),
    /// The docker provider refused its part.
    #[error("native is refused: {0}")]
    Docker(#[from] palisade_docker::Refused),
    /// No provider of this program reads it.
    #[error("this program has no {0} provider for nodes")]
    NoProvider(&'static str),
}

impl ConfigurationError {
    /// Whether the provider misses a file that a repair can bring back (node-host §3.10).
    pub(crate) const fn misses_a_file(&self) -> bool {
        match self {
            Self::Docker(palisade_docker::Refused::SeccompMissing(_)) => true,
            Self::File(_) | Self::Invalid(_) | Self::Docker(_) | Self::NoProvider(_) => false,
        }
    }
}

impl From<Record> for Configuration {
    fn from(record: Record) -> Self {
        let core_url = Origin::parse(&record.envelope.core_url).expect("a record holds a checked origin");
        Self { record, core_url }
    }
}

impl Configuration {
    /// Reads a configuration file: regular, ours, writable by its owner alone, at most 16 384 bytes.
    pub(crate) fn load(path: &Path) -> Result<Self, ConfigurationError> {
        files::require_clean(path)?;
        Self::parse(&files::read(path, Privacy::Published, PLAN_MAX_BYTES)?)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ConfigurationError> {
        Ok(Record::parse(bytes)?.into())
    }

    /// Whose installation.
    pub(crate) const fn installation(&self) -> Id {
        self.record.envelope.installation
    }

    /// A provider that runs on nodes.
    pub(crate) const fn kind(&self) -> Kind {
        self.record.envelope.provider()
    }

    /// The deployment generation.
    pub(crate) const fn generation(&self) -> Generation {
        self.record.envelope.generation
    }

    /// The digest of the specification.
    pub(crate) fn digest(&self) -> Digest {
        self.record.envelope.digest()
    }

    /// Says in the log when the configuration was written for another Core than the node's. It is no reason to refuse:
    /// a configuration must agree with the identity in installation, provider, generation and digest (node-host §4.3).
    pub(crate) fn warn_of_another_core(&self, core_url: &Origin) {
        let configured = &self.core_url;
        if !self.is_for(core_url) {
            tracing::warn!(%configured, used = %core_url, "the configuration names another Core than the one in use");
        }
    }

    fn is_for(&self, core_url: &Origin) -> bool {
        self.core_url.join("") == core_url.join("")
    }

    /// The address of the engine, when the provider has one.
    pub(crate) fn engine(&self) -> Option<String> {
        let native: serde_json::Value = serde_json::from_str(self.record.native.get()).ok()?;
        native["host"].as_str().map(str::to_owned)
    }

    /// The provider that serves this generation, on this host.
    pub(crate) fn backend(&self) -> Result<Backend, ConfigurationError> {
        match self.kind() {
            Kind::Docker => self.docker(),
            other @ (Kind::Microsandbox | Kind::E2b) => Err(ConfigurationError::NoProvider(other.name())),
        }
    }

    fn docker(&self) -> Result<Backend, ConfigurationError> {
        let specification = &self.record.envelope.specification;
        let identity = |member| specification.runtime(member).unwrap_or_default();
        let provider = DockerProvider::new(palisade_docker::Configuration {
            installation: self.installation(),
            generation: self.generation(),
            resources: Some(Resources { cpus: specification.cpus(), memory_mib: specification.memory_mib() }),
            image_identities: [identity(RuntimeMember::ImageId), identity(RuntimeMember::ImageManifestDigest)],
            native: self.record.native.get(),
        })?;
        let fingerprint = palisade_docker::fingerprint(provider.host());
        Ok(Backend { provider: Arc::new(provider), fingerprint })
    }
}

/// A provider on this host.
pub(crate) struct Backend {
    pub(crate) provider: Arc<dyn Provider>,
    /// Names the provider and the place its resources live in (node-host §7.1).
    pub(crate) fingerprint: Digest,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::configuration;

    fn parse(value: &Value) -> Result<Configuration, ConfigurationError> {
        Configuration::parse(value.to_string().as_bytes())
    }

    fn with(name: &str, value: Value) -> Value {
        let mut configuration = configuration();
        configuration[name] = value;
        configuration
    }

    /// H 198. The digest comes from the configured specification; nothing native changes it.
    #[test]
    fn the_specification_alone_makes_the_digest() {
        let read = parse(&configuration()).unwrap();
        assert_eq!(read.digest().to_string(), "1237a0d19e665b387922ad3d60143d5cd530864f0e3e4ee2c5ace57a1134aa38");
        let mut native = configuration()["native"].clone();
        native["image"] = json!("sha256:0");
        assert_eq!(parse(&with("native", native)).unwrap().digest(), read.digest());
    }

    #[rstest]
    #[case("generation", json!(0))]
    #[case("generation", json!(9_223_372_036_854_775_808_u64))]
    #[case("generation", json!("1"))]
    #[case("generation", json!(1.0))]
    #[case("installation_id", json!("00000000-0000-0000-0000-000000000000"))]
    #[case("installation_id", json!("6F1C2B1E-5F0A-4A55-9D0E-0A1B2C3D4E5F"))]
    #[case("provider", json!("e2b"))]
    #[case("provider", json!("Docker"))]
    #[case("provider", json!("other"))]
    #[case("core_url", json!("https://core.example"))]
    #[case("core_url", json!("https://core.example/api/v1/"))]
    #[case("core_url", json!("https://core.example//api/v1"))]
    #[case("core_url", json!("https://user@core.example/api/v1"))]
    #[case("specification", json!({"resources": {"cpus": 1, "memory_mib": 512}}))]
    #[case("specification", json!([]))]
    #[case("native", json!([]))]
    #[case("native", json!("{}"))]
    #[case("max_active", json!(2))]
    #[case("credential", json!("secret"))]
    #[case("owner_epoch", json!(1))]
    /// H 197. Core's members, other providers and malformed values are refused. H 198. So is generation 0.
    fn a_wrong_member_is_refused(#[case] name: &str, #[case] value: Value) {
        parse(&with(name, value)).unwrap_err();
    }

    #[test]
    fn a_configuration_for_another_core_is_noticed() {
        let configuration = parse(&configuration()).unwrap();
        let is_for = |text: &str| configuration.is_for(&Origin::parse(text).unwrap());
        assert!(is_for("https://core.example") && is_for("https://core.example/"));
        assert!(!is_for("https://core.example:8443") && !is_for("https://other.example"));
    }

    /// H 197. Every member is required and none is nullable; nothing follows the object.
    #[test]
    fn missing_null_repeated_and_trailing_content_is_refused() {
        for name in ["installation_id", "provider", "core_url", "specification", "generation", "native"] {
            parse(&with(name, Value::Null)).unwrap_err();
            let mut short = configuration();
            short.as_object_mut().unwrap().remove(name);
            parse(&short).unwrap_err();
            let whole = configuration().to_string();
            let repeated = format!("{},\"{name}\":{}}}", &whole[..whole.len() - 1], configuration()[name]);
            Configuration::parse(repeated.as_bytes()).unwrap_err();
        }
        Configuration::parse(format!("{} {{}}", configuration()).as_bytes()).unwrap_err();
    }

    /// H 197. Two sockets are two backends.
    #[test]
    fn a_fingerprint_names_provider_and_place() {
        let directory = tempfile::tempdir().unwrap();
        let seccomp = directory.path().join("seccomp.json");
        crate::testing::write(&seccomp, r#"{"defaultAction":"SCMP_ACT_ERRNO"}"#);
        let fingerprint = |host: &str| {
            let mut configuration = configuration();
            configuration["native"]["seccomp_file"] = json!(seccomp);
            configuration["native"]["host"] = json!(host);
            parse(&configuration).unwrap().backend().unwrap().fingerprint
        };
        assert_eq!(fingerprint("unix:///run/a.sock"), Digest::of(b"docker\0unix:///run/a.sock"));
        assert_ne!(fingerprint("unix:///run/a.sock"), fingerprint("unix:///run/b.sock"));
    }

    /// H 197. The provider judges its own part: a missing profile, another member, a null.
    #[test]
    fn a_wrong_native_part_is_refused_by_its_provider() {
        for (name, value) in [("other", json!(1)), ("image", Value::Null), ("network", json!("host"))] {
            let mut configuration = configuration();
            configuration["native"][name] = value;
            let refused = parse(&configuration).unwrap().backend().err().unwrap();
            assert!(matches!(refused, ConfigurationError::Docker(_)), "{refused}");
        }
    }
}
