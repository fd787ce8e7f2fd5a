//! What ends before the installer is started, and what a broken download leaves.

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::host::{BASH, DASH, Host, SHELLS, Who, expect, install, said};
use crate::server::{Answer, Server};

const MIB: usize = 1 << 20;

/// Runs against a server that gives this answer; nothing was started, no part is left.
fn refused(shell: &[&str], answer: Answer, status: i32, told: &str) -> Server {
    let host = Host::new(Who::User);
    let server = Server::start(answer);
    let output = host.run(shell, &install(&server, &host.installer(0)));
    expect(&output, status, shell);
    assert!(said(&output).contains(told), "{shell:?}: {}", said(&output));
    assert!(host.started().is_none() && !host.partial().exists(), "{shell:?}");
    assert_eq!(host.cached().len(), 1, "only the lock: {:?}", host.cached());
    server
}

/// H 39. The status of a failed download is curl's own: a refusal, and nobody who listens.
#[test]
fn a_failed_download_ends_with_the_status_of_curl_and_runs_nothing() {
    for shell in SHELLS {
        let server = refused(shell, Answer::Status(404, String::new()), 22, "curl's status 22; nothing was installed");
        assert_eq!(server.requests().len(), 1, "what is refused for good is asked for once");

        let host = Host::new(Who::User);
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut server = Server::start(Answer::Endless);
        server.address = nobody.local_addr().unwrap();
        drop(nobody);
        let output = host.run(shell, &install(&server, &host.installer(0)));
        expect(&output, 7, shell);
        assert!(said(&output).contains("curl's status 7") && host.started().is_none(), "{}", said(&output));
    }
}

/// H 39. What may pass is tried twice more.
#[test]
fn a_busy_server_is_asked_three_times() {
    let server = refused(BASH, Answer::Status(503, String::new()), 22, "503");
    assert_eq!(server.requests().len(), 3);
}

/// H 40. What has another checksum is not run, and not kept.
#[test]
fn another_checksum_runs_nothing() {
    for shell in SHELLS {
        let other = b"#!/bin/sh\nexit 0\n".to_vec();
        refused(shell, Answer::File(other), 1, "the checksum is another one");
    }
}

/// No redirect is followed, not even when the operator's settings of curl say so.
#[test]
fn no_redirect_is_followed() {
    for shell in SHELLS {
        let host = Host::new(Who::User);
        std::fs::write(host.path("home/.curlrc"), "location\ninsecure\n").unwrap();
        let installer = host.installer(0);
        let target = Server::start(Answer::File(installer.clone()));
        let server =
            Server::start(Answer::Status(307, format!("location: {}/node-install/node-install\r\n", target.origin())));
        let output = host.run(shell, &install(&server, &installer));
        expect(&output, 1, shell);
        assert!(said(&output).contains("answered 307, and no redirect is followed"), "{}", said(&output));
        assert!(target.requests().is_empty() && host.started().is_none());
    }
}

/// A file of exactly 1 MiB is an installer; a longer one is none, whether its length was told before or not.
#[test]
fn at_most_one_mebibyte_is_taken() {
    for shell in SHELLS {
        let host = Host::new(Who::User);
        let mut installer = host.installer(0);
        installer.resize(MIB, b'\n');
        let server = Server::start(Answer::File(installer.clone()));
        expect(&host.run(shell, &install(&server, &installer)), 0, shell);

        installer.push(b'\n');
        let server = Server::start(Answer::File(installer.clone()));
        expect(&host.run(shell, &install(&server, &installer)), 63, shell);

        // curl 7 ends with what the system answers to its write, later ones with their own limit.
        let server = Server::start(Answer::Endless);
        let status = host.run(shell, &install(&server, &installer)).status.code();
        assert!(matches!(status, Some(23 | 63)), "{shell:?}: {status:?}");
        assert!(!host.partial().exists());
    }
}

/// H 48. Another machine stops before the download, and nothing on it changes. (The shell of busybox is its own `uname`.)
#[test]
fn another_platform_stops_before_the_download() {
    const MACHINES: [(&str, &str); 3] = [("Linux", "aarch64"), ("Darwin", "x86_64"), ("Linux", "i686")];
    let shells = SHELLS.into_iter().filter(|shell| shell[0] != "busybox");
    for (shell, (system, machine)) in shells.flat_map(|shell| MACHINES.map(|of| (shell, of))) {
        let host = Host::new(Who::User);
        host.stub("uname", &format!("[ $1 = -s ] && echo {system} || echo {machine}"));
        let installer = host.installer(0);
        let server = Server::start(Answer::File(installer.clone()));
        let output = host.run(shell, &install(&server, &installer));
        expect(&output, 1, shell);
        assert!(said(&output).contains("nothing was changed"), "{}", said(&output));
        assert!(server.requests().is_empty() && !host.path("home/.oac").exists());
    }
}

/// H 48. Decision 23 made the installer an executable: an old Python is in nobody's way, because none is started.
#[test]
fn an_old_python_is_not_asked() {
    let host = Host::new(Who::User);
    for name in ["python3", "python"] {
        host.stub(name, &format!("touch {}; echo Python 3.8.20", host.path("tmp/asked").display()));
    }
    let installer = host.installer(0);
    let server = Server::start(Answer::File(installer.clone()));
    expect(&host.run(DASH, &install(&server, &installer)), 0, DASH);
    assert!(!host.path("tmp/asked").exists());
}

/// H 48. A tool that is missing is named before the download.
#[test]
fn a_missing_tool_is_named_before_the_download() {
    const TOOLS: [&str; 3] = ["curl", "sha256sum", "flock"];
    for missing in TOOLS {
        let mut host = Host::new(Who::User);
        for tool in TOOLS.into_iter().chain(["dash", "uname", "id"]).filter(|tool| *tool != missing) {
            std::os::unix::fs::symlink(format!("/usr/bin/{tool}"), host.path("bin").join(tool)).unwrap();
        }
        host.set("PATH", &host.path("bin").display().to_string());
        let installer = host.installer(0);
        let server = Server::start(Answer::File(installer.clone()));
        let output = host.run(DASH, &install(&server, &installer));
        expect(&output, 1, DASH);
        assert!(
            said(&output).contains(&format!("{missing} is not installed; nothing was changed")),
            "{}",
            said(&output)
        );
        assert!(server.requests().is_empty() && !host.path("home/.oac").exists());
    }
}

/// H 50. A download that is killed with everything around it leaves its part; the next run, whatever comes of it, removes it.
#[test]
fn a_killed_download_leaves_a_part_that_the_next_run_removes() {
    for shell in SHELLS {
        let host = Host::new(Who::User);
        let installer = host.installer(0);
        let slow = Server::start(Answer::Half(installer.repeat(1024)));
        let child = host.spawn(shell, &install(&slow, &installer));
        slow.half_sent();
        killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
        child.wait_with_output().unwrap();
        // Whether curl wrote before it died is its own affair; a part of another run is as good.
        std::fs::write(host.partial(), "half an installer").unwrap();
        host.give(&host.partial());

        let nothing = Server::start(Answer::Status(404, String::new()));
        expect(&host.run(shell, &install(&nothing, &installer)), 22, shell);
        assert!(!host.partial().exists(), "{shell:?}");

        std::fs::write(host.partial(), "half an installer").unwrap();
        host.give(&host.partial());
        let server = Server::start(Answer::File(installer.clone()));
        expect(&host.run(shell, &install(&server, &installer)), 0, shell);
        assert!(!host.partial().exists() && host.started().is_some(), "{shell:?}");
    }
}

/// A command that is told to end takes its part along.
#[test]
fn an_interrupted_download_leaves_no_part() {
    for (shell, signal) in
        SHELLS.into_iter().flat_map(|shell| [Signal::SIGTERM, Signal::SIGHUP].map(|signal| (shell, signal)))
    {
        let host = Host::new(Who::User);
        let installer = host.installer(0);
        let slow = Server::start(Answer::Half(installer.repeat(1024)));
        let child = host.spawn(shell, &install(&slow, &installer));
        slow.half_sent();
        killpg(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        assert!(!child.wait_with_output().unwrap().status.success());
        assert!(!host.partial().exists(), "{shell:?} {signal}");
    }
}

/// While a killed shell's curl still writes, nobody else does: the lock is curl's as well.
#[test]
fn a_download_that_outlives_its_shell_keeps_the_lock() {
    let host = Host::new(Who::User);
    let installer = host.installer(0);
    let slow = Server::start(Answer::Half(installer.repeat(1024)));
    let child = host.spawn(DASH, &install(&slow, &installer));
    slow.half_sent();
    let group = Pid::from_raw(child.id().cast_signed());
    for process in processes_of(group, "dash") {
        kill(process, Signal::SIGKILL).unwrap();
    }
    let server = Server::start(Answer::File(installer.clone()));
    let output = host.run(DASH, &install(&server, &installer));
    expect(&output, 1, DASH);
    assert!(said(&output).contains("another download is under way"), "{}", said(&output));
    assert!(server.requests().is_empty());
    killpg(group, Signal::SIGKILL).unwrap();
    child.wait_with_output().unwrap();
}

/// The processes of a group that run a program of this name.
fn processes_of(group: Pid, name: &str) -> Vec<Pid> {
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let named = |process: &Pid| {
        std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|comm| comm.trim() == name)
            && nix::unistd::getpgid(Some(*process)) == Ok(group)
    };
    numbers.map(Pid::from_raw).filter(named).collect()
}
