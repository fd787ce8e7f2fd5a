//! The texts, and what goes into them.
//!
//! - Every value is checked before the text is built, and stands in single quotes.
//! - The enrollment token is on standard input only, written by the shell's own `printf`: never in an argument, a variable
//!   or a file. For the same reason the text begins with a space, which keeps it out of the history where that is set up.
//! - What is downloaded is run only when its SHA-256 is the one that Core named.
//!
//! The texts work in bash, dash, zsh and the shell of busybox. They hold no comment, because an interactive zsh knows none,
//! and no alias, function, option or `.curlrc` of the operator's changes them. Each line is shorter than a terminal's line.
//!
//! The installer is one executable (decision 23), so that a host needs no Python: curl, coreutils and flock are enough.

use std::fmt;

use serde::Deserialize;

use super::quote::quote;
use crate::deployment::origin;
use crate::distribution::route::{File, Route};
use crate::limits::{INSTALLATION_SHOWN_MAX_BYTES, INSTALLER_MAX_BYTES};
use crate::units::{Digest, Id, Malformed};

/// What the command needs that makes a host a node. It carries a token and is therefore never shown.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Install<'a> {
    /// SHA-256 of the installer, as `/console/config` says.
    pub installer_sha256: &'a str,
    /// The origin that the installer comes from.
    pub source_url: &'a str,
    /// Core's public URL, which the node will dial.
    pub core_url: &'a str,
    /// The installation that the deployment belongs to.
    pub installation_id: &'a str,
    /// The enrollment token, as Core issued it: 10 minutes, one node.
    pub token: &'a str,
}

impl fmt::Debug for Install<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Install").field("installation_id", &self.installation_id).finish_non_exhaustive()
    }
}

/// What the command needs that makes a node a plain host again. It holds no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uninstall<'a> {
    /// As in [`Install`].
    pub installer_sha256: &'a str,
    /// As in [`Install`].
    pub source_url: &'a str,
    /// As in [`Install`].
    pub installation_id: &'a str,
}

/// A value that no command is made of; the message does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{member}: expected {expected}")]
pub struct Refused {
    /// The member that is wrong.
    pub member: &'static str,
    /// What it must be.
    pub expected: &'static str,
}

/// The command that makes a host a node. Its exit status is curl's when the download fails, the installer's once that ran,
/// else 1.
///
/// # Errors
/// The first value that is not what it must be.
pub fn install(wanted: &Install<'_>) -> Result<String, Refused> {
    let Install { installer_sha256, source_url, core_url, installation_id, token } = *wanted;
    let (source, installation) = (origin("source_url", source_url)?, id(installation_id)?);
    let core = origin("core_url", core_url)?;
    Digest::parse(token).map_err(because("token"))?;
    let arguments = [
        "--installation-id",
        &quote(&installation.to_string()),
        "--source-url",
        &quote(source),
        "--core-url",
        &quote(core),
        "--enrollment-token-stdin",
    ];
    let run = format!(r#"printf '%s\n' {} | command "$@""#, quote(token));
    fetch(installer_sha256, source, &arguments, &run)
}

/// The command that removes what [`install`] made. Its exit status is like that of [`install`].
///
/// # Errors
/// The first value that is not what it must be.
pub fn uninstall(wanted: &Uninstall<'_>) -> Result<String, Refused> {
    let Uninstall { installer_sha256, source_url, installation_id } = *wanted;
    let (source, installation) = (origin("source_url", source_url)?, id(installation_id)?);
    let arguments = ["--installation-id", &quote(&installation.to_string()), "--uninstall"];
    fetch(installer_sha256, source, &arguments, r#"command "$@" </dev/null"#)
}

/// The command that shows what the node of an installation does, and goes on showing it.
///
/// A console may have an id from anywhere; it need not be one that Core would issue.
///
/// # Errors
/// An id with control characters, an empty or an overlong one.
pub fn log(installation_id: &str) -> Result<String, Refused> {
    let shown = (1..=INSTALLATION_SHOWN_MAX_BYTES).contains(&installation_id.len());
    if !shown || installation_id.chars().any(char::is_control) {
        let expected = "1 to 128 bytes without control characters";
        return Err(Refused { member: "installation_id", expected });
    }
    Ok(format!("sudo journalctl --lines=200 --follow --unit={}", quote(&format!("oac-node-{installation_id}.service"))))
}

/// Downloads, checks and runs the installer; `@NAME@` stands for a value.
const FETCH: &str = include_str!("fetch.sh");

/// The variables that reach the installer (node-host §6.4).
const PROXIES: [(&str, &str); 3] =
    [("http_proxy", "HTTP_PROXY"), ("https_proxy", "HTTPS_PROXY"), ("no_proxy", "NO_PROXY")];

/// None of the values can hold a placeholder: they are hexadecimal, ids, origins and text of this file.
fn fetch(sha256: &str, source: &str, arguments: &[&str], run: &str) -> Result<String, Refused> {
    let sha256 = Digest::parse(sha256).map_err(because("installer_sha256"))?;
    let address = Route { release: None, file: File::Installer };
    let both: Vec<_> = PROXIES.map(|(lower, upper)| both_spellings(lower, upper)).into();
    let names: Vec<_> = PROXIES.iter().flat_map(|(lower, upper)| [*lower, *upper]).collect();
    Ok(FETCH
        .replace("@SHA256@", &quote(&sha256.to_string()))
        .replace("@MAX@", &INSTALLER_MAX_BYTES.to_string())
        .replace("@URL@", &quote(&format!("{source}{address}")))
        .replace("@PROXIES@", &both.join("\n"))
        .replace("@NAMES@", &names.join(","))
        .replace("@ARGUMENTS@", &arguments.join(" "))
        .replace("@RUN@", run))
}

/// Gives both spellings the value of the lower-case one when there is one, even an empty one, else that of the other.
fn both_spellings(lower: &str, upper: &str) -> String {
    format!(
        r#"if [ -n "${{{lower}+set}}" ]; then export {lower} {upper}="${lower}"
elif [ -n "${{{upper}+set}}" ]; then export {upper} {lower}="${upper}"; fi"#
    )
}

fn because(member: &'static str) -> impl Fn(Malformed) -> Refused {
    move |Malformed(expected)| Refused { member, expected }
}

fn id(text: &str) -> Result<Id, Refused> {
    Id::parse(text).map_err(because("installation_id"))
}

/// The origin without its trailing slash (node-host §6.1, decision 10).
fn origin<'a>(member: &'static str, text: &'a str) -> Result<&'a str, Refused> {
    let expected = "a lower-case https origin without user, path, query or fragment, such as https://core.example; plain \
                    http only for a loopback host";
    let valid = origin::valid_core_url(text).then_some(text);
    valid.map(|text| text.strip_suffix('/').unwrap_or(text)).ok_or(Refused { member, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const ID: &str = "3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e";
    const TOKEN: &str = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
    const GOOD: Install<'_> = Install {
        installer_sha256: SHA256,
        source_url: "https://console.example/",
        core_url: "https://core.example:8443",
        installation_id: ID,
        token: TOKEN,
    };

    fn removal(wanted: Install<'_>) -> Result<String, Refused> {
        let Install { installer_sha256, source_url, installation_id, .. } = wanted;
        uninstall(&Uninstall { installer_sha256, source_url, installation_id })
    }

    #[test]
    fn every_placeholder_is_filled_and_every_line_fits_a_terminal() {
        for text in [install(&GOOD).unwrap(), removal(GOOD).unwrap()] {
            let left = text.replace(r#""$@""#, "");
            assert!(!left.contains('@'), "{left}");
            assert!(text.starts_with(' ') && text.ends_with(")\n") && text.is_ascii());
            assert!(text.lines().all(|line| line.len() < 1024));
            assert!(text.contains("'https://console.example/node-install/node-install'"), "{text}");
        }
    }

    /// H 38, H 49. The token stands once, before a builtin; the command that removes a node has none.
    #[test]
    fn the_token_is_given_to_a_builtin_alone() {
        let text = install(&GOOD).unwrap();
        assert_eq!(text.matches(TOKEN).count(), 1);
        assert!(text.contains(&format!("\nprintf '%s\\n' '{TOKEN}' | command \"$@\"\n")), "{text}");
        assert!(!removal(GOOD).unwrap().contains(TOKEN));
        assert_eq!(format!("{GOOD:?}"), format!("Install {{ installation_id: \"{ID}\", .. }}"));
    }

    #[test]
    fn a_value_that_is_none_is_refused_with_its_name_and_not_repeated() {
        let upper = SHA256.to_uppercase();
        let origins = [
            "http://core.example",
            "ftp://core.example",
            "https://core.example/x",
            "https://user@core.example",
            "https://core.example?x",
            "https://core.example#x",
            "https://core.example\\x",
            "https://core.example x",
            "https://core.example:x",
            "https://core.example'",
            "https://",
            "",
        ];
        let refused = |wanted: Install<'_>, member| {
            let error = install(&wanted).unwrap_err();
            assert_eq!(error.member, member, "{wanted:?}");
            assert_eq!(error.to_string(), format!("{member}: expected {}", error.expected));
            error
        };
        for text in ["", &SHA256[1..], &upper, "'; reboot; '", &format!("{SHA256}\n")] {
            assert_eq!(removal(Install { installer_sha256: text, ..GOOD }).unwrap_err().member, "installer_sha256");
            refused(Install { installer_sha256: text, ..GOOD }, "installer_sha256");
            refused(Install { token: text, ..GOOD }, "token");
        }
        for text in ["", "3D1F8A64-2F7B-4C1F-B0D5-9E7A6B5C4D3E", "$(reboot)", "00000000-0000-0000-0000-000000000000"] {
            assert_eq!(removal(Install { installation_id: text, ..GOOD }).unwrap_err().member, "installation_id");
            refused(Install { installation_id: text, ..GOOD }, "installation_id");
        }
        for text in origins {
            assert_eq!(removal(Install { source_url: text, ..GOOD }).unwrap_err().member, "source_url");
            refused(Install { source_url: text, ..GOOD }, "source_url");
            refused(Install { core_url: text, ..GOOD }, "core_url");
        }
        let shown = refused(Install { token: "hunter2", ..GOOD }, "token").to_string();
        assert_eq!(shown, "token: expected 64 lower-case hexadecimal characters");
    }

    /// The installer gets each proxy in both spellings, the lower-case one first, and it gets an empty one as well.
    #[test]
    fn a_proxy_reaches_the_installer_in_both_spellings() {
        let text = install(&GOOD).unwrap();
        for (lower, upper) in PROXIES {
            let first = format!("if [ -n \"${{{lower}+set}}\" ]; then export {lower} {upper}=\"${lower}\"\n");
            let second = format!("elif [ -n \"${{{upper}+set}}\" ]; then export {upper} {lower}=\"${upper}\"; fi\n");
            assert!(text.contains(&(first + &second)), "{text}");
        }
    }

    /// H 37. Whatever the id is, it is one word; what a terminal would act on is refused.
    #[test]
    fn an_odd_id_is_quoted_in_the_log_command() {
        let text = log(ID).unwrap();
        assert_eq!(text, format!("sudo journalctl --lines=200 --follow --unit='oac-node-{ID}.service'"));
        assert!(log("o'dd $(id)").unwrap().ends_with(r"--unit='oac-node-o'\''dd $(id).service'"));
        let longest = "x".repeat(INSTALLATION_SHOWN_MAX_BYTES);
        assert!(log(&longest).is_ok());
        for bad in ["", "a\nb", "a\u{1b}[2J", "a\u{9b}2J", &format!("{longest}x")] {
            assert_eq!(log(bad).unwrap_err().member, "installation_id", "{bad:?}");
        }
    }
}
