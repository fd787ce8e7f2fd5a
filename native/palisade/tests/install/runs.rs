//! What the installer is started with, and what else is left.

use std::collections::BTreeMap;

use nix::sys::stat::Mode;
use palisade_core::install::log;
use palisade_core::units::Digest;

use crate::host::{BASH, DASH, Host, ID, SHELLS, TOKEN, Who, expect, install, said, uninstall};
use crate::server::{Answer, Server};

fn arguments(server: &Server) -> Vec<String> {
    let origin = server.origin();
    let words = ["--installation-id", ID, "--source-url", &origin, "--core-url", "https://core.example"];
    words.into_iter().chain(["--enrollment-token-stdin"]).map(str::to_owned).collect()
}

/// H 38. Through real sudo, in every shell: the token comes on standard input alone, nothing is left in the folder of
/// temporary files, no part stays in the private one, and the installer there is the operator's alone.
#[test]
fn the_installer_gets_its_token_on_standard_input_alone() {
    for shell in SHELLS {
        let host = Host::new(Who::User);
        let installer = host.installer(0);
        let server = Server::start(Answer::File(installer.clone()));
        let output = host.run(shell, &install(&server, &installer));
        expect(&output, 0, shell);
        let started = host.started().unwrap();
        assert_eq!(started.arguments, arguments(&server), "{shell:?}");
        assert_eq!(started.input, format!("{TOKEN}\n"), "{shell:?}");
        assert_eq!(started.user, "0", "sudo made it root");
        assert!(!started.environment.values().any(|value| value.contains(TOKEN)), "{shell:?}");
        assert!(!said(&output).contains(TOKEN), "{shell:?}");
        assert_eq!(std::fs::read_dir(host.path("tmp")).unwrap().count(), 0, "{shell:?}");
        let kept = format!("node-install-{}", Digest::of(&installer));
        assert_eq!(host.cached(), BTreeMap::from([("download.lock".to_owned(), 0o600), (kept, 0o700)]), "{shell:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

/// H 38. While it runs, no process of the machine shows the token in its arguments or its environment, no file of the
/// operator holds it, and the lock on the download is free.
#[test]
fn the_token_is_seen_nowhere_while_the_installer_runs() {
    for shell in SHELLS {
        let host = Host::new(Who::User);
        let installer = host.installer_that("echo here >$to/here; read -r go <$to/go", 0);
        for name in ["here", "go"] {
            nix::unistd::mkfifo(&host.path("started").join(name), Mode::from_bits_truncate(0o600)).unwrap();
        }
        let server = Server::start(Answer::File(installer.clone()));
        let running = host.spawn(shell, &install(&server, &installer));
        std::fs::read(host.path("started/here")).unwrap();

        let mut sudo = 0;
        for process in std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()) {
            for name in ["cmdline", "environ"] {
                // A process may end between two looks.
                let shown = std::fs::read(process.join(name)).unwrap_or_default();
                let shown = String::from_utf8_lossy(&shown);
                assert!(!shown.contains(TOKEN), "{shell:?}: {} {name}", process.display());
                sudo +=
                    usize::from(shown.starts_with("sudo\0") && shown.contains(ID) && shown.contains(&server.origin()));
            }
        }
        assert!(sudo > 0, "{shell:?}: real sudo is running");
        for name in host.cached().into_keys() {
            assert!(!std::fs::read_to_string(host.cache().join(name)).unwrap_or_default().contains(TOKEN));
        }
        let mut other = host.as_operator(&["flock", "-n"]);
        assert!(other.arg(host.cache().join("download.lock")).arg("true").status().unwrap().success(), "{shell:?}");

        std::fs::write(host.path("started/go"), "\n").unwrap();
        expect(&running.wait_with_output().unwrap(), 0, shell);
        assert_eq!(host.started().unwrap().input, format!("{TOKEN}\n"));
    }
}

/// H 41. What the installer says at its end is what the command says.
#[test]
fn the_status_of_the_installer_is_the_status_of_the_command() {
    for (shell, who, status) in SHELLS
        .iter()
        .zip([1, 2, 78, 130])
        .flat_map(|(shell, status)| [Who::User, Who::Root].map(|who| (*shell, who, status)))
    {
        let host = Host::new(who);
        let installer = host.installer(status);
        let server = Server::start(Answer::File(installer.clone()));
        expect(&host.run(shell, &install(&server, &installer)), i32::from(status), shell);
        assert!(host.started().is_some());
    }
}

/// H 42. A shell of root needs no sudo, and uses none that is there.
#[test]
fn a_shell_of_root_uses_no_sudo() {
    for shell in SHELLS {
        let host = Host::new(Who::Root);
        host.stub("sudo", "exit 99");
        let installer = host.installer(0);
        let server = Server::start(Answer::File(installer.clone()));
        expect(&host.run(shell, &install(&server, &installer)), 0, shell);
        let started = host.started().unwrap();
        assert_eq!((started.arguments, started.input), (arguments(&server), format!("{TOKEN}\n")));
    }
}

/// H 43. sudo drops `NO_COLOR`, so it becomes an option; an empty one is none.
#[test]
fn no_color_becomes_an_option_that_survives_sudo() {
    for (shell, value) in SHELLS.into_iter().flat_map(|shell| [(shell, "1"), (shell, "")]) {
        let mut host = Host::new(Who::User);
        host.set("NO_COLOR", value);
        let installer = host.installer(0);
        let server = Server::start(Answer::File(installer.clone()));
        expect(&host.run(shell, &install(&server, &installer)), 0, shell);
        let started = host.started().unwrap();
        assert!(!started.environment.contains_key("NO_COLOR"), "real sudo resets the environment");
        let flagged = started.arguments.last().unwrap() == "--no-color";
        assert_eq!(flagged, !value.is_empty(), "{shell:?}: {:?}", started.arguments);
    }
}

/// H 49. The command that removes a node has no token, and its installer nothing to read.
#[test]
fn the_uninstall_command_carries_no_token_and_gives_no_input() {
    for shell in SHELLS {
        let host = Host::new(Who::User);
        let installer = host.installer(0);
        let server = Server::start(Answer::File(installer.clone()));
        let text = uninstall(&server, &installer);
        assert!(!text.contains("token"), "{text}");
        expect(&host.run(shell, &text), 0, shell);
        let started = host.started().unwrap();
        assert_eq!(started.arguments, ["--installation-id", ID, "--uninstall"]);
        assert_eq!(started.input, "");
    }
}

/// H 37. The log command names the unit of the installation, whatever the id holds.
#[test]
fn the_log_command_names_one_unit_whatever_the_id_is() {
    for (shell, id) in SHELLS.into_iter().flat_map(|shell| [ID, "o'dd $(id) `id` \"*\" \\ é"].map(|id| (shell, id))) {
        let host = Host::new(Who::User);
        host.stub("journalctl", &format!("printf '%s\\n' \"$@\" >{}", host.path("started/arguments").display()));
        expect(&host.run(shell, &log(id).unwrap()), 0, shell);
        let arguments = std::fs::read_to_string(host.path("started/arguments")).unwrap();
        assert_eq!(arguments, format!("--lines=200\n--follow\n--unit=oac-node-{id}.service\n"), "{shell:?}");
    }
}

/// H 38. Neither options nor functions of the operator's shell change what happens; a shell that shows every command shows
/// no token.
#[test]
fn options_and_functions_of_the_shell_change_nothing() {
    for shell in SHELLS {
        let mut host = Host::new(Who::User);
        let functions: String =
            ["curl", "mv", "rm", "chmod", "mkdir", "stat", "sha256sum", "flock", "id", "uname", "sudo", "printf"]
                .map(|name| format!("{name}() {{ echo of the operator >&2; return 99; }}\n"))
                .concat();
        host.prelude = format!("{functions}set -C\nset -u\nset -x\n");
        let installer = host.installer(0);
        let server = Server::start(Answer::File(installer.clone()));
        // The second run finds the lock and the installer of the first.
        for _ in 0..2 {
            let output = host.run(shell, &install(&server, &installer));
            expect(&output, 0, shell);
            assert_eq!(host.started().unwrap().input, format!("{TOKEN}\n"));
            assert!(!said(&output).contains(TOKEN), "{shell:?}: {}", said(&output));
        }
    }
}

/// H 38. Typed at a terminal by somebody who keeps lines with a leading space out of the history, it is not in the history.
#[test]
fn a_leading_space_keeps_the_command_out_of_the_history() {
    let mut host = Host::new(Who::User);
    let installer = host.installer(0);
    let server = Server::start(Answer::File(installer.clone()));
    host.set("HISTCONTROL", "ignorespace");
    host.set("HISTFILE", &host.path("tmp/history").display().to_string());
    host.prelude = "echo before\n".to_owned();
    let text = format!("{}\necho after\nexit\n", install(&server, &installer));
    let terminal = ["script", "--quiet", "--flush", "--return", "--command", "bash --norc --noprofile -i", "/dev/null"];
    expect(&host.run(&terminal, &text), 0, BASH);
    assert_eq!(host.started().unwrap().input, format!("{TOKEN}\n"));
    let history = std::fs::read_to_string(host.path("tmp/history")).unwrap();
    assert_eq!(history, "echo before\necho after\nexit\n");
}

/// A shell whose `printf` is another program would show the token in its arguments.
#[test]
fn a_shell_without_a_printf_of_its_own_is_refused() {
    let mut host = Host::new(Who::User);
    // bash can do without its own.
    host.prelude = "enable -n printf\n".to_owned();
    let installer = host.installer(0);
    let server = Server::start(Answer::File(installer.clone()));
    let output = host.run(BASH, &install(&server, &installer));
    expect(&output, 1, BASH);
    assert!(said(&output).contains("no printf of its own") && server.requests().is_empty(), "{}", said(&output));
    assert!(host.started().is_none());
}

/// Nobody who may not become root gets as far as a download.
#[test]
fn an_operator_without_sudo_is_told_before_the_download() {
    let mut host = Host::new(Who::User);
    let installer = host.installer(0);
    let server = Server::start(Answer::File(installer.clone()));
    for tool in ["dash", "curl", "sha256sum", "flock", "id", "uname"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{tool}"), host.path("bin").join(tool)).unwrap();
    }
    host.set("PATH", &host.path("bin").display().to_string());
    let output = host.run(DASH, &install(&server, &installer));
    expect(&output, 1, DASH);
    let told = said(&output);
    assert!(told.contains("sudo is not installed") && told.contains("nothing was changed"), "{told}");
    assert!(server.requests().is_empty());
}
