//! The forms of an E2B selection (deployment §1.2.1, §7.2).

use super::configuration::{BuildResources, Configuration, TemplateBuild};
use super::contract::Provider;
use super::specification::{Draft, Refusal, Resources, Specification};
use crate::limits::API_KEY_MAX_BYTES;
use crate::strict::Integer;
use crate::units::Id;

/// The member of a configuration that names template and build.
pub const TEMPLATE: &str = "template";
/// The member of a configuration that names the API's origin.
pub const API_URL: &str = "api_url";
/// The member of a configuration that names the domain of the sandboxes.
pub const DOMAIN: &str = "domain";

/// API origin when a selection names none.
pub const OFFICIAL_API_URL: &str = "https://api.e2b.app";
/// Sandbox domain when a selection names none.
pub const OFFICIAL_DOMAIN: &str = "e2b.app";

/// Whether a key has 1 to 4096 bytes without Unicode white space or NUL.
#[must_use]
pub fn valid_key(key: &str) -> bool {
    (1..=API_KEY_MAX_BYTES).contains(&key.len()) && !key.contains(|c: char| c.is_whitespace() || c == '\0')
}

/// Whether a template is `<template-id>:<build-uuid>`.
#[must_use]
pub fn valid_template(template: &str) -> bool {
    template.split_once(':').is_some_and(|(id, build)| {
        let characters = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        (1..=128).contains(&id.len()) && characters && Id::parse(build).is_ok()
    })
}

/// The endpoint pair of a selection: both absent is the official one, otherwise both must agree.
#[must_use]
pub fn endpoint(api_url: Option<&str>, domain: Option<&str>) -> Option<(String, String)> {
    let (api_url, domain) = match (api_url, domain) {
        (None, None) => (OFFICIAL_API_URL, OFFICIAL_DOMAIN),
        (Some(api_url), Some(domain)) => (api_url, domain),
        (Some(_), None) | (None, Some(_)) => return None,
    };
    let host = api_url.strip_prefix("https://").filter(|_| api_url.len() <= 512)?;
    let below = || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    let agree = valid_host(host) && valid_host(domain) && (host == domain || below());
    agree.then(|| (api_url.to_owned(), domain.to_owned()))
}

/// The specification of a selection whose template build was read: the build's sizes where the selection leaves all of
/// them out, its own otherwise (deployment §7.5).
///
/// # Errors
/// What is outside the bounds of a specification, the build's sizes included.
pub fn complete(draft: &Draft, cpus: i64, memory_mib: i64) -> Result<Specification, Refusal> {
    if !draft.resources.as_ref().is_none_or(Resources::is_unset) {
        return Specification::check(Provider::E2b, draft);
    }
    let resources = Resources([Some(Integer(cpus)), Some(Integer(memory_mib)), None, None]);
    Specification::check(Provider::E2b, &Draft { resources: Some(resources), ..draft.clone() })
}

/// The configuration that a selection means: its template, and its address or the whole of the previous one. `None` when
/// a part has no valid form.
#[must_use]
pub fn configuration(given: &Configuration, previous: Option<&Configuration>) -> Option<Configuration> {
    let template = given.get(TEMPLATE).filter(|template| valid_template(template))?;
    let inherits = given.get(API_URL).is_none() && given.get(DOMAIN).is_none();
    let source = previous.filter(|_| inherits).unwrap_or(given);
    let (api_url, domain) = endpoint(source.get(API_URL), source.get(DOMAIN))?;
    Some([(TEMPLATE, template), (API_URL, &api_url), (DOMAIN, &domain)].into())
}

/// The specification of a selection whose template build was read (deployment §7.4, §7.5).
///
/// # Errors
/// A build that is not ready or of other sizes than were asked for, and sizes that no sandbox may have.
pub fn adopt(draft: &Draft, build: &TemplateBuild) -> Result<Specification, Unfit> {
    let BuildResources { cpus, memory_mib, .. } = build.resources;
    let size = |value: Option<u64>| value.filter(|value| *value > 0).and_then(|value| i64::try_from(value).ok());
    let (Some(cpus), Some(memory_mib), Some("ready")) = (size(cpus), size(memory_mib), build.status.as_deref()) else {
        return Err(Unfit::Build);
    };
    let adopted = complete(draft, cpus, memory_mib).map_err(|_| Unfit::Sizes)?;
    let same = i64::from(adopted.cpus()) == cpus && i64::from(adopted.memory_mib()) == memory_mib;
    if same { Ok(adopted) } else { Err(Unfit::Build) }
}

/// Why a template build cannot be selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It is not ready, does not say its sizes, or has others than were asked for.
    Build,
    /// Its sizes are outside the bounds of a sandbox.
    Sizes,
}

fn valid_host(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253
        && host.contains('.')
        && host.split('.').all(label)
        && host.parse::<std::net::IpAddr>().is_err()
        && ![".localhost", ".local"].iter().any(|suffix| host.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::deployment::configuration::Metadata;
    use crate::deployment::selection::Selection;
    use crate::strict;

    #[derive(Deserialize)]
    struct Cases {
        endpoints: Vec<Endpoint>,
        templates: Vec<Template>,
    }

    #[derive(Deserialize)]
    struct Endpoint {
        name: String,
        api_url: Option<String>,
        domain: Option<String>,
        valid: bool,
    }

    #[derive(Deserialize)]
    struct Template {
        name: String,
        #[serde(alias = "template")]
        value: String,
        valid: bool,
    }

    /// D 4. Every endpoint and template case decides as recorded.
    #[test]
    fn every_selector_has_its_verdict() {
        let cases: Cases = serde_json::from_str(include_str!("../../../vectors/configuration-selectors.json")).unwrap();
        assert_eq!(cases.endpoints.len() + cases.templates.len(), 30);
        for case in cases.endpoints {
            let accepted = endpoint(case.api_url.as_deref(), case.domain.as_deref()).is_some();
            assert_eq!(accepted, case.valid, "{}", case.name);
        }
        for case in cases.templates {
            assert_eq!(valid_template(&case.value), case.valid, "{}", case.name);
        }
    }

    /// D 4. The API is served by the domain itself or by a host below it, not by one that merely ends like it.
    #[test]
    fn an_api_belongs_to_its_domain() {
        let agree = |host: &str, domain| endpoint(Some(&format!("https://{host}")), Some(domain)).is_some();
        assert!(agree("e2b.example", "e2b.example"));
        assert!(agree("api.e2b.example", "e2b.example"));
        assert!(!agree("apie2b.example", "e2b.example"));
        assert!(!agree("e2b.example", "api.e2b.example"));
        assert!(!agree("api.example", "e2b.example"));
    }

    /// D 10. White space, Unicode's included, and NUL make a key invalid.
    #[test]
    fn a_key_holds_no_white_space() {
        for key in ["", " key", "key ", "k\u{2003}ey", "k\u{a0}ey", "k\0ey", "key\n", &"k".repeat(4097)] {
            assert!(!valid_key(key), "{key:?}");
        }
        for key in ["key", "e2b_0123456789abcdef", &"k".repeat(4096)] {
            assert!(valid_key(key), "{key:?}");
        }
    }

    /// D 5. Sizes left out are the build's, given ones are kept, and the selection itself does not change.
    #[test]
    fn sizes_left_out_are_those_of_the_build() {
        let draft = |text: &str| strict::object::<Draft>(text.as_bytes()).unwrap();
        for left_out in ["{}", r#"{"resources":{}}"#] {
            let before = draft(left_out);
            let completed = complete(&before, 4, 8192).unwrap();
            assert_eq!(completed.stored(), r#"{"resources":{"cpus":4,"memory_mib":8192}}"#);
            assert_eq!(before, draft(left_out));
        }
        let given = draft(r#"{"resources":{"cpus":2,"memory_mib":4096}}"#);
        assert_eq!(complete(&given, 4, 8192).unwrap().stored(), r#"{"resources":{"cpus":2,"memory_mib":4096}}"#);
        assert!(complete(&draft("{}"), 256, 8192).is_err());
        assert!(complete(&draft("{}"), 1, 511).is_err());
    }

    /// D 6. What is public, what was recorded and what is secret are three values; the first two round-trip byte for
    /// byte, unknown sizes included, and the third is shown by nothing.
    #[test]
    fn configuration_metadata_and_secret_stay_apart() {
        let configuration = r#"{"api_url":"https://api.e2b.app","domain":"e2b.app","template":"base:11f2d3c4-b5a6-4798-8899-aabbccddeeff"}"#;
        let read: Configuration = strict::object(configuration.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), configuration);
        let names = Provider::E2b.rule().configuration;
        assert!(read.has_exactly(names) && !names.contains(&"api_key"));
        for metadata in [
            "{}",
            r#"{"template_build":{"status":null,"resources":{"cpus":null,"memory_mib":null,"root_disk_mib":null}}}"#,
            r#"{"template_build":{"status":"ready","resources":{"cpus":2,"memory_mib":512,"root_disk_mib":null}}}"#,
        ] {
            let read: Metadata = strict::object(metadata.as_bytes()).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), metadata);
        }
        let body = r#"{"expected_generation":0,"provider":"e2b","credential":{"api_key":"planted"}}"#;
        let selection = Selection::parse(body.as_bytes()).unwrap();
        assert!(!format!("{selection:?}").contains("planted"));
    }

    /// D 7. A stored selector that would fail new admission still decodes for what it owns.
    #[test]
    fn an_old_selector_still_decodes() {
        let stored = r#"{"template":"base","api_url":"http://old.example","domain":"other.example"}"#;
        let read: Configuration = strict::object(stored.as_bytes()).unwrap();
        let template = read.get(TEMPLATE).unwrap();
        assert!(!valid_template(template), "{template} would be refused today");
        assert_eq!(endpoint(read.get(API_URL), read.get(DOMAIN)), None);
        assert_eq!(configuration(&read, None), None);
    }

    /// D 43. A build that is not ready, does not say its sizes or has others is none; the sizes that are adopted keep the
    /// bounds of a sandbox.
    #[test]
    fn only_a_ready_build_of_the_asked_sizes_is_adopted() {
        let draft = |text: &str| strict::object::<Draft>(text.as_bytes()).unwrap();
        let build = |status: Option<&str>, cpus, memory_mib| TemplateBuild {
            status: status.map(str::to_owned),
            resources: BuildResources { cpus, memory_mib, root_disk_mib: None },
        };
        let asked = draft(r#"{"resources":{"cpus":2,"memory_mib":512}}"#);
        let adopted = adopt(&asked, &build(Some("ready"), Some(2), Some(512))).unwrap();
        assert_eq!((adopted.cpus(), adopted.memory_mib()), (2, 512));
        for unfit in [
            build(None, Some(2), Some(512)),
            build(Some("building"), Some(2), Some(512)),
            build(Some("ready"), Some(3), Some(512)),
            build(Some("ready"), Some(2), Some(513)),
            build(Some("ready"), None, Some(512)),
            build(Some("ready"), Some(2), None),
            build(Some("ready"), Some(0), Some(512)),
        ] {
            assert_eq!(adopt(&asked, &unfit), Err(Unfit::Build), "{unfit:?}");
        }
        for (cpus, memory_mib) in [(0, 512), (1, 0)] {
            let nothing = build(Some("ready"), Some(cpus), Some(memory_mib));
            assert_eq!(adopt(&draft("{}"), &nothing), Err(Unfit::Build), "a size of nothing is not said");
        }
        for (cpus, memory_mib) in [(256, 512), (1, 511)] {
            let outside = build(Some("ready"), Some(cpus), Some(memory_mib));
            assert_eq!(adopt(&draft("{}"), &outside), Err(Unfit::Sizes));
        }
    }
}
