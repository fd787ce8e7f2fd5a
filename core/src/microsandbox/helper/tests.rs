use super::super::native::{Decision, Network};
use super::*;
use crate::wire::payload::Secret;

const ALL: [Operation; 10] = [
    Operation::Create,
    Operation::Inspect,
    Operation::InitialInfo,
    Operation::Metrics,
    Operation::Kill,
    Operation::Command,
    Operation::ResumeCompute,
    Operation::Suspend,
    Operation::Resume,
    Operation::DeleteSnapshot,
];

const STATE: &str = r#""State":{"Compute":{"Generation":0,"Name":"oac-1-g0","ID":"i","RestoredFrom":null},"Status":"running","BootstrapComplete":true,"Snapshot":null,"SourceStopped":false}"#;
const COMMAND: &str = r#""Command":{"Stdout":"out","Stderr":"","ExitCode":3}"#;
const METRICS: &str =
    r#""Metrics":{"ObservedAtMS":5,"UptimeMS":4,"CPUNanoseconds":3,"MemoryBytes":2,"MemoryLimitBytes":1}"#;

/// The result that an operation has, as text.
const fn result(operation: Operation) -> &'static str {
    match operation {
        Operation::Create
        | Operation::Inspect
        | Operation::InitialInfo
        | Operation::ResumeCompute
        | Operation::Suspend
        | Operation::Resume => STATE,
        Operation::Metrics => METRICS,
        Operation::Command => COMMAND,
        Operation::Kill | Operation::DeleteSnapshot => "\"CreateSettled\":false",
    }
}

fn told(operation: Operation, text: &str) -> Result<Response<'_>, Failure> {
    judge(operation, Ended::Normally, text.as_bytes())
}

/// H 167. H 203. Only one whole answer of this version, with exactly the result of the operation, is an answer; anything
/// else is the operation's unknown outcome.
#[test]
fn whatever_is_not_a_whole_answer_is_unknown() {
    for operation in ALL {
        let unknown = Err(operation.unknown());
        let good = format!("{{\"Version\":3,{}}}", result(operation));
        assert_eq!(told(operation, &good).unwrap().failure, None, "{good}");
        assert_eq!(told(operation, &format!("{good}\n")).unwrap().failure, None);
        assert_eq!(judge(operation, Ended::Otherwise, good.as_bytes()), unknown);
        let mut bad = vec![
            String::new(),
            good[..good.len() - 1].to_owned(),
            format!("{good}{good}"),
            format!("{good}x"),
            format!("[{good}]"),
            good.replace("3,", "2,"),
            good.replace("\"Version\":3,", ""),
            good.replace("\"Version\":3,", "\"Version\":3,\"Version\":3,"),
            good.replace("Version", "version"),
            good.replace("\"Version\":3,", "\"Version\":3,\"Other\":1,"),
            good.replace("\"Version\":3,", "\"Version\":3,\"ErrorCode\":null,"),
            good.replace("\"Version\":3,", "\"Version\":\"3\","),
        ];
        // Whatever belongs to another operation.
        bad.extend(
            [STATE, COMMAND, METRICS]
                .map(|other| format!("{{\"Version\":3,{other}}}"))
                .into_iter()
                .filter(|text| *text != good),
        );
        if !matches!(operation, Operation::Kill | Operation::DeleteSnapshot) {
            bad.push("{\"Version\":3}".to_owned());
        }
        for text in bad {
            assert_eq!(told(operation, &text), unknown, "{operation:?} {text}");
        }
        assert_eq!(judge(operation, Ended::Normally, &[0xff; 8]), unknown);
    }
}

/// H 167. 16 MiB are an answer, one byte more is an unknown outcome.
#[test]
fn an_answer_has_its_bound() {
    let mut text = "{\"Version\":3}".to_owned().into_bytes();
    text.resize(HELPER_RESPONSE_MAX_BYTES, b' ');
    assert!(judge(Operation::Kill, Ended::Normally, &text).is_ok());
    text.push(b' ');
    assert_eq!(judge(Operation::Kill, Ended::Normally, &text), Err(Failure::Unconfirmed));
}

/// H 203. A stream above 1 MiB is no settled command.
#[test]
fn a_command_result_has_its_bound() {
    let with = |length: usize| {
        format!(r#"{{"Version":3,"Command":{{"Stdout":"{}","Stderr":"","ExitCode":0}}}}"#, "x".repeat(length))
    };
    assert!(told(Operation::Command, &with(STREAM_MAX_BYTES)).is_ok());
    assert_eq!(told(Operation::Command, &with(STREAM_MAX_BYTES + 1)), Err(Failure::CommandUnconfirmed));
}

#[test]
fn codes_have_their_meaning_and_unknown_ones_none() {
    let coded = |operation, code: &str| {
        told(operation, &format!("{{\"Version\":3,\"ErrorCode\":\"{code}\"}}")).map(|response| response.failure)
    };
    let known = [
        ("invalid", Failure::Invalid),
        ("ownership", Failure::Ownership),
        ("exists", Failure::Exists),
        ("not_found", Failure::NotFound),
    ];
    for operation in ALL {
        for (code, failure) in &known {
            assert_eq!(coded(operation, code), Ok(Some(failure.clone())), "{operation:?}");
        }
        for code in ["", "unconfirmed", "command_unconfirmed", "Invalid", "busy"] {
            assert_eq!(coded(operation, code), Ok(Some(operation.unknown())), "{operation:?} {code}");
        }
        let expected =
            if operation == Operation::Metrics { Failure::ObservationUnavailable } else { operation.unknown() };
        assert_eq!(coded(operation, "metrics_unavailable"), Ok(Some(expected)));
    }
}

/// A failure may carry a state, and nothing else.
#[test]
fn evidence_beside_a_failure_is_a_state() {
    let beside = |part: &str| format!("{{\"Version\":3,\"ErrorCode\":\"invalid\",\"CreateSettled\":true,{part}}}");
    let text = beside(STATE);
    let response = told(Operation::Create, &text).unwrap();
    assert_eq!(response.failure, Some(Failure::Invalid));
    assert!(response.create_settled && response.state.unwrap().bootstrap_complete);
    for part in [COMMAND, METRICS] {
        assert_eq!(told(Operation::Create, &beside(part)), Err(Failure::Unconfirmed));
        assert_eq!(told(Operation::Command, &beside(part)), Err(Failure::CommandUnconfirmed));
    }
}

fn compute() -> Compute<'static> {
    Compute { generation: 1, name: "oac-1-g1".into(), id: "".into(), restored_from: None }
}

fn snapshot() -> Snapshot<'static> {
    Snapshot {
        reference: "oac-1-g0:s-1".into(),
        id: "2".into(),
        digest: "3".into(),
        checkpoint_id: "4".into(),
        checkpoint_root: "5".into(),
        operation_id: "6".into(),
        source_generation: 0,
        source_name: "oac-1-g0".into(),
        source_id: "7".into(),
    }
}

fn reference() -> RawReference<'static> {
    RawReference { tenant_id: "t".into(), environment_id: "e".into(), allocation_id: "a".into() }
}

/// One request for each operation.
fn works() -> Vec<Work<'static>> {
    let command = Command { args: vec!["true".into()], directory: "".into(), stdin: Some(b"in".as_slice().into()) };
    let bootstrap = Bootstrap {
        tenant_id: "t".into(),
        environment_id: "e".into(),
        allocation_id: "a".into(),
        session_id: "s".into(),
        device_id: "d".into(),
        core_url: "https://core.example".into(),
        credential: Secret("c".into()),
        network_access: "public".into(),
        allowed_domains: None,
        workspace: None,
    };
    let suspend = Suspend {
        reference: reference(),
        operation_id: "o".into(),
        source: compute(),
        snapshot: None,
        observe_only: true,
    };
    let resume = Resume {
        workspace: None,
        reference: reference(),
        operation_id: "o".into(),
        snapshot: snapshot(),
        target: compute(),
        observe_only: false,
    };
    let workspace = Workspace { path: "/w".into(), object_id: "o".into() };
    vec![
        Work::Create(Box::new(bootstrap.clone()), None),
        Work::Create(Box::new(bootstrap), Some(workspace.clone())),
        Work::Inspect(compute()),
        Work::InitialInfo(compute()),
        Work::Metrics(compute()),
        Work::Kill(compute()),
        Work::Command(compute(), command),
        Work::ResumeCompute(compute()),
        Work::Suspend(Box::new(suspend)),
        Work::Resume(Box::new(resume.clone()), None),
        Work::Resume(Box::new(resume), Some(workspace)),
        Work::DeleteSnapshot(snapshot()),
    ]
}

fn request(work: Work<'static>) -> Request<'static> {
    let digest = Digest::of(b"a program");
    let text = r#"{"default_egress":"deny","default_ingress":"deny","rules":[]}"#;
    let config = Config {
        installation: Id::from_random([1; 16]),
        helper_path: "/h".into(),
        runtime_path: "/m".into(),
        firmware_path: "/f".into(),
        runtime_home: "/s".into(),
        runtime_sha256: digest,
        firmware_sha256: digest,
        image: format!("oac-runtime@sha256:{digest}"),
        cpus: 2,
        memory_mib: 512,
        root_disk_mib: 1024,
        environment_disk_mib: 1024,
        network: strict::object(text.as_bytes()).unwrap(),
    };
    Request { config, reference: reference(), deadline_ms: 7, work }
}

/// A request reads back as it was; an argument too many, one too few, another version or anything after it does not.
#[test]
fn a_request_is_read_back_exactly() {
    for work in works() {
        let request = request(work);
        let bytes = request.to_bytes().unwrap();
        assert_eq!(Request::parse(&bytes).as_ref(), Some(&request));
        let text = String::from_utf8(bytes).unwrap();
        let operation = serde_json::to_string(&request.work.operation()).unwrap();
        let other = if request.work.operation() == Operation::Command { "\"kill\"" } else { "\"command\"" };
        for wrong in [
            format!("{text}{text}"),
            format!("[{text}]"),
            text.replace("\"Version\":3", "\"Version\":4"),
            text.replacen('{', "{\"Other\":1,", 1),
            text.replace(&format!("\"Operation\":{operation}"), &format!("\"Operation\":{other}")),
            text.replace("\"Reference\":", "\"Snapshot\":null,\"Reference\":"),
        ] {
            assert_eq!(Request::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}

/// A request of 72 MiB is sent, a longer one is not.
#[test]
fn a_request_has_its_bound() {
    let sized = |length: usize| {
        let command = Command { args: vec!["x".repeat(length).into()], directory: "".into(), stdin: None };
        request(Work::Command(compute(), command)).to_bytes()
    };
    let rest = sized(0).unwrap().len();
    assert_eq!(sized(HELPER_REQUEST_MAX_BYTES - rest).map(|bytes| bytes.len()), Ok(HELPER_REQUEST_MAX_BYTES));
    assert_eq!(sized(HELPER_REQUEST_MAX_BYTES - rest + 1), Err(TooLong));
}

/// H 174. Nothing of the node's environment passes that is not on the list.
#[test]
fn the_environment_is_a_list_of_names() {
    for name in ["HTTPS_PROXY", "MSB_API_KEY", "MSB_BACKEND", "RUST_LOG", "LD_PRELOAD", "OAC_PUBLIC_URL"] {
        assert!(!INHERITED.contains(&name), "{name}");
    }
    assert_eq!(INHERITED, ["HOME", "PATH", "TMPDIR", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR"]);
}

#[test]
fn owned_answers_outlive_their_bytes() {
    let text = format!("{{\"Version\":3,{STATE}}}");
    let owned = told(Operation::Inspect, &text).unwrap().into_owned();
    drop(text);
    assert_eq!(owned.state.unwrap().status, "running");
}

/// A helper is told its own store and programs, stays on its host, and says nothing but its answer.
#[test]
fn a_helper_works_with_the_store_and_programs_of_its_configuration() {
    let native = Native {
        firmware_path: "/firmware".into(),
        helper_path: "/helper".into(),
        network: Network { default_egress: Decision::Deny, default_ingress: Decision::Deny, rules: vec![] },
        runtime_home: "/store".into(),
        runtime_path: "/msb".into(),
    };
    let told = environment(&native).map(|(name, value)| format!("{name}={value}"));
    let paths = ["MSB_HOME=/store", "MSB_PATH=/msb", "MSB_LIBKRUNFW_PATH=/firmware"];
    assert_eq!(told[..3], paths);
    assert_eq!(told[3..], ["MSB_BACKEND=local", "RUST_LOG=off", "NO_COLOR=1"]);
}
