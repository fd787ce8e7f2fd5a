//! The main job, end to end, on a real Docker engine: the demo as `make demo` runs it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use bollard::Docker;
use bollard::query_parameters::ListNetworksOptionsBuilder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rstest::rstest;

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.arg("demo").arg("--guest").arg(palisade_release::checkout::guest().unwrap());
    command
}

/// Whether the engine has the network of the demo with this process id, which is the first thing it makes there.
async fn has_network(pid: u32) -> bool {
    let docker = Docker::connect_with_unix_defaults().unwrap().negotiate_version().await;
    let docker = docker.expect("no Docker engine answers on /var/run/docker.sock: run scripts/start-docker");
    let name = format!("palisade-demo-{pid}");
    let filter = std::collections::HashMap::from([("name", vec![name.as_str()])]);
    let options = ListNetworksOptionsBuilder::new().filters(&filter).build();
    !docker.list_networks(Some(options)).await.unwrap().is_empty()
}

/// Shows one chapter to its end; gives what it told.
fn chapter(name: &str) -> String {
    let output = demo().args(["--chapter", name]).output().unwrap();
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{errors}");
    told.into_owned()
}

/// H 247.
#[test]
fn nothing_is_lost_or_run_twice_when_node_and_core_are_killed() {
    let told = chapter("accidents");
    for promised in
        ["the interrupted command is command_unconfirmed", "that the command ran once", "proved: no container"]
    {
        assert!(told.contains(promised), "{promised}: {told}");
    }
}

/// W 84, W 85. H 147. Two real nodes, of which one loses its network in the middle of a rollout, and the other is killed
/// there. The chapter itself proves each of its sentences, and fails when one is not true.
#[test]
fn a_rollout_outlasts_a_lost_network_and_a_killed_node() {
    let told = chapter("rollout");
    for promised in [
        "its preparer ended by itself",
        "east collected generation 1",
        "west collected generation 1",
        "the rollout is settled",
        "proved: no container",
    ] {
        assert!(told.contains(promised), "{promised}: {told}");
    }
}

/// Both nodes prepare, and one of them is lost, when somebody has seen enough.
#[rstest]
#[case::while_both_prepare("half of it is there")]
#[case::while_one_is_silent("killed east")]
fn an_interrupted_rollout_leaves_nothing(#[case] seen: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = demo();
    command.args(["--chapter", "rollout"]).env("TMPDIR", folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.contains(seen)), "the chapter ended before {seen}");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.ends_with("error: interrupted\n") && !errors.contains("warning"), "{errors}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let ours = folder.path().to_str().unwrap();
    let commands = std::fs::read_dir("/proc").unwrap().flatten();
    let commands = commands.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    assert_eq!(commands.filter(|command| command.contains(ours)).collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn an_interrupted_demo_leaves_nothing() {
    let mut child = demo().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    while !has_network(pid).await {
        assert_eq!(child.try_wait().unwrap(), None, "the demo ended before it began");
    }
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.ends_with("error: interrupted\n"), "{errors}");
    assert!(!has_network(pid).await);
}

#[test]
fn an_interrupt_while_the_release_is_built_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo().env("TMPDIR", folder.path()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map(Result::unwrap).any(|line| line.contains("found Docker")), "the demo ended before it began");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_demo_whose_reader_went_away_still_cleans_up() {
    let mut child = demo().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    drop((child.stdout.take(), child.stderr.take()));
    while !has_network(pid).await {
        assert_eq!(child.try_wait().unwrap(), None, "the demo ended before it began");
    }
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!has_network(pid).await);
}
