//! The settings of a proxy: which value wins, who gets it, and where it never stands.

use std::collections::BTreeMap;

use crate::host::{Host, SHELLS, Who, expect, install, said};
use crate::server::{Answer, Server};

const PASSWORD: &str = "hunter2";
/// `user:hunter2`, as a request names it.
const AUTHORIZATION: &str = "Proxy-Authorization: Basic dXNlcjpodW50ZXIy";

/// Runs with these variables, and returns those of a proxy that the installer got, what the proxy was asked, and what the
/// server was asked.
fn run(shell: &[&str], who: Who, variables: impl Fn(&str) -> Vec<(&'static str, String)>) -> Outcome {
    let mut host = Host::new(who);
    let installer = host.installer_that("tr '\\0' '\\n' </proc/$PPID/cmdline >$to/parent", 0);
    let server = Server::start(Answer::File(installer.clone()));
    let proxy = Server::start(Answer::File(installer.clone()));
    for (name, value) in variables(&format!("http://user:{PASSWORD}@{}", proxy.address)) {
        host.set(name, &value);
    }
    let output = host.run(shell, &install(&server, &installer));
    expect(&output, 0, shell);
    let started = host.started().unwrap();
    let parent = std::fs::read_to_string(host.path("started/parent")).unwrap();
    assert!(!said(&output).contains(PASSWORD) && !parent.contains(PASSWORD), "{shell:?}");
    assert!(!started.arguments.iter().any(|argument| argument.contains(PASSWORD)), "{shell:?}");
    let environment = started.environment.into_iter().filter(|(name, _)| name.to_lowercase().ends_with("_proxy"));
    Outcome { environment: environment.collect(), proxied: proxy.requests(), direct: server.requests() }
}

struct Outcome {
    environment: BTreeMap<String, String>,
    proxied: Vec<String>,
    direct: Vec<String>,
}

fn both(name: &str, value: &str) -> BTreeMap<String, String> {
    [name.to_lowercase(), name.to_uppercase()].map(|name| (name, value.to_owned())).into()
}

/// H 44. curl itself ignores an upper-case `HTTP_PROXY`; here both spellings get its value, through sudo as well.
#[test]
fn upper_case_settings_reach_both_spellings() {
    for shell in SHELLS {
        let mut value = String::new();
        let outcome =
            run(shell, Who::User, |proxy| vec![("HTTP_PROXY", proxy.to_owned()), ("ALL_PROXY", "x".to_owned())]);
        assert_eq!((outcome.proxied.len(), outcome.direct.len()), (1, 0), "{shell:?}");
        assert!(outcome.proxied[0].contains(AUTHORIZATION), "{}", outcome.proxied[0]);
        value.push_str(&outcome.environment["http_proxy"]);
        assert!(value.contains(PASSWORD));
        assert_eq!(outcome.environment, both("http_proxy", &value), "nothing else passes");
    }
}

/// H 45. The lower-case value wins, for each of the three names.
#[test]
fn lower_case_settings_win() {
    for shell in SHELLS {
        let outcome = run(shell, Who::User, |proxy| {
            vec![
                ("http_proxy", proxy.to_owned()),
                ("HTTP_PROXY", "http://wrong.invalid:1".to_owned()),
                ("https_proxy", "http://right.invalid".to_owned()),
                ("HTTPS_PROXY", "http://wrong.invalid".to_owned()),
                ("no_proxy", "right.example".to_owned()),
                ("NO_PROXY", "127.0.0.1".to_owned()),
            ]
        });
        assert_eq!((outcome.proxied.len(), outcome.direct.len()), (1, 0), "{shell:?}");
        assert_eq!(outcome.environment.len(), 6);
        for name in ["https_proxy", "HTTPS_PROXY"] {
            assert_eq!(outcome.environment[name], "http://right.invalid");
        }
        for name in ["no_proxy", "NO_PROXY"] {
            assert_eq!(outcome.environment[name], "right.example");
        }
    }
}

/// H 46. An empty lower-case value is a value: it says "no proxy", and wins.
#[test]
fn an_empty_lower_case_setting_wins() {
    for shell in SHELLS {
        let outcome = run(shell, Who::User, |proxy| {
            vec![("http_proxy", String::new()), ("HTTP_PROXY", proxy.to_owned()), ("all_proxy", proxy.to_owned())]
        });
        assert_eq!((outcome.proxied.len(), outcome.direct.len()), (0, 1), "{shell:?}");
        assert_eq!(outcome.environment, both("http_proxy", ""), "{shell:?}");
    }
}

/// H 47. A shell of root has the same rules without sudo.
#[test]
fn a_shell_of_root_keeps_its_proxies() {
    for shell in SHELLS {
        let outcome = run(shell, Who::Root, |proxy| {
            vec![("HTTP_PROXY", proxy.to_owned()), ("https_proxy", String::new()), ("HTTPS_PROXY", "x".to_owned())]
        });
        assert_eq!((outcome.proxied.len(), outcome.direct.len()), (1, 0), "{shell:?}");
        assert!(outcome.environment["http_proxy"].contains(PASSWORD));
        assert_eq!(outcome.environment["http_proxy"], outcome.environment["HTTP_PROXY"]);
        assert_eq!((&*outcome.environment["https_proxy"], &*outcome.environment["HTTPS_PROXY"]), ("", ""));
        assert_eq!(outcome.environment.len(), 4);
    }
}

/// H 45. Addresses without a proxy are reached without it, in either spelling; without settings there are none afterwards.
#[test]
fn exceptions_are_reached_directly() {
    for shell in SHELLS {
        let outcome =
            run(shell, Who::User, |proxy| vec![("http_proxy", proxy.to_owned()), ("NO_PROXY", "127.0.0.1".to_owned())]);
        assert_eq!((outcome.proxied.len(), outcome.direct.len()), (0, 1), "{shell:?}");
        let outcome = run(shell, Who::User, |_| Vec::new());
        assert!(outcome.environment.is_empty(), "{shell:?}: {:?}", outcome.environment);
    }
}
