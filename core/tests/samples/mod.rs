//! One valid text of every frame, request and response.

#![allow(dead_code, reason = "each test file uses its own part")]

use palisade_core::wire::{Frame, Reason, decode};

pub(crate) const REFERENCE: &str = r#"{"TenantID":"21f2d3c4-b5a6-4798-8899-aabbccddeeff","EnvironmentID":"31f2d3c4-b5a6-4798-8899-aabbccddeeff","AllocationID":"41f2d3c4-b5a6-4798-8899-aabbccddeeff"}"#;

pub(crate) const SNAPSHOT: &str = r#"{"Reference":"oac-0123-g0:s-71f2d3c4","ID":"snap-9","Digest":"sha256-of-archive","CheckpointID":"cp-9","CheckpointRoot":"root-9","OperationID":"71f2d3c4-b5a6-4798-8899-aabbccddeeff","SourceGeneration":0,"SourceName":"oac-0123-g0","SourceID":"local:16"}"#;

pub(crate) const COMPUTE: &str = r#"{"Generation":0,"Name":"oac-0123-g0","ID":"local:16","RestoredFrom":null}"#;

pub(crate) const HELLO: &str = r#"{"version":6,"type":"hello","identity":{"specification_digest":"9ad09c54f0a5b1143c191fc5dec37ed385c4917080c45ef79e1b6a98925a704a","deployment_generation":3,"node_id":"6f1c2b1e-5f0a-4a55-9d0e-0a1b2c3d4e5f","installation_id":"0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f","provider":"microsandbox","backend_fingerprint":"1111111111111111111111111111111111111111111111111111111111111111","max_active":2,"max_retained":8},"health":{"observed_at":"2026-10-01T08:00:00.123456Z","active_operations":0,"cpu_count":8,"cpu_utilization":null,"total_memory_bytes":33554432000,"effective_cpu_cores":8,"available_memory_bytes":21474836480,"available_disk_bytes":107374182400,"generations":[{"generation":3,"specification_digest":"9ad09c54f0a5b1143c191fc5dec37ed385c4917080c45ef79e1b6a98925a704a","state":"preparing"}]}}"#;

pub(crate) const WELCOME: &str = r#"{"version":6,"type":"welcome","connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e","owner_epoch":12,"deployment":{"generation":4,"specification_digest":"392b14a9cab7593ba1f7749134bd5b6d25344e4181f07ee9b8d0918a1649844f","serving_generation":3}}"#;

pub(crate) const HEARTBEAT: &str = r#"{"version":6,"type":"heartbeat","connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e","owner_epoch":12,"health":{"observed_at":"2026-10-01T08:00:10Z","active_operations":1,"cpu_count":8,"cpu_utilization":0.25,"total_memory_bytes":33554432000,"effective_cpu_cores":1.5,"generations":[{"generation":4,"specification_digest":"392b14a9cab7593ba1f7749134bd5b6d25344e4181f07ee9b8d0918a1649844f","state":"failed","diagnostic":"runtime_download_failed"},{"generation":3,"specification_digest":"9ad09c54f0a5b1143c191fc5dec37ed385c4917080c45ef79e1b6a98925a704a","state":"ready","checkpoint":{"artifact_domain":"archive-a","execution_class":"x86-v3"}}]}}"#;

/// W 17's base frame: every optional measurement is unknown.
pub(crate) const QUIET_HEARTBEAT: &str = r#"{"version":6,"type":"heartbeat","connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e","owner_epoch":12,"health":{"observed_at":"2026-10-01T08:00:10Z","active_operations":0,"cpu_utilization":null,"total_memory_bytes":null,"effective_cpu_cores":null}}"#;

pub(crate) const HEARTBEAT_ACK: &str = r#"{"version":6,"type":"heartbeat_ack","connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e","owner_epoch":12,"deployment":{"generation":4,"specification_digest":"392b14a9cab7593ba1f7749134bd5b6d25344e4181f07ee9b8d0918a1649844f","serving_generation":null}}"#;

pub(crate) const RETENTION: &str = r#"{"version":6,"type":"retention","control":{"id":"7c2e1d0f-9b8a-4766-8554-3a2b1c0d9e8f","sequence":1,"connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e","owner_epoch":12,"references":[{"generation":1,"specification_digest":"bfedd8252478cfeb7e927ccd9aab6e812e0a35405046db3cf023fe62a869de04"}]}}"#;

pub(crate) const RETENTION_ACK: &str = r#"{"version":6,"type":"retention_ack","deployment":{"generation":4,"specification_digest":"392b14a9cab7593ba1f7749134bd5b6d25344e4181f07ee9b8d0918a1649844f","serving_generation":null},"control":{"id":"7c2e1d0f-9b8a-4766-8554-3a2b1c0d9e8f","sequence":1,"connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e","owner_epoch":12,"retentions":[{"generation":1,"specification_digest":"bfedd8252478cfeb7e927ccd9aab6e812e0a35405046db3cf023fe62a869de04","keep":true}]}}"#;

pub(crate) const WORKSPACE: &str = r#"{"Configuration":{"ID":"91f2d3c4-b5a6-4798-8899-aabbccddeeff","Adapter":"nfs","Parameters":{}},"Attachment":{"Reference":{"TenantID":"21f2d3c4-b5a6-4798-8899-aabbccddeeff","EnvironmentID":"31f2d3c4-b5a6-4798-8899-aabbccddeeff","ObjectID":"a1f2d3c4-b5a6-4798-8899-aabbccddeeff"},"ConfigurationID":"91f2d3c4-b5a6-4798-8899-aabbccddeeff","Kind":"host_directory","Native":{}}}"#;

pub(crate) const OBSERVATION: &str = r#"{"TenantID":"21f2d3c4-b5a6-4798-8899-aabbccddeeff","SessionID":"51f2d3c4-b5a6-4798-8899-aabbccddeeff","EnvironmentID":"31f2d3c4-b5a6-4798-8899-aabbccddeeff","Mode":"openai_hosted","Instance":{"AllocationID":"41f2d3c4-b5a6-4798-8899-aabbccddeeff","ProviderKey":"0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f","ConnectionGeneration":"","AllocationState":"running","AllocationCreatedAt":"0001-01-01T00:00:00Z","ComputePhase":"running","ProviderState":{"current":{"id":"local:16","generation":0}}},"TokenUsage":null}"#;

pub(crate) const SAMPLE: &str = r#"{"ObservedAt":"2026-10-01T08:00:09Z","StartedAt":"2026-10-01T07:00:02Z","CPUUsageSecondsTotal":12.5,"CPUCapacityCores":2,"CPUUtilizationRatio":0.5,"MemoryUsageBytes":0,"MemoryLimitBytes":2147483648,"DiskUsageBytes":5,"DiskLimitBytes":6}"#;

pub(crate) const INFO: &str = r#"{"TenantID":"21f2d3c4-b5a6-4798-8899-aabbccddeeff","EnvironmentID":"31f2d3c4-b5a6-4798-8899-aabbccddeeff","AllocationID":"41f2d3c4-b5a6-4798-8899-aabbccddeeff","ProviderID":"native-17","State":"running","BootstrapComplete":true,"CreateSettled":false}"#;

/// A request with this operation and these further members.
pub(crate) fn request(operation: &str, arguments: &str) -> String {
    let comma = if arguments.is_empty() { "" } else { "," };
    format!(
        r#"{{"version":6,"type":"request","request":{{"deployment_generation":3,"id":"11f2d3c4-b5a6-4798-8899-aabbccddeeff","sequence":1,"connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e","owner_epoch":12,"operation":"{operation}","timeout_ms":30000,"reference":{REFERENCE}{comma}{arguments}}}}}"#
    )
}

/// A response with these further members.
pub(crate) fn response(members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(
        r#"{{"version":6,"type":"response","response":{{"id":"11f2d3c4-b5a6-4798-8899-aabbccddeeff","connection_id":"3d1f8a64-2f7b-4c1f-b0d5-9e7a6b5c4d3e"{comma}{members}}}}}"#
    )
}

pub(crate) fn bootstrap() -> String {
    let reference = REFERENCE.trim_end_matches('}');
    format!(
        r#"{reference},"SessionID":"51f2d3c4-b5a6-4798-8899-aabbccddeeff","DeviceID":"61f2d3c4-b5a6-4798-8899-aabbccddeeff","CoreURL":"https://core.example/api/v1","Credential":"synthetic-daemon-secret","NetworkAccess":"restricted","AllowedDomains":["pypi.example"],"Workspace":{WORKSPACE}}}"#
    )
}

pub(crate) fn suspend() -> String {
    format!(
        r#"{{"Reference":{REFERENCE},"OperationID":"71f2d3c4-b5a6-4798-8899-aabbccddeeff","Source":{COMPUTE},"Snapshot":{SNAPSHOT},"ObserveOnly":false}}"#
    )
}

pub(crate) fn target() -> String {
    format!(r#"{{"Generation":1,"Name":"oac-0123-g1","ID":"","RestoredFrom":{SNAPSHOT}}}"#)
}

pub(crate) fn resume() -> String {
    let target = target();
    format!(
        r#"{{"Workspace":{WORKSPACE},"Reference":{REFERENCE},"OperationID":"81f2d3c4-b5a6-4798-8899-aabbccddeeff","Snapshot":{SNAPSHOT},"Target":{target},"ObserveOnly":false}}"#
    )
}

pub(crate) fn state() -> String {
    format!(
        r#"{{"Compute":{COMPUTE},"Status":"running","BootstrapComplete":true,"Snapshot":{SNAPSHOT},"SourceStopped":false}}"#
    )
}

pub(crate) const COMMAND: &str = r#"{"Args":["/usr/bin/env","true"],"Directory":"/environment","Stdin":"aGVsbG8K"}"#;

/// Every operation with its arguments.
pub(crate) fn operations() -> Vec<(&'static str, String)> {
    let compute = format!(r#""compute":{COMPUTE}"#);
    vec![
        ("create", format!(r#""bootstrap":{}"#, bootstrap())),
        ("info", String::new()),
        ("renew", String::new()),
        ("kill", String::new()),
        ("command", format!(r#""command":{COMMAND}"#)),
        ("observe", format!(r#""observation":{OBSERVATION}"#)),
        ("initial", String::new()),
        ("new_compute", format!(r#""generation":1,"snapshot":{SNAPSHOT}"#)),
        ("compute", compute.clone()),
        ("kill_compute", compute.clone()),
        ("resume_compute", compute.clone()),
        ("command_compute", format!(r#"{compute},"command":{COMMAND}"#)),
        ("suspend", format!(r#""suspend":{}"#, suspend())),
        ("resume", format!(r#""resume":{}"#, resume())),
        ("delete_snapshot", format!(r#""snapshot":{SNAPSHOT}"#)),
        ("restore_preparation", r#""key":"venv""#.to_owned()),
        ("save_preparation", r#""key":"venv""#.to_owned()),
    ]
}

/// Every valid frame there is.
pub(crate) fn all() -> Vec<String> {
    let control = [HELLO, WELCOME, HEARTBEAT, QUIET_HEARTBEAT, HEARTBEAT_ACK, RETENTION, RETENTION_ACK];
    let requests = operations().into_iter().map(|(operation, arguments)| request(operation, &arguments));
    let responses = [
        format!(r#""info":{INFO}"#),
        format!(r#""compute":{COMPUTE}"#),
        format!(r#""state":{}"#, state()),
        r#""command":{"Stdout":"ok\n","Stderr":"","ExitCode":-3}"#.to_owned(),
        format!(r#""sample":{SAMPLE}"#),
        r#""restored":false"#.to_owned(),
        String::new(),
        r#""error_code":"unsupported","unsupported":{"operation":"Suspend","reason":"checkpoint_not_supported"}"#
            .to_owned(),
    ];
    let responses = responses.iter().map(|members| response(members));
    control.map(str::to_owned).into_iter().chain(requests).chain(responses).collect()
}

/// `frame` with the one place that reads `from` changed to `to`.
pub(crate) fn edited(frame: &str, from: &str, to: &str) -> String {
    assert_eq!(frame.matches(from).count(), 1, "{from} stands once in {frame}");
    frame.replacen(from, to, 1)
}

/// Refuses with this reason.
#[track_caller]
pub(crate) fn closes(frame: &str, reason: Reason) {
    match decode(frame.as_bytes()) {
        Err(violation) => assert_eq!(violation.reason, reason, "{violation}: {frame}"),
        Ok(_) => panic!("decodes: {frame}"),
    }
}

/// Decodes.
#[track_caller]
pub(crate) fn decodes(frame: &str) -> Frame<'_> {
    decode(frame.as_bytes()).unwrap_or_else(|violation| panic!("{violation}: {frame}"))
}
