//! The specification of a sandbox: sizes and Runtime release, with canonical bytes and digest (deployment §2).

mod schema;

use schemars::JsonSchema;
use serde::de::DeserializeSeed;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::contract::{Provider, Resource, RuntimeMember};
use crate::strict::{self, Integer, Table};
use crate::units::Digest;

/// A valid specification. Only a valid one has a digest.
///
/// Serialises as the stored form `{resources, runtime?}` of deployment §2.5, disks of size zero left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Specification {
    provider: Provider,
    resources: [u32; 4],
    runtime: Option<[String; 6]>,
}

impl Specification {
    /// Reads and checks `{"resources":…,"runtime":…}`.
    pub fn parse(provider: Provider, bytes: &[u8]) -> Result<Self, Refusal> {
        let draft: Draft = strict::object(bytes).map_err(|error| Refusal::Malformed(error.to_string()))?;
        Self::check(provider, &draft)
    }

    /// Checks sizes in declaration order, then the release; the first failure wins (deployment §1.2.1).
    pub fn check(provider: Provider, draft: &Draft) -> Result<Self, Refusal> {
        let resources = check_resources(provider, &draft.resources.clone().unwrap_or_default())?;
        let runtime = check_runtime(provider, draft.runtime.as_ref())?;
        Ok(Self { provider, resources, runtime })
    }

    /// The provider it was checked for.
    #[must_use]
    pub const fn provider(&self) -> Provider {
        self.provider
    }

    /// One size; 0 for a disk that the provider does not size.
    #[must_use]
    pub const fn resource(&self, resource: Resource) -> u32 {
        self.resources[resource as usize]
    }

    /// Whole CPUs, 1 … 255.
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.resource(Resource::Cpus)
    }

    /// Memory in MiB, 512 … 1 048 576.
    #[must_use]
    pub const fn memory_mib(&self) -> u32 {
        self.resource(Resource::MemoryMib)
    }

    /// One identity of the Runtime release; `None` for a provider without one.
    #[must_use]
    pub fn runtime(&self, member: RuntimeMember) -> Option<&str> {
        self.runtime.as_ref().map(|members| members[member as usize].as_str())
    }

    /// The bytes that are hashed: compact JSON in declaration order.
    #[must_use]
    #[allow(clippy::missing_panics_doc, reason = "it cannot")]
    pub fn canonical(&self) -> Vec<u8> {
        let canonical = Canonical {
            provider: self.provider.name(),
            resources: Chosen(&self.resources),
            runtime: self.runtime.as_ref().map(Named),
        };
        serde_json::to_vec(&canonical).expect("checked integers and ASCII text serialise")
    }

    /// SHA-256 of [`Self::canonical`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&self.canonical())
    }

    /// The stored form, `{resources, runtime?}`.
    #[must_use]
    #[allow(clippy::missing_panics_doc, reason = "it cannot")]
    pub fn stored(&self) -> String {
        serde_json::to_string(self).expect("checked integers and ASCII text serialise")
    }

    /// The same content as an unchecked draft, as answers show it.
    #[must_use]
    pub fn draft(&self) -> Draft {
        let shown = |resource: Resource| {
            // Only a disk can be 0, and then it was not chosen.
            let value = self.resource(resource);
            (value != 0).then_some(Integer(i64::from(value)))
        };
        Draft {
            resources: Some(Resources(Resource::ALL.map(shown))),
            runtime: self.runtime.clone().map(|members| Runtime(members.map(Some))),
        }
    }
}

impl Serialize for Specification {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.draft().serialize(serializer)
    }
}

/// The form that is hashed: the stored form after the provider's name. It borrows, because a digest is asked for often.
#[derive(Serialize)]
struct Canonical<'a> {
    provider: &'a str,
    resources: Chosen<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<Named<'a>>,
}

/// See [`Resources`].
struct Chosen<'a>(&'a [u32; 4]);

/// See [`Runtime`].
struct Named<'a>(&'a [String; 6]);

impl Serialize for Chosen<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Only a disk can be 0, and then it was not chosen.
        serialize_table(&Resource::NAMES, self.0.iter().map(|value| (*value != 0).then_some(value)), serializer)
    }
}

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_table(&RuntimeMember::NAMES, self.0.iter().map(Some), serializer)
    }
}

/// A specification whose members have the right names and JSON types, and nothing more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// Sizes, absent when the member is.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Runtime release, absent when the member is.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
}

/// Sizes in declaration order, before any bound was checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources(pub [Option<Integer>; 4]);

impl Resources {
    /// Nothing was chosen: every member is absent or zero.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        self.0.iter().all(|value| matches!(value, None | Some(Integer(0))))
    }
}

/// Identities of the Runtime release in declaration order, before any pattern was checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Runtime(pub [Option<String>; 6]);

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Table::new(Resource::NAMES).deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Runtime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Table::new(RuntimeMember::NAMES).deserialize(deserializer).map(Self)
    }
}

impl Serialize for Resources {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_table(&Resource::NAMES, self.0.iter().map(|value| value.map(|Integer(value)| value)), serializer)
    }
}

impl Serialize for Runtime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_table(&RuntimeMember::NAMES, self.0.iter().map(Option::as_ref), serializer)
    }
}

fn serialize_table<S: Serializer, V: Serialize>(
    names: &[&str],
    values: impl Iterator<Item = Option<V>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (name, value) in names.iter().zip(values) {
        if let Some(value) = value {
            map.serialize_entry(name, &value)?;
        }
    }
    map.end()
}

/// Why a specification was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not an object with these members and JSON types: the request as a whole is malformed.
    #[error("the specification is malformed: {0}")]
    Malformed(String),
    /// A size is absent or out of bounds.
    #[error("resources.{} must be {}", .resource.name(), range(*.min, *.max))]
    Resource {
        /// Which one.
        resource: Resource,
        /// Smallest value.
        min: u32,
        /// Largest value, where one is reported.
        max: Option<u32>,
    },
    /// A Runtime release is needed and absent, or present and not allowed.
    #[error("runtime must be {}", if *.required { "present for this provider" } else { "absent for this provider" })]
    Presence {
        /// Whether the provider needs one.
        required: bool,
    },
    /// An identity of the Runtime release is absent or malformed.
    #[error("runtime.{} must be {}", .0.name(), pattern(*.0))]
    Runtime(RuntimeMember),
}

impl Refusal {
    /// The offending member, as error answers name it; `None` for a malformed request.
    #[must_use]
    pub fn param(&self) -> Option<&'static str> {
        match self {
            Self::Malformed(_) => None,
            Self::Resource { resource: Resource::Cpus, .. } => Some("resources.cpus"),
            Self::Resource { resource: Resource::MemoryMib, .. } => Some("resources.memory_mib"),
            Self::Resource { resource: Resource::RootDiskMib, .. } => Some("resources.root_disk_mib"),
            Self::Resource { resource: Resource::EnvironmentDiskMib, .. } => Some("resources.environment_disk_mib"),
            Self::Presence { .. } | Self::Runtime(_) => Some("runtime"),
        }
    }
}

fn range(min: u32, max: Option<u32>) -> String {
    match max {
        Some(0) => "0 or absent for this provider".to_owned(),
        Some(max) => format!("an integer from {min} to {max}"),
        None => format!("an integer of at least {min}"),
    }
}

fn pattern(member: RuntimeMember) -> String {
    let (prefix, digits) = member.pattern();
    format!("{prefix}{}{digits} lower-case hexadecimal digits", if prefix.is_empty() { "" } else { " and " })
}

fn check_resources(provider: Provider, draft: &Resources) -> Result<[u32; 4], Refusal> {
    let mut resources = [0; 4];
    for resource in Resource::ALL {
        let bounds = resource.bounds(provider);
        let Integer(value) = draft.0[resource as usize].unwrap_or(Integer(0));
        resources[resource as usize] = u32::try_from(value)
            .ok()
            .filter(|value| (bounds.min..=bounds.max).contains(value))
            .ok_or(Refusal::Resource { resource, min: bounds.min, max: bounds.reported_max })?;
    }
    Ok(resources)
}

fn check_runtime(provider: Provider, draft: Option<&Runtime>) -> Result<Option<[String; 6]>, Refusal> {
    let required = provider.rule().runtime;
    let Some(Runtime(members)) = draft.filter(|_| required) else {
        return if draft.is_some() == required { Ok(None) } else { Err(Refusal::Presence { required }) };
    };
    for (member, value) in RuntimeMember::ALL.into_iter().zip(members) {
        if !value.as_deref().is_some_and(|text| member.matches(text)) {
            return Err(Refusal::Runtime(member));
        }
    }
    Ok(Some(members.clone().map(Option::unwrap_or_default)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::value::RawValue;

    use super::*;

    const RUNTIME: &str = concat!(
        r#"{"source_commit":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","#,
        r#""image_id":"sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","#,
        r#""image_manifest_digest":"sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc","#,
        r#""microsandbox_ref":"oac-runtime@sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd","#,
        r#""runtime_sha256":"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee","#,
        r#""firmware_sha256":"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}"#
    );

    #[derive(Deserialize)]
    struct Case<'a> {
        name: &'a str,
        provider: Provider,
        #[serde(borrow)]
        specification: &'a RawValue,
        valid: bool,
        canonical: Option<String>,
        digest: Option<Digest>,
    }

    fn resources(provider: Provider, resources: &str) -> Result<Specification, Refusal> {
        Specification::parse(provider, format!(r#"{{"resources":{resources},"runtime":{RUNTIME}}}"#).as_bytes())
    }

    /// D 1. D 3. H 62. Every case is accepted or refused as recorded, with the exact canonical bytes and digest.
    #[test]
    fn every_vector_has_its_verdict_bytes_and_digest() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../../vectors/deployment-contract.flat.json")).unwrap();
        assert_eq!(cases.len(), 42);
        for case in cases {
            let parsed = Specification::parse(case.provider, case.specification.get().as_bytes());
            assert_eq!(parsed.is_ok(), case.valid, "{}: {parsed:?}", case.name);
            if let Ok(specification) = parsed {
                assert_eq!(String::from_utf8(specification.canonical()).ok(), case.canonical, "{}", case.name);
                assert_eq!(Some(specification.digest()), case.digest, "{}", case.name);
            }
        }
    }

    #[rstest]
    #[case(
        Provider::Docker,
        r#"{"cpus":1,"memory_mib":512}"#,
        "f6f561a927ee6ef9e65cf41518b776b1b57cdd8b440f09d535e6e2bf851875ba"
    )]
    #[case(
        Provider::Microsandbox,
        r#"{"cpus":255,"memory_mib":1048576,"root_disk_mib":1024,"environment_disk_mib":4294967295}"#,
        "1bb6daadcf9e34b236a8ecba6eb4c5215b946a3f226721b2bf148f72acb5f05e"
    )]
    fn a_worked_example_has_its_digest(#[case] provider: Provider, #[case] sizes: &str, #[case] digest: &str) {
        assert_eq!(resources(provider, sizes).unwrap().digest().to_string(), digest);
    }

    #[test]
    fn the_stored_form_reads_back_to_the_same_specification() {
        let specification = resources(Provider::Docker, r#"{"memory_mib":4096,"cpus":2,"root_disk_mib":0}"#).unwrap();
        assert!(specification.stored().starts_with(r#"{"resources":{"cpus":2,"memory_mib":4096},"runtime":{"source_"#));
        assert_eq!(Specification::parse(Provider::Docker, specification.stored().as_bytes()), Ok(specification));
    }

    #[rstest]
    #[case::cpus(Provider::Docker, r#"{"memory_mib":1,"cpus":256}"#, Resource::Cpus, 1, Some(255))]
    #[case::memory(Provider::Docker, r#"{"cpus":1,"memory_mib":1048577}"#, Resource::MemoryMib, 512, Some(1_048_576))]
    #[case::absent(Provider::E2b, r#"{"cpus":1}"#, Resource::MemoryMib, 512, Some(1_048_576))]
    #[case::disk(
        Provider::Docker,
        r#"{"cpus":1,"memory_mib":512,"root_disk_mib":1}"#,
        Resource::RootDiskMib,
        0,
        Some(0)
    )]
    #[case::small(
        Provider::Microsandbox,
        r#"{"cpus":1,"memory_mib":512,"root_disk_mib":1023}"#,
        Resource::RootDiskMib,
        1024,
        None
    )]
    #[case::large(
        Provider::Microsandbox,
        r#"{"cpus":1,"memory_mib":512,"root_disk_mib":1024,"environment_disk_mib":4294967296}"#,
        Resource::EnvironmentDiskMib,
        1024,
        None
    )]
    #[case::negative(Provider::Docker, r#"{"cpus":-1,"memory_mib":512}"#, Resource::Cpus, 1, Some(255))]
    /// D 18. The first member out of bounds is named with its bounds.
    fn a_size_out_of_bounds_is_named(
        #[case] provider: Provider,
        #[case] sizes: &str,
        #[case] resource: Resource,
        #[case] min: u32,
        #[case] max: Option<u32>,
    ) {
        assert_eq!(resources(provider, sizes), Err(Refusal::Resource { resource, min, max }));
    }

    /// D 18. A release that the provider has not is reported as `runtime`.
    #[test]
    fn a_release_that_does_not_belong_is_refused() {
        let sizes = r#"{"cpus":1,"memory_mib":512}"#;
        let refusal = resources(Provider::E2b, sizes).unwrap_err();
        assert_eq!(refusal, Refusal::Presence { required: false });
        assert_eq!(refusal.param(), Some("runtime"));
        let bare = Specification::parse(Provider::Docker, format!(r#"{{"resources":{sizes}}}"#).as_bytes());
        assert_eq!(bare, Err(Refusal::Presence { required: true }));
    }

    #[rstest]
    #[case::array(r#"[{"cpus":1,"memory_mib":512}]"#)]
    #[case::nested_array(r#"{"resources":[1,512]}"#)]
    #[case::null_resources(r#"{"resources":null}"#)]
    #[case::null_runtime(r#"{"resources":{"cpus":1,"memory_mib":512},"runtime":null}"#)]
    #[case::null_member(r#"{"resources":{"cpus":null,"memory_mib":512}}"#)]
    #[case::repeated(r#"{"resources":{"cpus":1,"cpus":1,"memory_mib":512}}"#)]
    #[case::repeated_top(r#"{"resources":{"cpus":1,"memory_mib":512},"resources":{"cpus":1,"memory_mib":512}}"#)]
    #[case::alias(r#"{"resources":{"CPUs":1,"memory_mib":512}}"#)]
    #[case::unknown(r#"{"resources":{"cpus":1,"memory_mib":512},"provider":"e2b"}"#)]
    #[case::fraction(r#"{"resources":{"cpus":1.0,"memory_mib":512}}"#)]
    #[case::trailing(r#"{"resources":{"cpus":1,"memory_mib":512}} 1"#)]
    #[case::empty("")]
    /// D 8. Arrays, nulls, repeated, unknown and wrongly cased members are malformed at every depth.
    fn a_malformed_specification_is_refused(#[case] text: &str) {
        let refusal = Specification::parse(Provider::E2b, text.as_bytes()).unwrap_err();
        assert!(matches!(refusal, Refusal::Malformed(_)), "{refusal:?}");
        assert_eq!(refusal.param(), None);
    }

    /// Every identity of the release is found under its own name, and a provider without a release has none.
    #[test]
    fn a_runtime_is_read_member_by_member() {
        let sizes = r#"{"cpus":1,"memory_mib":512,"root_disk_mib":4096,"environment_disk_mib":4096}"#;
        let micro = resources(Provider::Microsandbox, sizes).unwrap();
        let read: std::collections::BTreeMap<&str, String> = serde_json::from_str(RUNTIME).unwrap();
        for member in RuntimeMember::ALL {
            assert_eq!(micro.runtime(member), Some(read[member.name()].as_str()), "{}", member.name());
        }
        let bare = Specification::parse(Provider::E2b, br#"{"resources":{"cpus":1,"memory_mib":512}}"#).unwrap();
        assert_eq!(bare.runtime(RuntimeMember::ImageId), None);
    }

    /// A refusal says what is wrong and what is expected instead.
    #[test]
    fn a_refusal_names_what_is_expected() {
        let refused = |sizes: &str| resources(Provider::Docker, sizes).unwrap_err().to_string();
        let cpus = refused(r#"{"cpus":0,"memory_mib":512}"#);
        assert!(cpus.starts_with("resources.cpus must be an integer "), "{cpus}");
        let disk = refused(r#"{"cpus":1,"memory_mib":512,"root_disk_mib":1}"#);
        assert_eq!(disk, "resources.root_disk_mib must be 0 or absent for this provider");
        let runtime = Refusal::Runtime(RuntimeMember::ImageId).to_string();
        assert_eq!(runtime, "runtime.image_id must be sha256: and 64 lower-case hexadecimal digits");
        let commit = Refusal::Runtime(RuntimeMember::SourceCommit).to_string();
        assert_eq!(commit, "runtime.source_commit must be 40 lower-case hexadecimal digits");
    }
}
