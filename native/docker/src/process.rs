//! The processes of a sandbox as its host shows them, and which of them are a command's.

use std::collections::HashSet;
use std::path::Path;

/// One process that is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its number on the host.
    host: u32,
    /// Its number in the sandbox.
    inner: u32,
    /// Its parent, on the host.
    parent: u32,
    /// Its session, on the host.
    session: u32,
    /// When it was started, in ticks of [`ticks`].
    start: u64,
}

/// Now, in the unit and from the zero of processes' start times; `None` when the host does not say.
///
/// Both have hundredths of a second: the kernel shows start times in `USER_HZ`, which is 100 wherever this runs.
pub(crate) fn ticks() -> Option<u64> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    uptime.split_whitespace().next()?.replace('.', "").parse().ok()
}

/// Every process of a container. One that ends meanwhile is left out.
///
/// # Errors
/// The host shows no processes at all.
pub(crate) fn of_container(container: &str) -> std::io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        found.extend(read(&entry?.path(), container));
    }
    Ok(found)
}

fn read(folder: &Path, container: &str) -> Option<Process> {
    let host = folder.file_name()?.to_str()?.parse().ok()?;
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    // A number that the host gave to somebody else meanwhile is not in the container's control group.
    if !text("cgroup")?.contains(container) {
        return None;
    }
    parse(host, &text("stat")?, &text("status")?)
}

/// Reads `stat` and `status`. `None` for a process that has ended and only waits to be collected, and for one without a
/// namespace of its own: the host's are never signalled.
fn parse(host: u32, stat: &str, status: &str) -> Option<Process> {
    // The name in parentheses may hold anything; the fields after it begin with the third, the state.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let number = |index: usize| fields.get(index)?.parse().ok();
    let mut numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace();
    let inner = numbers.nth(1).map(|second| numbers.next_back().unwrap_or(second))?.parse().ok()?;
    Some(Process { host, inner, parent: number(1)?, session: number(3)?, start: fields.get(19)?.parse().ok()? })
}

/// The processes, by their numbers in the sandbox, of the command whose first process is or was `leader`.
///
/// An exec's first process leads a session of its own. A process that left it has a parent chain that ends there or,
/// when its parents have ended, at the sandbox's first process. So the command's are the members of the leader's
/// session, and everything younger than the command that belongs to nobody else: not to another exec, not to something
/// older, by parent or by session. Commands of one sandbox run one after another; only what an older command left
/// running, and what then cut all ties to it while this one ran, is taken for this one's. A process of the very tick at
/// which the command was asked for is older: between the two the engine has to start the exec, which takes longer.
pub(crate) fn of_command(processes: &[Process], leader: u32, started: u64) -> Vec<u32> {
    let others = others(processes, leader, started);
    processes.iter().filter(|process| !others.contains(&process.host)).map(|process| process.inner).collect()
}

fn others(processes: &[Process], leader: u32, started: u64) -> HashSet<u32> {
    let inside: HashSet<u32> = processes.iter().map(|process| process.host).collect();
    let first = processes.iter().find(|process| process.inner == 1).map(|process| process.host);
    let mut others = HashSet::new();
    loop {
        let before = others.len();
        let sessions: HashSet<u32> =
            processes.iter().filter(|process| others.contains(&process.host)).map(|process| process.session).collect();
        for process in processes.iter().filter(|process| process.session != leader) {
            let apart = process.start <= started || is_first(process, leader, &inside);
            let child = Some(process.parent) != first && others.contains(&process.parent);
            if apart || child || sessions.contains(&process.session) {
                others.insert(process.host);
            }
        }
        if others.len() == before {
            return others;
        }
    }
}

/// Whether a process is the first of the sandbox or of another exec: it leads a session, and its parent is outside.
fn is_first(process: &Process, leader: u32, inside: &HashSet<u32>) -> bool {
    let ends_here = process.parent == leader || inside.contains(&process.parent);
    process.host != leader && process.session == process.host && !ends_here
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The host numbers of the sandbox's first process, of its parent outside, and of a command's first process.
    const FIRST: u32 = 100;
    const OUTSIDE: u32 = 50;
    const LEADER: u32 = 200;

    fn process(host: u32, parent: u32, session: u32, start: u64) -> Process {
        Process { host, inner: host - FIRST + 1, parent, session, start }
    }

    /// A sandbox whose first process is old, with others, and a command that was started at 1000.
    fn command(others: &[Process]) -> Vec<u32> {
        let first = process(FIRST, OUTSIDE, FIRST, 10);
        let found = of_command(&[&[first], others].concat(), LEADER, 1000);
        found.into_iter().map(|inner| inner + FIRST - 1).collect()
    }

    #[test]
    fn whatever_a_command_started_is_its_own() {
        let leader = process(LEADER, OUTSIDE, LEADER, 1000);
        let child = process(201, LEADER, LEADER, 1001);
        let left_the_session = process(202, LEADER, 202, 1002);
        let child_of_that = process(203, 202, 202, 1003);
        let orphan = process(204, FIRST, 204, 1004);
        let all = [leader, child, left_the_session, child_of_that, orphan];
        assert_eq!(command(&all), [200, 201, 202, 203, 204]);
        assert_eq!(command(&all[2..]), [202, 203, 204], "also after the leader ended");
    }

    #[test]
    fn what_belongs_to_somebody_else_is_left_alone() {
        let daemon = process(150, FIRST, 150, 900);
        let of_the_same_tick = process(160, FIRST, 160, 1000);
        let its_child = process(210, 150, 150, 1500);
        let its_grandchild = process(211, 210, 211, 1501);
        let its_orphan = process(212, FIRST, 150, 1502);
        let another_exec = process(220, OUTSIDE, 220, 1600);
        let its_daemon = process(221, 220, 221, 1601);
        let all = [its_grandchild, its_child, its_orphan, its_daemon, another_exec, daemon, of_the_same_tick];
        assert_eq!(command(&all), Vec::<u32>::new());
    }

    #[test]
    fn members_of_the_session_count_when_the_host_does_not_say_the_time() {
        let members = [process(LEADER, OUTSIDE, LEADER, 1000), process(201, LEADER, LEADER, 1001)];
        assert_eq!(of_command(&members, LEADER, u64::MAX), [101, 102]);
    }

    #[test]
    fn process_is_read_whatever_its_name() {
        let stat = |state: &str| {
            format!("5000 (a) b) {state} 4711 4711 4700 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 0 0")
        };
        let expected = Process { host: 5000, inner: 13, parent: 4711, session: 4700, start: 123_456 };
        assert_eq!(parse(5000, &stat("S"), "Name:\ta\nNSpid:\t5000\t13\n"), Some(expected));
        assert_eq!(parse(5000, &stat("S"), "NSpid:\t5000\t30\t13\n"), Some(expected));
        assert_eq!(parse(5000, &stat("Z"), "NSpid:\t5000\t13\n"), None);
        assert_eq!(parse(5000, &stat("S"), "NSpid:\t5000\n"), None, "a process of the host is never signalled");
        assert_eq!(parse(5000, "5000 (a", "NSpid:\t5000\t13\n"), None);
    }

    #[test]
    fn time_of_the_host_is_that_of_its_processes() {
        let before = ticks().unwrap();
        let child = std::process::Command::new("sleep").arg("60").spawn();
        let mut child = child.unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let started = parse(child.id(), &stat, "NSpid:\t9\t9\n").unwrap().start;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!((before..=ticks().unwrap()).contains(&started), "{before} {started}");
    }
}
