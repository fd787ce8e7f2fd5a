//! Commands in a real sandbox: output, input, exit codes, limits and budgets.

use std::time::Duration;

use crate::lab::{AMPLE, Lab, command};
use palisade_core::limits::{STDIN_MAX_BYTES, STREAM_MAX_BYTES};
use palisade_core::outcome::Failure;
use palisade_core::units::Digest;
use palisade_core::wire::payload::{Command, Reference};
use palisade_provider::testing::context;

#[tokio::test]
async fn streams_and_exit_codes_are_exact() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let both = lab.run(sandbox, &["sh", "-c", "printf out; printf err >&2; exit 3"]).await.unwrap();
    assert_eq!((both.stdout.as_ref(), both.stderr.as_ref(), both.exit_code), ("out", "err", 3));
    let quoted = lab.run(sandbox, &["printf", "%s|", "a b", "", "$x", "'"]).await;
    assert_eq!(quoted, Err(Failure::Invalid), "no shell and no such program: {quoted:?}");
    let exact = lab.run(sandbox, &["sh", "-c", "printf '%s|' \"$@\"", "sh", "a b", "", "$x", "'"]).await.unwrap();
    assert_eq!(exact.stdout, "a b||$x|'|");
    let placed = Command { directory: "/environment/packages".into(), ..command(&["sh", "-c", "pwd"]) };
    assert_eq!(lab.run_command(context(sandbox, AMPLE), placed).await.unwrap().stdout, "/environment/packages\n");
}

/// E19. "Could not start" is another result than "exited with 126 or 127", every time.
#[tokio::test]
async fn command_that_cannot_start_is_not_an_exit_code() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    for _ in 0..10 {
        assert_eq!(lab.run(sandbox, &["/no/such/program"]).await, Err(Failure::Invalid));
        assert_eq!(lab.run(sandbox, &["/etc/passwd"]).await, Err(Failure::Invalid));
        let elsewhere = Command { directory: "/no/such/directory".into(), ..command(&["true"]) };
        assert_eq!(lab.run_command(context(sandbox, AMPLE), elsewhere).await, Err(Failure::Invalid));
        for code in ["0", "1", "126", "127", "255"] {
            let exited = lab.run(sandbox, &["sh", "-c", &format!("exit {code}")]).await.unwrap();
            assert_eq!(exited.exit_code.to_string(), code);
        }
    }
    let unknown = Reference { allocation: sandbox.tenant, ..sandbox };
    assert_eq!(lab.run(unknown, &["true"]).await, Err(Failure::NotFound));
}

/// E19. Arguments that the kernel would refuse after the engine started a process are refused before; the largest run.
#[tokio::test]
async fn arguments_beyond_the_kernels_limits_never_start() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let longest = "x".repeat(131_071);
    assert_eq!(lab.run(sandbox, &["true", &longest]).await.unwrap().exit_code, 0);
    assert_eq!(lab.run(sandbox, &["true", &format!("{longest}x")]).await, Err(Failure::Invalid));
    let word = "y".repeat(1015);
    let many = |count| std::iter::once("true").chain(std::iter::repeat_n(word.as_str(), count)).collect::<Vec<_>>();
    assert_eq!(lab.run(sandbox, &many(1983)).await.unwrap().exit_code, 0);
    assert_eq!(lab.run(sandbox, &many(1984)).await, Err(Failure::Invalid));
}

/// Every byte of the largest input arrives, and the command sees its end.
#[tokio::test]
async fn largest_input_arrives_whole() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    for size in [0, 1, 4 << 20, STDIN_MAX_BYTES] {
        let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
        let expected = format!("{}  -\n", Digest::of(&bytes));
        let fed = Command { stdin: Some(bytes.into()), ..command(&["sha256sum"]) };
        assert_eq!(lab.run_command(context(sandbox, AMPLE), fed).await.unwrap().stdout, expected, "{size} bytes");
    }
    let without = lab.run(sandbox, &["cat"]).await.unwrap();
    assert_eq!(without.stdout, "", "without input a command reads its end at once");
}

/// A command that does not take all of its input has an unknown outcome.
#[tokio::test]
async fn input_that_is_not_taken_is_unconfirmed() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let fed = Command { stdin: Some(vec![0; 16 << 20].into()), ..command(&["head", "-c", "1"]) };
    assert_eq!(lab.run_command(context(sandbox, AMPLE), fed).await, Err(Failure::CommandUnconfirmed));
}

/// E18. Short commands lose no byte, one after another and side by side; the long form runs 10,000.
#[tokio::test]
async fn short_commands_lose_no_output() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let rounds = if std::env::var_os("PALISADE_LONG_TESTS").is_some() { 1_250 } else { 125 };
    let lab = &lab;
    let lane = async |lane: u32| {
        for round in 0..rounds {
            let word = format!("{lane}-{round}");
            let script = format!("echo {word}; echo {word} >&2; exit {}", round % 256);
            let result = lab.run(sandbox, &["sh", "-c", &script]).await.unwrap();
            let line = format!("{word}\n");
            assert_eq!((result.stdout.as_ref(), result.stderr.as_ref()), (line.as_str(), line.as_str()));
            assert_eq!(result.exit_code, i64::from(round % 256));
        }
    };
    tokio::join!(lane(0), lane(1), lane(2), lane(3), lane(4), lane(5), lane(6), lane(7));
}

/// E18. A stream is whole up to its limit; one byte more, or a hundred megabytes more, is unconfirmed, never cut.
#[tokio::test]
async fn stream_is_whole_up_to_its_limit() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    for target in ["", " >&2"] {
        for size in [STREAM_MAX_BYTES - 1, STREAM_MAX_BYTES] {
            let script = format!("head -c {size} /dev/zero | tr '\\0' x{target}");
            let result = lab.run(sandbox, &["sh", "-c", &script]).await.unwrap();
            assert_eq!(result.stdout.len() + result.stderr.len(), size);
        }
        for size in [STREAM_MAX_BYTES + 1, 100_000_000] {
            let script = format!("head -c {size} /dev/zero | tr '\\0' x{target}");
            assert_eq!(lab.run(sandbox, &["sh", "-c", &script]).await, Err(Failure::CommandUnconfirmed));
        }
    }
    assert!(peak_resident_kib() < 400 * 1024, "an endless stream does not pile up in memory");
}

fn peak_resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn running(lab: &Lab, sandbox: Reference, marker: &str) -> String {
    let listed = lab.run(sandbox, &["ps", "-o", "pid,args"]).await.unwrap();
    listed.stdout.lines().filter(|line| line.contains(marker)).collect::<Vec<_>>().join("\n")
}

/// E21. A command whose budget ends is stopped, with its children, and its outcome is unknown.
#[tokio::test]
async fn command_that_outlives_its_budget_is_stopped() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let budget = Duration::from_secs(1);
    for (marker, script) in [
        ("1001", "sleep 1001"),
        ("1002", "trap '' TERM; sleep 1002"),
        ("1003", "sleep 1003 & sleep 1003 & wait"),
        ("1004", "trap '' TERM HUP; (trap '' TERM; sleep 1004) & sleep 1004"),
        ("1005", "sleep 1005 & exit 0"),
        ("1006", "setsid sleep 1006 & setsid sh -c 'trap \"\" TERM; sleep 1006; :' & wait"),
        ("1007", "setsid sh -c 'sleep 1007 & exec setsid sleep 1007' & exit 0"),
    ] {
        let outcome = lab.run_command(context(sandbox, budget), command(&["sh", "-c", script])).await;
        assert_eq!(outcome, Err(Failure::CommandUnconfirmed), "{script}");
        assert_eq!(running(&lab, sandbox, marker).await, "", "{script}");
    }
    assert_eq!(lab.run(sandbox, &["true"]).await.unwrap().exit_code, 0, "the sandbox itself goes on");
}

/// What an earlier command left running on purpose outlives a later one that had to be stopped.
#[tokio::test]
async fn stopping_a_command_spares_what_an_earlier_one_left() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let daemon = "setsid sh -c 'while :; do sleep 1; done; : 1010' </dev/null >/dev/null 2>&1 &";
    assert_eq!(lab.run(sandbox, &["sh", "-c", daemon]).await.unwrap().exit_code, 0);
    let stuck = command(&["sh", "-c", "setsid sleep 1011 & wait"]);
    let outcome = lab.run_command(context(sandbox, Duration::from_secs(2)), stuck).await;
    assert_eq!(outcome, Err(Failure::CommandUnconfirmed));
    assert_eq!(running(&lab, sandbox, "1011").await, "");
    assert_ne!(running(&lab, sandbox, "1010").await, "");
}

/// A sandbox that used up its processes, its memory or its `/tmp` says so by exit codes, and goes on.
#[tokio::test]
async fn exhausted_limits_are_the_commands_own_failure() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let full = lab.run(sandbox, &["sh", "-c", "head -c 200000000 /dev/zero > /tmp/f; e=$?; wc -c < /tmp/f; exit $e"]);
    let full = full.await.unwrap();
    assert_eq!((full.stdout.trim(), full.exit_code), ("134217728", 1));
    let hungry = lab.run(sandbox, &["sh", "-c", "a=$(head -c 800000000 /dev/zero | tr '\\0' x); echo ${#a}"]).await;
    let hungry = hungry.unwrap();
    assert_eq!((hungry.stdout.as_ref(), hungry.exit_code), ("", 137), "killed is a settled result");
    let many = lab.run(sandbox, &["sh", "-c", "for i in $(seq 200); do sleep 1012 & done"]).await.unwrap();
    assert_eq!((many.stdout.as_ref(), many.exit_code), ("", 2), "{}", many.stderr);
    assert_eq!(lab.run(sandbox, &["sh", "-c", "kill -9 -1"]).await.unwrap().exit_code, 0);
    assert_eq!(running(&lab, sandbox, "1012").await, "");
}

/// A command that closed its output and goes on is not done.
#[tokio::test]
async fn command_without_output_is_followed_to_its_exit() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let closed = ["sh", "-c", "exec >&- 2>&-; sleep 0.5; exit 7"];
    assert_eq!(lab.run(sandbox, &closed).await.unwrap().exit_code, 7);
}
