//! What a configuration says to this provider alone, and in which surroundings it may be constructed (node-host §1.9,
//! §8.1).

use serde::{Deserialize, Serialize};

use super::image::ImageReference;
use crate::deployment::contract::{Provider, Resource, RuntimeMember};
use crate::deployment::specification::Specification;
use crate::limits::STORE_PATH_MAX_BYTES;
use crate::strict;
use crate::units::Digest;

/// Exactly the members of microsandbox's part of a configuration. Sizes, image and hashes come from the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Native {
    /// Where the firmware stands.
    pub firmware_path: String,
    /// Where the helper stands.
    pub helper_path: String,
    /// What sandboxes may reach.
    #[serde(deserialize_with = "strict::nested")]
    pub network: Network,
    /// The store.
    pub runtime_home: String,
    /// Where `msb` stands.
    pub runtime_path: String,
}

/// What sandboxes may reach, and who may reach them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// What becomes of a connection to outside that no rule speaks of.
    pub default_egress: Decision,
    /// What becomes of a connection from outside that no rule speaks of.
    pub default_ingress: Decision,
    /// The first rule that fits decides.
    pub rules: Vec<strict::Object<Rule>>,
}

/// Whether a connection may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// Which way a connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// By the sandbox.
    Egress,
    /// To the sandbox.
    Ingress,
}

/// What a connection is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// One rule about connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Whether they may be.
    pub action: Decision,
    /// Which way they are made.
    pub direction: Direction,
    /// An address, or one of the provider's own words such as `public` and `host`.
    pub destination: String,
    /// Of this protocol alone.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// To this port alone, 1 … 65535.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub port: Option<std::num::NonZeroU16>,
}

/// Where a provider is constructed. Nothing is assumed: a caller says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Context<'a> {
    /// Without generations: no lease is taken, and readiness does not look at the image.
    Standalone,
    /// For a generation whose records are in this state directory, absolute and clean.
    Generation {
        /// The node's private state.
        state: &'a str,
    },
}

/// A construction that may go on: everything in it was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Construction {
    /// The provider's own part.
    pub native: Native,
    /// The image of every sandbox.
    pub image: ImageReference,
    /// SHA-256 of `msb`.
    pub runtime: Digest,
    /// SHA-256 of the firmware.
    pub firmware: Digest,
    /// CPUs of a sandbox.
    pub cpus: u32,
    /// Memory of a sandbox, in MiB.
    pub memory_mib: u32,
    /// Root disk of a sandbox, in MiB.
    pub root_disk_mib: u32,
    /// Environment disk of a sandbox, in MiB.
    pub environment_disk_mib: u32,
}

/// Why a construction was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The native part is not exactly its members.
    #[error(
        "the microsandbox configuration is not an object of exactly helper_path, runtime_path, firmware_path, \
         runtime_home and network: {0}"
    )]
    Native(String),
    /// A path is not absolute and clean.
    #[error("{0} is not a canonical absolute path")]
    Path(&'static str),
    /// No sockets fit below the store.
    #[error("runtime_home is longer than 48 bytes; use an account with a shorter home")]
    StoreTooLong,
    /// A rule leads nowhere.
    #[error("a network rule has no destination; name an address, public or host")]
    Destination,
    /// The specification was made for another provider.
    #[error("the specification is not one of microsandbox")]
    Provider,
    /// The release does not pin its image.
    #[error(
        "microsandbox_ref is not name@sha256: and 64 lower-case hexadecimal digits; select a release that pins its image"
    )]
    Image,
    /// The release does not pin its programs.
    #[error("{0} is not a SHA-256; select a release with microsandbox")]
    Program(&'static str),
    /// Neither or both surroundings were named, or a state directory that is not absolute.
    #[error("expected exactly one of standalone and a canonical absolute state directory")]
    Context,
}

impl<'a> Context<'a> {
    /// Exactly one of the two must be given.
    ///
    /// # Errors
    /// [`Refused::Context`].
    pub fn explicit(standalone: bool, state: Option<&'a str>) -> Result<Self, Refused> {
        match (standalone, state) {
            (true, None) => Ok(Self::Standalone),
            (false, Some(state)) if is_canonical(state) => Ok(Self::Generation { state }),
            (true, Some(_)) | (false, Some(_) | None) => Err(Refused::Context),
        }
    }
}

impl Construction {
    /// Checks the provider's own part and what the specification pins (node-host §8.1).
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(specification: &Specification, native: &str) -> Result<Self, Refused> {
        if specification.provider() != Provider::Microsandbox {
            return Err(Refused::Provider);
        }
        let native: Native = strict::object(native.as_bytes()).map_err(|error| Refused::Native(error.to_string()))?;
        native.check()?;
        let pinned = |member: RuntimeMember| specification.runtime(member).unwrap_or_default();
        let digest = |member: RuntimeMember| Digest::parse(pinned(member)).map_err(|_| Refused::Program(member.name()));
        Ok(Self {
            image: ImageReference::parse(pinned(RuntimeMember::MicrosandboxRef)).map_err(|_| Refused::Image)?,
            runtime: digest(RuntimeMember::RuntimeSha256)?,
            firmware: digest(RuntimeMember::FirmwareSha256)?,
            // A checked specification of this provider has no size of zero.
            cpus: specification.cpus(),
            memory_mib: specification.memory_mib(),
            root_disk_mib: specification.resource(Resource::RootDiskMib),
            environment_disk_mib: specification.resource(Resource::EnvironmentDiskMib),
            native,
        })
    }

    /// Names the provider and the place its resources live in.
    #[must_use]
    pub fn fingerprint(&self) -> Digest {
        Digest::of(format!("microsandbox\0{}", self.native.runtime_home).as_bytes())
    }
}

impl Native {
    fn check(&self) -> Result<(), Refused> {
        let paths = [
            ("runtime_home", &self.runtime_home),
            ("helper_path", &self.helper_path),
            ("runtime_path", &self.runtime_path),
            ("firmware_path", &self.firmware_path),
        ];
        if let Some((name, _)) = paths.into_iter().find(|(_, path)| !is_canonical(path)) {
            return Err(Refused::Path(name));
        }
        if self.runtime_home.len() > STORE_PATH_MAX_BYTES {
            return Err(Refused::StoreTooLong);
        }
        if self.network.rules.iter().any(|rule| rule.0.destination.trim().is_empty()) {
            return Err(Refused::Destination);
        }
        Ok(())
    }
}

/// Absolute, below the root, and written in the one way that a path has when it is resolved.
fn is_canonical(path: &str) -> bool {
    let clean = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(clean)) && !path.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn specification(provider: Provider, runtime: &Value) -> Specification {
        let mut resources = json!({"cpus": 2, "memory_mib": 4096});
        if provider == Provider::Microsandbox {
            resources["root_disk_mib"] = json!(8192);
            resources["environment_disk_mib"] = json!(16384);
        }
        let text = json!({"resources": resources, "runtime": runtime}).to_string();
        Specification::parse(provider, text.as_bytes()).unwrap()
    }

    fn runtime() -> Value {
        let hex = |digit: &str| digit.repeat(64);
        json!({
            "source_commit": "a".repeat(40), "image_id": format!("sha256:{}", hex("b")),
            "image_manifest_digest": format!("sha256:{}", hex("c")),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", hex("c")),
            "runtime_sha256": hex("e"), "firmware_sha256": hex("f"),
        })
    }

    fn native() -> Value {
        let release = "/var/lib/oac-node/.oac/nodes/n/native";
        json!({
            "helper_path": format!("{release}/bin/oac-microsandbox-provider"),
            "runtime_path": format!("{release}/microsandbox/msb"),
            "firmware_path": format!("{release}/microsandbox/libkrunfw.so.5.6.1"),
            "runtime_home": "/var/lib/oac-node/.oac/m/0123456789ab",
            "network": {"default_egress": "deny", "default_ingress": "deny", "rules": [
                {"action": "allow", "direction": "egress", "destination": "10.0.0.1", "protocol": "tcp", "port": 443},
                {"action": "allow", "direction": "egress", "destination": "public"},
                {"action": "allow", "direction": "egress", "destination": "host", "protocol": "udp", "port": 53},
            ]},
        })
    }

    fn check(native: &str) -> Result<Construction, Refused> {
        Construction::check(&specification(Provider::Microsandbox, &runtime()), native)
    }

    fn with(path: &str, value: Value) -> String {
        let mut native = native();
        *native.pointer_mut(path).unwrap() = value;
        native.to_string()
    }

    #[test]
    fn a_whole_configuration_is_accepted() {
        let made = check(&native().to_string()).unwrap();
        let sizes = [made.cpus, made.memory_mib, made.root_disk_mib, made.environment_disk_mib];
        assert_eq!(sizes, [2, 4096, 8192, 16384]);
        assert_eq!(made.image.to_string(), format!("oac-runtime@sha256:{}", "c".repeat(64)));
        assert_eq!(made.fingerprint(), Digest::of(b"microsandbox\0/var/lib/oac-node/.oac/m/0123456789ab"));
        assert_eq!(serde_json::to_value(&made.native).unwrap(), native());
    }

    /// H 177. The image and both programs come from the specification, which pins them; nothing native replaces it.
    #[test]
    fn nothing_native_replaces_what_the_release_pins() {
        for name in ["image", "runtime_sha256", "memory_mib", "generation"] {
            let text = native().to_string().replacen('{', &format!("{{\"{name}\":1,"), 1);
            assert!(matches!(check(&text), Err(Refused::Native(_))), "{name}");
        }
        let docker = specification(Provider::Docker, &runtime());
        assert_eq!(Construction::check(&docker, &native().to_string()), Err(Refused::Provider));
    }

    #[test]
    fn every_member_is_required_once_and_of_its_type() {
        for name in ["helper_path", "runtime_path", "firmware_path", "runtime_home", "network"] {
            let mut short = native();
            short.as_object_mut().unwrap().remove(name);
            assert!(matches!(check(&short.to_string()), Err(Refused::Native(_))), "{name}");
            assert!(matches!(check(&with(&format!("/{name}"), Value::Null)), Err(Refused::Native(_))), "{name}");
        }
        let twice = native().to_string().replacen('{', "{\"helper_path\":\"/a\",", 1);
        for text in [&twice, "[]", "null", &format!("{} {{}}", native())] {
            assert!(matches!(check(text), Err(Refused::Native(_))), "{text}");
        }
    }

    #[test]
    fn paths_are_absolute_and_clean() {
        for name in ["helper_path", "runtime_path", "firmware_path", "runtime_home"] {
            for path in ["", "/", "a/b", "/a/", "/a//b", "/a/./b", "/a/../b", "/a\nb", "~/a"] {
                assert_eq!(check(&with(&format!("/{name}"), json!(path))), Err(Refused::Path(name)), "{path:?}");
            }
        }
        let long = |length: usize| with("/runtime_home", json!(format!("/{}", "h".repeat(length - 1))));
        assert!(check(&long(STORE_PATH_MAX_BYTES)).is_ok());
        assert_eq!(check(&long(STORE_PATH_MAX_BYTES + 1)), Err(Refused::StoreTooLong));
    }

    #[test]
    fn rules_say_what_they_decide() {
        for (path, value) in [
            ("/network/default_egress", json!("ask")),
            ("/network/default_ingress", json!("Allow")),
            ("/network/rules/0/action", json!("drop")),
            ("/network/rules/0/direction", json!("both")),
            ("/network/rules/0/protocol", json!("icmp")),
            ("/network/rules/0/protocol", Value::Null),
            ("/network/rules/0/port", json!(0)),
            ("/network/rules/0/port", json!(65536)),
            ("/network/rules/0/port", json!("443")),
            ("/network/rules/0", json!([])),
            ("/network/rules", json!({})),
        ] {
            assert!(matches!(check(&with(path, value.clone())), Err(Refused::Native(_))), "{path} {value}");
        }
        for nowhere in ["", " "] {
            assert_eq!(check(&with("/network/rules/1/destination", json!(nowhere))), Err(Refused::Destination));
        }
    }

    /// H 178. Exactly one context is given, and a state directory is absolute and clean.
    #[test]
    fn a_context_is_explicit() {
        assert_eq!(Context::explicit(true, None), Ok(Context::Standalone));
        let state = "/var/lib/oac-node/.oac/nodes/n/state/node";
        assert_eq!(Context::explicit(false, Some(state)), Ok(Context::Generation { state }));
        for (standalone, state) in [
            (false, None),
            (true, Some(state)),
            (false, Some("")),
            (false, Some("state/node")),
            (false, Some("/var/../state")),
            (false, Some("/var/lib/")),
        ] {
            assert_eq!(Context::explicit(standalone, state), Err(Refused::Context), "{standalone} {state:?}");
        }
    }
}
