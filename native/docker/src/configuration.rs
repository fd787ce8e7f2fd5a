//! What an operator configures, checked (node-host §7.1).

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use palisade_core::units::{Digest, Generation, Id};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::limits::{DEFAULT_MEMORY_BYTES, DEFAULT_NANO_CPUS, SECCOMP_MAX_BYTES};

/// What one deployment generation asks of this provider.
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'a> {
    /// Whose sandboxes these are.
    pub installation: Id,
    /// Which deployment generation.
    pub generation: Generation,
    /// Managed resources; without them a sandbox has 2 GiB and 2 CPUs.
    pub resources: Option<Resources>,
    /// The release's `image_id` and `image_manifest_digest`: an engine names the image by one of them.
    pub image_identities: [&'a str; 2],
    /// The JSON text of the provider's own object: exactly `host`, `image`, `network` and `seccomp_file`.
    pub native: &'a str,
}

/// Size of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// Whole cores, 1 … 255.
    pub cpus: u32,
    /// MiB of memory, 512 … 1 048 576.
    pub memory_mib: u32,
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The native object is not exactly the four texts.
    #[error("the docker configuration is not an object of exactly host, image, network and seccomp_file: {0}")]
    Native(String),
    /// `host` is no local socket.
    #[error(
        "host is not unix:// with a canonical absolute path; name the engine's socket, for example unix:///var/run/docker.sock"
    )]
    Host,
    /// `image` is no immutable identity of the release.
    #[error(
        "image is neither image_id nor image_manifest_digest of the Runtime release; load the release's image and name it by its sha256 identity"
    )]
    Image,
    /// `network` would share somebody else's network.
    #[error("network is empty, host or container:…; name a network of the installation")]
    Network,
    /// `cpus` or `memory_mib` outside its bounds.
    #[error("resources are outside 1 to 255 cpus and 512 to 1048576 memory_mib")]
    Resources,
    /// `seccomp_file` does not exist: the generation has to be prepared again.
    #[error("seccomp_file {} does not exist; prepare the generation again", .0.display())]
    SeccompMissing(PathBuf),
    /// `seccomp_file` cannot be used.
    #[error("seccomp_file {}: {reason}", .path.display())]
    Seccomp {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// The backend fingerprint of an engine: SHA-256 over `docker`, NUL and `host`.
#[must_use]
pub fn fingerprint(host: &str) -> Digest {
    Digest::of(format!("docker\0{host}").as_bytes())
}

/// A configuration that passed every check; later changes of its sources have no effect.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) installation: Id,
    pub(crate) generation: Generation,
    pub(crate) limits: Limits,
    pub(crate) managed: bool,
    pub(crate) host: String,
    pub(crate) image: String,
    pub(crate) network: String,
    pub(crate) seccomp: String,
}

/// What the engine is asked to enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: i64,
    pub(crate) nano_cpus: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Native {
    host: String,
    image: String,
    network: String,
    seccomp_file: String,
}

impl Settings {
    pub(crate) fn check(configuration: Configuration<'_>) -> Result<Self, Refused> {
        let native: Native =
            serde_json::from_str(configuration.native).map_err(|error| Refused::Native(error.to_string()))?;
        if !is_local_socket(&native.host) {
            return Err(Refused::Host);
        }
        if !is_digest(&native.image) || !configuration.image_identities.contains(&native.image.as_str()) {
            return Err(Refused::Image);
        }
        if native.network.trim().is_empty() || native.network == "host" || native.network.starts_with("container:") {
            return Err(Refused::Network);
        }
        Ok(Self {
            installation: configuration.installation,
            generation: configuration.generation,
            limits: Limits::of(configuration.resources)?,
            managed: configuration.resources.is_some(),
            host: native.host,
            image: native.image,
            network: native.network,
            seccomp: seccomp_profile(Path::new(&native.seccomp_file))?,
        })
    }
}

impl Limits {
    fn of(resources: Option<Resources>) -> Result<Self, Refused> {
        match resources {
            None => Ok(Self { memory_bytes: DEFAULT_MEMORY_BYTES, nano_cpus: DEFAULT_NANO_CPUS }),
            Some(Resources { cpus: 1..=255, memory_mib: 512..=1_048_576 }) => {
                let Resources { cpus, memory_mib } = resources.ok_or(Refused::Resources)?;
                Ok(Self { memory_bytes: i64::from(memory_mib) << 20, nano_cpus: i64::from(cpus) * 1_000_000_000 })
            }
            Some(_) => Err(Refused::Resources),
        }
    }
}

fn is_local_socket(host: &str) -> bool {
    host.strip_prefix("unix://").is_some_and(|path| path.len() > 1 && is_canonical(path))
}

fn is_canonical(path: &str) -> bool {
    let clean: PathBuf =
        Path::new(path).components().filter(|part| matches!(part, Component::RootDir | Component::Normal(_))).collect();
    path.starts_with('/') && clean.as_os_str() == path && !path.contains(char::is_control)
}

fn is_digest(image: &str) -> bool {
    image.strip_prefix("sha256:").is_some_and(|digest| Digest::parse(digest).is_ok())
}

fn seccomp_profile(path: &Path) -> Result<String, Refused> {
    let refused = |reason: &str| Refused::Seccomp { path: path.to_owned(), reason: reason.to_owned() };
    if !path.to_str().is_some_and(is_canonical) {
        return Err(refused("expected a canonical absolute path"));
    }
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Refused::SeccompMissing(path.to_owned()),
        _ => refused(&error.to_string()),
    };
    // Opening a pipe would wait for its other end.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(refused("expected a regular file"));
    }
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(SECCOMP_MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| refused(&error.to_string()))?;
    if text.len() as u64 > SECCOMP_MAX_BYTES {
        return Err(refused("longer than 1 MiB"));
    }
    let profile: &RawValue = serde_json::from_str(&text).map_err(|_| refused("not a JSON document"))?;
    if !profile.get().starts_with('{') {
        return Err(refused("expected a JSON object"));
    }
    Ok(profile.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const MANIFEST: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn check(native: &str, resources: Option<Resources>) -> Result<Settings, Refused> {
        Settings::check(Configuration {
            installation: Id::from_random([1; 16]),
            generation: Generation::FIRST,
            resources,
            image_identities: [ID, MANIFEST],
            native,
        })
    }

    fn native(seccomp: &Path, member: &str, value: &str) -> String {
        let mut members = vec![
            ("host", "unix:///var/run/docker.sock"),
            ("image", ID),
            ("network", "oac-node-x"),
            ("seccomp_file", seccomp.to_str().unwrap()),
        ];
        members.iter_mut().filter(|(name, _)| *name == member).for_each(|entry| entry.1 = value);
        let members: serde_json::Map<String, serde_json::Value> =
            members.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        serde_json::to_string(&members).unwrap()
    }

    fn profile(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, content.as_bytes()).unwrap();
        file
    }

    /// H 182. Unsafe configuration is refused.
    #[test]
    fn unsafe_operator_configuration_is_refused() {
        let file = profile("{}");
        for (member, values) in [
            (
                "host",
                &[
                    "",
                    "tcp://127.0.0.1:2375",
                    "unix://",
                    "unix:///",
                    "unix://run/d.sock",
                    "unix:///a/../d.sock",
                    "unix:///a//d.sock",
                    "/var/run/docker.sock",
                ][..],
            ),
            ("network", &["", " ", "host", "container:abc"]),
            (
                "image",
                &[
                    "",
                    "oac-runtime",
                    "oac-runtime:latest",
                    "sha256:abc",
                    "oac-runtime@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                ],
            ),
            ("seccomp_file", &["", "seccomp.json", "/nonexistent/../seccomp.json"]),
        ] {
            for value in values {
                assert!(check(&native(file.path(), member, value), None).is_err(), "{member} = {value:?}");
            }
        }
        for resources in [(0, 512), (256, 512), (1, 511), (1, 1_048_577)] {
            let resources = Resources { cpus: resources.0, memory_mib: resources.1 };
            assert!(matches!(check(&native(file.path(), "", ""), Some(resources)), Err(Refused::Resources)));
        }
        assert!(check(&native(file.path(), "", ""), Some(Resources { cpus: 255, memory_mib: 1_048_576 })).is_ok());
    }

    /// H 182. A pipe in place of the profile is refused, not waited for.
    #[test]
    fn pipe_is_no_seccomp_profile() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("seccomp.json");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(matches!(check(&native(&pipe, "", ""), None), Err(Refused::Seccomp { .. })));
    }

    /// H 189. The image is one of the release's identities; the object has no extra and no null members.
    ///
    /// H 197-198. Members of Core, and members that would override the specification, are no members of it.
    /// E34. A tag is never an identity.
    #[test]
    fn native_object_is_exact() {
        let file = profile("{}");
        let good = native(file.path(), "", "");
        assert_eq!(check(&good, None).unwrap().image, ID);
        assert_eq!(check(&native(file.path(), "image", MANIFEST), None).unwrap().image, MANIFEST);
        let stranger = ID.replace('a', "c");
        assert!(matches!(check(&native(file.path(), "image", &stranger), None), Err(Refused::Image)));
        for bad in [
            good.replace("\"network\":\"oac-node-x\"", "\"network\":null"),
            good.replace("\"network\":\"oac-node-x\",", ""),
            good.replace("\"network\"", "\"Network\""),
            good.replacen('{', "{\"nested_sandbox\":true,", 1),
            good.replacen('{', "{\"extra_hosts\":[],", 1),
            good.replacen('{', "{\"network\":\"a\",", 1),
            good.replacen('{', "{\"core_key\":\"a\",", 1),
            good.replacen('{', "{\"resources\":{\"cpus\":9,\"memory_mib\":512},", 1),
            good.replacen('{', "{\"generation\":1,", 1),
            format!("[{good}]"),
            "null".to_owned(),
        ] {
            assert!(matches!(check(&bad, None), Err(Refused::Native(_))), "{bad}");
        }
    }

    #[test]
    fn missing_seccomp_profile_is_told_from_an_invalid_one() {
        let missing = Path::new("/nonexistent/seccomp.json");
        assert!(matches!(check(&native(missing, "", ""), None), Err(Refused::SeccompMissing(_))));
        for content in ["", " ", "{", "[]", "\"x\"", "{} {}"] {
            let file = profile(content);
            assert!(matches!(check(&native(file.path(), "", ""), None), Err(Refused::Seccomp { .. })), "{content}");
        }
    }

    /// H 188. Without managed resources a sandbox has 2 GiB and 2 CPUs.
    #[test]
    fn default_limits_hold_without_managed_resources() {
        let file = profile("{}");
        let defaults = check(&native(file.path(), "", ""), None).unwrap();
        assert_eq!(defaults.limits, Limits { memory_bytes: 2 << 30, nano_cpus: 2_000_000_000 });
        let managed = check(&native(file.path(), "", ""), Some(Resources { cpus: 3, memory_mib: 513 })).unwrap();
        assert_eq!(managed.limits, Limits { memory_bytes: 513 << 20, nano_cpus: 3_000_000_000 });
    }

    #[test]
    fn fingerprints_differ_by_host() {
        let known = fingerprint("unix:///var/run/docker.sock");
        assert_eq!(known, Digest::of(b"docker\0unix:///var/run/docker.sock"));
        assert_ne!(known, fingerprint("unix:///run/docker.sock"));
    }
}
