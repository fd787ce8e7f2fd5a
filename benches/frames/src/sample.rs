//! One text of each frame under measurement.

use std::fmt::Write as _;

/// The connection of every sample.
pub const CONNECTION: &str = "3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e";
/// The owner epoch of every sample.
pub const OWNER_EPOCH: u64 = 12;
/// The identifier of the request and of its answer.
pub const REQUEST_ID: &str = "11f2d3c4-b5a6-4798-8899-aabbccddeeff";
/// The digest of every generation.
pub const DIGEST: &str = "9ad09c54f0a5b1143c191fc5dec37ed385c4917080c45ef79e1b6a98925a704a";

const CALL: &str =
    r#""id":"11f2d3c4-b5a6-4798-8899-aabbccddeeff","connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e""#;
const REFERENCE: &str = r#"{"TenantID":"21f2d3c4-b5a6-4798-8899-aabbccddeeff","EnvironmentID":"31f2d3c4-b5a6-4798-8899-aabbccddeeff","AllocationID":"41f2d3c4-b5a6-4798-8899-aabbccddeeff"}"#;

/// A heartbeat with eight observations.
#[must_use]
pub fn heartbeat() -> String {
    let mut generations = String::new();
    for generation in 1..=8 {
        let comma = if generation == 1 { "" } else { "," };
        let _ = write!(
            generations,
            r#"{comma}{{"generation":{generation},"specification_digest":"{DIGEST}","state":"failed","diagnostic":"docker_unavailable"}}"#
        );
    }
    format!(
        r#"{{"version":6,"type":"heartbeat","connection_id":"{CONNECTION}","owner_epoch":{OWNER_EPOCH},"health":{{"observed_at":"2026-10-01T08:00:10.123456Z","active_operations":1,"cpu_utilization":0.25,"total_memory_bytes":33554432000,"effective_cpu_cores":1.5,"cpu_count":8,"available_memory_bytes":21474836480,"available_disk_bytes":107374182400,"generations":[{generations}]}}}}"#
    )
}

fn request(operation: &str, command: &str) -> String {
    format!(
        r#"{{"version":6,"type":"request","request":{{"deployment_generation":3,"sequence":1,"owner_epoch":12,{CALL},"operation":"{operation}","timeout_ms":30000,"reference":{REFERENCE}{command}}}}}"#
    )
}

/// An `info` request.
#[must_use]
pub fn small_request() -> String {
    request("info", "")
}

/// The answer to it.
#[must_use]
pub fn small_response() -> String {
    let reference = REFERENCE.trim_end_matches('}');
    format!(
        r#"{{"version":6,"type":"response","response":{{{CALL},"info":{reference},"ProviderID":"native-17","State":"running","BootstrapComplete":true,"CreateSettled":false}}}}}}"#
    )
}

/// `length` characters of base64, a multiple of eight.
#[must_use]
pub fn base64(length: usize) -> String {
    "aGVsbG8K".repeat(length / 8)
}

/// A `command` request whose standard input takes `length` characters of base64, a multiple of eight.
#[must_use]
pub fn command_request(length: usize) -> String {
    let stdin = base64(length);
    request("command", &format!(r#","command":{{"Args":["sha256sum"],"Directory":"/environment","Stdin":"{stdin}"}}"#))
}

/// A `command` response whose two streams have `length` bytes together.
#[must_use]
pub fn command_response(length: usize) -> String {
    let stream = "0123456789abcdef".repeat(length / 32);
    format!(
        r#"{{"version":6,"type":"response","response":{{{CALL},"command":{{"Stdout":"{stream}","Stderr":"{stream}","ExitCode":0}}}}}}"#
    )
}
