//! Sandboxes of the Runtime release that this source tree builds.

use std::time::Duration;

use palisade_core::operation::Operation;
use palisade_core::outcome::{Answer, Failure};
use palisade_provider::Provider;
use palisade_provider::testing::context;

use crate::lab::{Lab, command};

/// E21. A command that outlives its budget is stopped in the released userland and under the released filter as well.
///
/// H 183. The released guest takes its bootstrap file, stays, and survives a restart.
///
/// H 192. Decision 25 gives the guest no link of its own. What does hold: the released guest is the sandbox's first
/// process, found the bootstrap of its allocation valid, and stays, while the sandbox serves commands.
#[tokio::test]
async fn released_runtime_serves_as_a_sandbox() {
    let lab = Lab::of_release().await;
    assert_eq!(lab.provider.probe().await.unwrap(), None);
    let (sandbox, info) = lab.create(1).await;
    let first = lab.run(sandbox, &["ps", "-o", "pid,args"]).await.unwrap();
    let guest = "1 /usr/local/bin/oac-sandbox-io --bootstrap-file /home/runtime/sandbox-io-bootstrap.json";
    assert!(first.stdout.lines().any(|line| line.trim() == guest), "{}", first.stdout);
    let written = lab.run(sandbox, &["/bin/sh", "-c", "echo kept > /workspace/file; id -u"]).await.unwrap();
    assert_eq!((written.stdout.as_ref(), written.exit_code), ("1000\n", 0));
    let stuck = command(&["/bin/sh", "-c", "trap '' TERM; sleep 1001 & sleep 1001"]);
    let outcome = lab.run_command(context(sandbox, Duration::from_secs(1)), stuck).await;
    assert_eq!(outcome, Err(Failure::CommandUnconfirmed));
    let left = lab.run(sandbox, &["ps", "-o", "args"]).await.unwrap();
    assert!(!left.stdout.contains("sleep 1001"), "{}", left.stdout);
    lab.docker
        .restart_container(&info.provider_id, None::<bollard::query_parameters::RestartContainerOptions>)
        .await
        .unwrap();
    let kept = lab.run(sandbox, &["cat", "/environment/workspace/file"]).await.unwrap();
    assert_eq!(kept.stdout, "kept\n");
    assert_eq!(lab.call(sandbox, Operation::Kill).await.unwrap(), Answer::Done);
    assert_eq!(lab.leftovers().await, Vec::<String>::new());
}
