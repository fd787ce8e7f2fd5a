use palisade_core::microsandbox::helper::Operation;
use palisade_core::outcome::Failure;
use rstest::rstest;

use super::lab::{Lab, text, until};

/// What every helper here does first: it takes its whole request.
const READ: &str = "cat > \"$here/request\"\n";

async fn ask(lab: &Lab, operation: Operation) -> Result<(), Failure> {
    lab.helpers().ask(operation, b"{}".to_vec()).await.map(drop)
}

/// H 166. Whoever stops waiting ends the waiting alone: the helper works on to its own end, counts as working, and has its
/// lease until then.
#[tokio::test]
async fn a_response_timeout_does_not_kill_the_helper() {
    let lab = Lab::new();
    let wait = "touch \"$here/began\"; while [ ! -e \"$here/go\" ]; do sleep 0.01; done; touch \"$here/ended\"";
    lab.helper(&format!("{READ}{wait}; printf '{{\"Version\":3}}'"));
    let helpers = lab.helpers();
    tokio::select! {
        answer = helpers.ask(Operation::Kill, b"{}".to_vec()) => panic!("it cannot have answered: {answer:?}"),
        () = until(|| lab.path("began").exists()) => {}
    }
    assert!(!lab.is_free(), "the helper has the lease");
    assert_eq!(helpers.working(), 1);
    lab.write("go", "");
    until(|| lab.is_free() && helpers.working() == 0).await;
    assert!(lab.path("ended").exists(), "it came to its own end");
}

/// H 166. H 168. A node that is killed leaves its helper, which keeps the lease until it ends.
#[tokio::test]
async fn a_helper_outlives_its_node() {
    let lab = Lab::new();
    let wait = "touch \"$here/began\"; while [ ! -e \"$here/go\" ]; do sleep 0.01; done; touch \"$here/ended\"";
    lab.helper(&format!("{READ}{wait}"));
    let mut node = tokio::process::Command::new(std::env::current_exe().unwrap());
    node.args(["--exact", "helper::a_node_with_a_helper", "--ignored"]);
    node.env("PALISADE_TEST_ROOT", lab.path(""));
    let mut node = node.stdout(std::process::Stdio::null()).spawn().unwrap();
    until(|| lab.path("began").exists()).await;
    node.kill().await.unwrap();
    assert!(!lab.is_free(), "the orphan keeps the lease");
    lab.write("go", "");
    until(|| lab.is_free()).await;
    assert!(lab.path("ended").exists());
}

#[tokio::test]
#[ignore = "the node of a_helper_outlives_its_node, started by it as a process of its own"]
async fn a_node_with_a_helper() {
    let root = std::env::var("PALISADE_TEST_ROOT").unwrap();
    let lab = Lab::open(root.trim_end_matches('/'));
    let _ = lab.helpers().ask(Operation::Kill, b"{}".to_vec()).await;
}

/// H 167. Whatever is not one whole bounded answer and a normal end is an unknown outcome, and a command's own.
#[rstest]
#[case::silence("true")]
#[case::no_json("echo hello")]
#[case::more_than_one("printf '{\"Version\":3}{\"Version\":3}'")]
#[case::something_after("printf '{\"Version\":3} x'")]
#[case::cut_off("printf '{\"Version\":3'")]
#[case::another_version("printf '{\"Version\":2}'")]
#[case::an_unknown_member("printf '{\"Version\":3,\"Hint\":\"x\"}'")]
#[case::a_failure("printf '{\"Version\":3}'; exit 1")]
#[case::a_signal("printf '{\"Version\":3}'; kill -9 $$")]
#[case::too_much("printf '{\"Version\":3}'; head -c 16777216 /dev/zero | tr '\\0' ' '")]
#[tokio::test]
async fn whatever_is_no_whole_answer_is_unknown(#[case] says: &str) {
    let lab = Lab::new();
    lab.helper(&format!("{READ}{says}"));
    assert_eq!(ask(&lab, Operation::Kill).await, Err(Failure::Unconfirmed));
    assert_eq!(ask(&lab, Operation::Command).await, Err(Failure::CommandUnconfirmed));
    until(|| lab.is_free()).await;
}

/// H 167. What goes to standard error is drained and means nothing, however much it is.
#[tokio::test]
async fn standard_error_is_drained_and_means_nothing() {
    let lab = Lab::new();
    lab.helper(&format!("{READ}head -c 3000000 /dev/zero >&2; printf '{{\"Version\":3}}'; echo x >&2"));
    assert_eq!(ask(&lab, Operation::Kill).await, Ok(()));
}

/// H 167. A child that a helper left could still say more, so what the helper said is not whole.
#[tokio::test]
async fn an_output_that_somebody_else_has_open_is_not_whole() {
    let lab = Lab::new();
    lab.helper(&format!("{READ}sleep 20 & echo $! > \"$here/child\"; printf '{{\"Version\":3}}'"));
    assert_eq!(ask(&lab, Operation::Kill).await, Err(Failure::Unconfirmed));
    let child = lab.read("child");
    std::process::Command::new("/bin/kill").arg(child.trim()).status().unwrap();
}

/// The request arrives whole, and a helper that does not read it is no reason to wait.
#[tokio::test]
async fn a_request_is_given_whole() {
    let lab = Lab::new();
    lab.helper(&format!("{READ}printf '{{\"Version\":3}}'"));
    let request = vec![b'x'; 3_000_000];
    lab.helpers().ask(Operation::Kill, request.clone()).await.unwrap();
    assert!(std::fs::read(lab.path("request")).unwrap() == request);
    lab.helper("printf '{\"Version\":3}'");
    lab.helpers().ask(Operation::Kill, request).await.unwrap();
}

/// H 174. No credential, proxy or override of the node's environment reaches a helper; what it needs does.
#[tokio::test]
async fn a_helper_has_a_listed_environment() {
    let lab = Lab::new();
    lab.helper(&format!("{READ}tr '\\0' '\\n' < /proc/$$/environ > \"$here/environment\"; printf '{{\"Version\":3}}'"));
    let has = [
        ("HOME", "/var/lib/oac-node"),
        ("PATH", "/usr/bin:/bin"),
        ("TMPDIR", "/tmp"),
        ("LANG", "C"),
        ("SSL_CERT_FILE", "/etc/certs.pem"),
        ("HTTPS_PROXY", "http://user:secret@proxy"),
        ("https_proxy", "http://user:secret@proxy"),
        ("MSB_BACKEND", "cloud"),
        ("MSB_API_KEY", "secret"),
        ("MSB_HOME", "/elsewhere"),
        ("RUST_LOG", "trace"),
        ("OAC_NODE_GENERATION_LEASE_FD", "7"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("LD_PRELOAD", "/elsewhere.so"),
    ];
    lab.helpers_with(&has).ask(Operation::Kill, b"{}".to_vec()).await.unwrap();
    let mut found: Vec<_> = lab.read("environment").lines().map(str::to_owned).collect();
    found.sort();
    let mut expected: Vec<_> = has[..5].iter().map(|(name, value)| format!("{name}={value}")).collect();
    expected.extend([
        format!("MSB_HOME={}", text(&lab.store())),
        format!("MSB_PATH={}", text(&lab.path("msb"))),
        format!("MSB_LIBKRUNFW_PATH={}", text(&lab.path("firmware"))),
        "MSB_BACKEND=local".to_owned(),
        "RUST_LOG=off".to_owned(),
        "NO_COLOR=1".to_owned(),
        "OAC_NODE_GENERATION_LEASE_FD=3".to_owned(),
    ]);
    expected.sort();
    assert_eq!(found, expected);
}

/// H 169. H 172. Without the lease no helper is started, and nothing is known of the operation.
#[tokio::test]
async fn no_helper_starts_without_the_lease() {
    let lab = Lab::new();
    lab.helper("touch \"$here/began\"");
    let collector = std::fs::File::open(lab.path("lease")).unwrap();
    collector.try_lock().unwrap();
    assert_eq!(ask(&lab, Operation::Kill).await, Err(Failure::Unconfirmed));
    assert_eq!(ask(&lab, Operation::Command).await, Err(Failure::CommandUnconfirmed));
    assert!(!lab.path("began").exists());
    drop(collector);
    lab.remove("helper");
    assert_eq!(ask(&lab, Operation::Kill).await, Err(Failure::Unconfirmed), "and none without its program");
    until(|| lab.is_free()).await;
}

/// The helper finds the very lease that was locked under descriptor 3.
#[tokio::test]
async fn a_helper_has_the_lease_as_descriptor_3() {
    let lab = Lab::new();
    lab.helper(&format!(
        "{READ}readlink /proc/$$/fd/$OAC_NODE_GENERATION_LEASE_FD > \"$here/found\"; printf '{{\"Version\":3}}'"
    ));
    ask(&lab, Operation::Kill).await.unwrap();
    assert_eq!(lab.read("found").trim(), text(&lab.path("lease")));
}
