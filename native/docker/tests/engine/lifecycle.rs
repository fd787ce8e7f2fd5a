//! Sandboxes in a real Docker engine, from creation to removal.

use std::time::Instant;

use crate::lab::{AMPLE, Lab, command};
use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::{RemoveContainerOptionsBuilder, RestartContainerOptions, StopContainerOptions};
use palisade_core::operation::{Method, MethodGroup, Operation, Support};
use palisade_core::outcome::{Answer, Failure};
use palisade_core::units::Id;
use palisade_core::wire::payload::{Bootstrap, Diagnostic, Instance, ObservationTarget, Reference};
use palisade_docker::Resources;
use palisade_provider::testing::contract::check_observation;
use palisade_provider::testing::{CREDENTIAL, bootstrap, context, reference, workspace};
use palisade_provider::{Provider, absent_receipt, dispatch};

fn create(reference: Reference) -> Operation<'static> {
    Operation::Create(Box::new(bootstrap(reference)))
}

/// H 183. The whole life of one sandbox: options, files, duplicate, foreign reference, restart, loss and removal.
#[tokio::test]
async fn sandbox_lives_as_specified() {
    let lab = Lab::new().await;
    let (sandbox, info) = lab.create(1).await;
    assert!(info.bootstrap_complete && !info.create_settled);
    assert_eq!(info.state, "running");
    options_are_as_specified(&lab, &info).await;
    files_are_as_specified(&lab, sandbox).await;

    let duplicate = lab.call(sandbox, create(sandbox)).await.unwrap_err();
    assert_eq!(duplicate.failure, Failure::Exists);
    let restarted = dispatch(&lab.provider_with(SMALL), context(sandbox, AMPLE), create(sandbox)).await.unwrap_err();
    assert_eq!(restarted.failure, Failure::Exists);
    assert_eq!(restarted.info.expect("the original").provider_id, info.provider_id);

    let stranger = Reference { tenant: reference(2).tenant, ..sandbox };
    assert_eq!(lab.call(stranger, Operation::GetInfo).await.unwrap_err().failure, Failure::NotFound);

    lab.run(sandbox, &["sh", "-c", "echo kept > /workspace/file"]).await.unwrap();
    lab.docker
        .restart_container(&info.provider_id, Some(RestartContainerOptions { t: Some(0), ..Default::default() }))
        .await
        .unwrap();
    let kept = lab.run(sandbox, &["cat", "/environment/workspace/file"]).await.unwrap();
    assert_eq!(kept.stdout, "kept\n");

    let force = RemoveContainerOptionsBuilder::default().force(true).build();
    lab.docker.remove_container(&info.provider_id, Some(force)).await.unwrap();
    let again = dispatch(&lab.provider_with(SMALL), context(sandbox, AMPLE), create(sandbox)).await.unwrap_err();
    assert_eq!(again.failure, Failure::Exists, "retained volumes without a container are lost state");
    assert_eq!(lab.call(sandbox, Operation::GetInfo).await.unwrap_err().failure, Failure::NotFound);

    assert_eq!(lab.call(sandbox, Operation::Kill).await.unwrap(), Answer::Done);
    assert_eq!(lab.leftovers().await, Vec::<String>::new());
    assert_eq!(lab.call(sandbox, Operation::Kill).await.unwrap(), Answer::Done, "absence is success");
    assert_eq!(lab.call(sandbox, Operation::GetInfo).await.unwrap(), Answer::Info(absent_receipt(sandbox)));
}

const SMALL: Option<Resources> = Some(Resources { cpus: 1, memory_mib: 512 });

async fn options_are_as_specified(lab: &Lab, info: &palisade_core::wire::payload::Info<'_>) {
    let container = lab.inspect(info).await;
    let shown = serde_json::to_string(&container).unwrap();
    assert!(!shown.contains(CREDENTIAL), "inspection shows the credential");
    let config = container.config.unwrap();
    let host = container.host_config.unwrap();
    assert_eq!(config.user.as_deref(), Some("1000:1000"));
    assert_eq!(config.working_dir.as_deref(), Some("/environment/workspace"));
    let entry = ["/usr/local/bin/oac-sandbox-io", "--bootstrap-file", "/home/runtime/sandbox-io-bootstrap.json"];
    assert_eq!(config.entrypoint.unwrap_or_default(), entry);
    assert_eq!(config.cmd.unwrap_or_default(), Vec::<String>::new());
    assert_eq!((host.readonly_rootfs, host.privileged), (Some(true), Some(false)));
    assert_eq!(host.cap_drop.unwrap_or_default(), ["ALL"]);
    let security = host.security_opt.unwrap_or_default();
    assert_eq!(security, ["no-new-privileges", r#"seccomp={"defaultAction":"SCMP_ACT_ALLOW"}"#]);
    assert_eq!((host.memory, host.nano_cpus, host.pids_limit), (Some(512 << 20), Some(1_000_000_000), Some(128)));
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    assert_eq!(host.binds.unwrap_or_default(), Vec::<String>::new());
    let targets: Vec<_> = host.mounts.unwrap_or_default().into_iter().filter_map(|mount| mount.target).collect();
    assert_eq!(targets, ["/home", "/environment"]);
}

async fn files_are_as_specified(lab: &Lab, sandbox: Reference) {
    let shown = lab.run(sandbox, &["sh", "-c", "stat -c '%a %u:%g %F' /home/runtime /home/runtime/sandbox-io-bootstrap.json /environment/workspace /environment/initialization /environment/packages"]).await.unwrap();
    let expected = "700 1000:1000 directory\n600 1000:1000 regular file\n700 1000:1000 directory\n700 1000:1000 directory\n700 1000:1000 directory\n";
    assert_eq!(shown.stdout, expected);
    let place = lab.run(sandbox, &["sh", "-c", "pwd; id -u; id -g; cd /workspace && pwd -P"]).await.unwrap();
    assert_eq!(place.stdout, "/environment/workspace\n1000\n1000\n/environment/workspace\n");
    let environment = lab.run(sandbox, &["env"]).await.unwrap();
    assert!(!environment.stdout.contains(CREDENTIAL));
    let root = lab.run(sandbox, &["sh", "-c", "echo x > /etc/x || exit 9"]).await.unwrap();
    assert_eq!(root.exit_code, 9, "the root file system is not writable");
}

/// H 183. A foreign volume of the sandbox's name blocks creation and removal, and is not touched.
#[tokio::test]
async fn foreign_volume_blocks_create_and_kill() {
    let lab = Lab::new().await;
    let (sandbox, info) = lab.create(1).await;
    let name = lab.inspect(&info).await.name.unwrap().trim_start_matches('/').to_owned();
    lab.call(sandbox, Operation::Kill).await.unwrap();
    let labels = [("io.oac.installation".to_owned(), lab.installation.to_string())].into();
    let foreign =
        VolumeCreateRequest { name: Some(format!("{name}-environment")), labels: Some(labels), ..Default::default() };
    lab.docker.create_volume(foreign).await.unwrap();
    let provider = lab.provider_with(SMALL);
    for operation in [create(sandbox), Operation::Kill] {
        let failed = dispatch(&provider, context(sandbox, AMPLE), operation).await.unwrap_err();
        assert_eq!((failed.failure, failed.info), (Failure::Ownership, None));
    }
    assert_eq!(lab.leftovers().await, [format!("{name}-environment")]);
}

/// W 127. A foreign container of the sandbox's name is never read from, changed or removed.
///
/// E16. A name that is taken is looked at, and refused; no other name is tried.
/// E24. A reused name with another owner refuses every operation.
#[tokio::test]
async fn foreign_container_of_our_name_is_refused_by_every_operation() {
    let lab = Lab::new().await;
    let (sandbox, info) = lab.create(1).await;
    let name = lab.inspect(&info).await.name.unwrap().trim_start_matches('/').to_owned();
    lab.call(sandbox, Operation::Kill).await.unwrap();
    let labels = [("io.oac.installation".to_owned(), lab.installation.to_string())].into();
    let body = bollard::models::ContainerCreateBody {
        image: Some(lab.image.clone()),
        cmd: Some(vec!["sleep".into(), "3600".into()]),
        labels: Some(labels),
        network_disabled: Some(true),
        ..Default::default()
    };
    let options = bollard::query_parameters::CreateContainerOptions { name: Some(name), ..Default::default() };
    let foreign = lab.docker.create_container(Some(options), body).await.unwrap().id;
    lab.docker.start_container(&foreign, None::<bollard::query_parameters::StartContainerOptions>).await.unwrap();
    let provider = lab.provider_with(SMALL);
    for operation in [
        create(sandbox),
        Operation::GetInfo,
        Operation::Renew,
        Operation::RunCommand(command(&["true"])),
        Operation::Observe(Box::new(target(&lab, sandbox))),
        Operation::Kill,
    ] {
        let method = operation.method();
        let failed = dispatch(&provider, context(sandbox, AMPLE), operation).await.unwrap_err();
        assert_eq!((failed.failure, failed.info), (Failure::Ownership, None), "{}", method.name());
    }
    assert_eq!(lab.leftovers().await, [foreign], "and nothing of ours was made beside it");
}

fn target(lab: &Lab, sandbox: Reference) -> ObservationTarget<'static> {
    ObservationTarget {
        tenant_id: sandbox.tenant.to_string().into(),
        session_id: Id::from_random([4; 16]).to_string().into(),
        environment_id: sandbox.environment.to_string().into(),
        mode: "openai_hosted".into(),
        instance: Instance {
            allocation_id: sandbox.allocation.to_string().into(),
            provider_key: lab.installation.to_string().into(),
            connection_generation: "".into(),
            allocation_state: "running".into(),
            allocation_created_at: "2026-10-01T07:00:00Z".into(),
            compute_phase: "running".into(),
            provider_state: "null".into(),
        },
        token_usage_present: false,
    }
}

/// H 185. A stopped container is observed as such, by inspect and by renew, and revived by neither.
#[tokio::test]
async fn stopped_container_is_observed_as_such() {
    let lab = Lab::new().await;
    let (sandbox, info) = lab.create(1).await;
    lab.docker
        .stop_container(&info.provider_id, Some(StopContainerOptions { t: Some(0), ..Default::default() }))
        .await
        .unwrap();
    for operation in [Operation::GetInfo, Operation::Renew] {
        let seen = check_observation(lab.call(sandbox, operation).await, sandbox, Some(&info.provider_id), "exited");
        assert!(!seen.bootstrap_complete);
    }
    assert_eq!(lab.run(sandbox, &["true"]).await, Err(Failure::NotFound));
    let failed = lab.call(sandbox, Operation::Observe(Box::new(target(&lab, sandbox)))).await.unwrap_err();
    assert_eq!(failed.failure, Failure::RuntimeNotRunning);
    lab.call(sandbox, Operation::Kill).await.unwrap();
    assert_eq!(lab.leftovers().await, Vec::<String>::new());
}

/// H 187. A drifted sandbox is not ready, and still cleanable.
#[tokio::test]
async fn drifted_sandbox_is_invalid_and_can_be_removed() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let grown = lab.provider_with(Some(Resources { cpus: 1, memory_mib: 513 }));
    for operation in [Operation::GetInfo, Operation::Renew] {
        let failed = dispatch(&grown, context(sandbox, AMPLE), operation).await.unwrap_err();
        assert_eq!((failed.failure, failed.info), (Failure::Invalid, None));
    }
    assert_eq!(dispatch(&grown, context(sandbox, AMPLE), Operation::Kill).await.unwrap(), Answer::Done);
    assert_eq!(lab.leftovers().await, Vec::<String>::new());
}

/// H 188. Without managed resources the engine limits a sandbox to 2 GiB and 2 CPUs.
#[tokio::test]
async fn default_limits_reach_the_engine() {
    let lab = Lab::new().await;
    let provider = lab.provider_with(None);
    let sandbox = reference(1);
    let Ok(Answer::Info(info)) = dispatch(&provider, context(sandbox, AMPLE), create(sandbox)).await else {
        panic!("no sandbox")
    };
    let host = lab.inspect(&info).await.host_config.unwrap();
    assert_eq!((host.memory, host.nano_cpus), (Some(2 << 30), Some(2_000_000_000)));
}

/// H 193. Ownership comes before statistics; a running sandbox is measured, a foreign provider key is refused.
#[tokio::test]
async fn observation_measures_a_running_sandbox() {
    let lab = Lab::new().await;
    let (sandbox, _) = lab.create(1).await;
    let Ok(Answer::Sample(sample)) = lab.call(sandbox, Operation::Observe(Box::new(target(&lab, sandbox)))).await
    else {
        panic!("no sample")
    };
    assert_eq!((sample.cpu_capacity_cores, sample.memory_limit_bytes), (Some(1.0), Some(512 << 20)));
    assert!(sample.cpu_usage_seconds_total.is_some_and(|seconds| seconds >= 0.0));
    assert!(sample.memory_usage_bytes.is_some());
    assert!(sample.started_at.is_some());

    let mut foreign = target(&lab, sandbox);
    foreign.instance.provider_key = Id::from_random([8; 16]).to_string().into();
    let failed = lab.call(sandbox, Operation::Observe(Box::new(foreign))).await.unwrap_err();
    assert_eq!(failed.failure, Failure::Ownership);
    let mut unmanaged = target(&lab, sandbox);
    unmanaged.mode = "none".into();
    let failed = lab.call(sandbox, Operation::Observe(Box::new(unmanaged))).await.unwrap_err();
    assert_eq!(failed.failure, Failure::Invalid);
    let missing = lab.call(reference(2), Operation::Observe(Box::new(target(&lab, reference(2))))).await.unwrap_err();
    assert_eq!(missing.failure, Failure::RuntimeNotRunning);
}

/// W 47. Checkpoints are not advertised, and every method of theirs is refused with its reason.
#[tokio::test]
async fn checkpoints_are_declared_unsupported() {
    let lab = Lab::new().await;
    for method in Method::ALL {
        let expected = match method.group() {
            MethodGroup::Lifecycle | MethodGroup::Observation => Support::Supported,
            MethodGroup::Checkpoint => Support::Unsupported { reason: "docker_does_not_support_checkpoints".into() },
            MethodGroup::Preparation => {
                Support::Unsupported { reason: "docker_does_not_support_preparation_cache".into() }
            }
        };
        assert_eq!(*lab.provider.declaration().support(method), expected);
    }
    assert_eq!(lab.provider.probe().await.unwrap(), None);
}

/// W 131-132. A workspace binding is refused with its reason and a settled absence, and nothing is created.
#[tokio::test]
async fn workspace_binding_is_refused_before_anything_native() {
    let lab = Lab::new().await;
    let sandbox = reference(1);
    let bound = Bootstrap { workspace: Some(workspace(sandbox)), ..bootstrap(sandbox) };
    let failed = lab.call(sandbox, Operation::Create(Box::new(bound))).await.unwrap_err();
    let reason = "external_workspace_unsupported".to_owned();
    assert_eq!(failed.failure, Failure::Unsupported { method: "Create".into(), reason });
    assert_eq!(failed.info, Some(absent_receipt(sandbox)));
    assert_eq!(lab.leftovers().await, Vec::<String>::new());
}

/// H 190. A missing image is found by the probe.
///
/// E30. An image that went away between the check and its use fails the creation, and nothing else.
/// E17. What a failed creation left is removed in whatever state it is, and the absence is settled afterwards.
/// H 191. Volumes without a container are not found, yet cleanable.
#[tokio::test]
async fn creation_without_its_image_leaves_nothing_after_cleanup() {
    let lab = Lab::new().await;
    lab.docker.remove_image(&lab.image, None::<bollard::query_parameters::RemoveImageOptions>, None).await.unwrap();
    let not_ready = lab.provider.probe().await.unwrap_err();
    assert_eq!(not_ready.diagnostic, Diagnostic::RuntimeImageUnavailable);
    let sandbox = reference(1);
    let failed = lab.call(sandbox, create(sandbox)).await.unwrap_err();
    assert_eq!((failed.failure, failed.info), (Failure::Unconfirmed, None));
    assert_eq!(lab.leftovers().await.len(), 2, "the provider cleans nothing up by itself");
    assert_eq!(lab.call(sandbox, Operation::GetInfo).await.unwrap_err().failure, Failure::NotFound);
    assert_eq!(lab.call(sandbox, Operation::Kill).await.unwrap(), Answer::Done);
    assert_eq!(lab.leftovers().await, Vec::<String>::new());
    assert_eq!(lab.call(sandbox, Operation::GetInfo).await.unwrap(), Answer::Info(absent_receipt(sandbox)));
}

/// E17. Cleanup removes a container that was created and never started.
#[tokio::test]
async fn container_that_never_started_is_removed() {
    let lab = Lab::new().await;
    let (sandbox, info) = lab.create(1).await;
    let inspected = lab.inspect(&info).await;
    lab.call(sandbox, Operation::Kill).await.unwrap();
    let name = inspected.name.unwrap().trim_start_matches('/').to_owned();
    let labels = inspected.config.unwrap().labels;
    let body = bollard::models::ContainerCreateBody {
        image: Some(lab.image.clone()),
        cmd: Some(vec!["true".into()]),
        labels,
        ..Default::default()
    };
    let options = bollard::query_parameters::CreateContainerOptions { name: Some(name), ..Default::default() };
    lab.docker.create_container(Some(options), body).await.unwrap();
    assert_eq!(lab.call(sandbox, Operation::Kill).await.unwrap(), Answer::Done);
    assert_eq!(lab.leftovers().await, Vec::<String>::new());
}

/// H 190. A dead engine is unavailable, whatever `DOCKER_HOST` says, and every call ends without a claim.
#[tokio::test]
async fn dead_engine_is_unavailable_and_settles_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("dead.sock");
    let profile = crate::lab::profile_in(directory.path());
    let image = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let socket = socket.to_str().unwrap();
    let provider = crate::lab::provider_at(socket, Id::from_random([1; 16]), image, profile.path(), None);
    assert_eq!(provider.probe().await.unwrap_err().diagnostic, Diagnostic::DockerUnavailable);
    for operation in [
        create(reference(1)),
        Operation::GetInfo,
        Operation::Renew,
        Operation::Kill,
        Operation::RunCommand(command(&["true"])),
    ] {
        let failed = dispatch(&provider, context(reference(1), AMPLE), operation).await.unwrap_err();
        assert_eq!((failed.failure, failed.info), (Failure::Unconfirmed, None));
    }
}

/// A deadline that is over starts nothing.
#[tokio::test]
async fn expired_budget_creates_nothing() {
    let lab = Lab::new().await;
    let expired = palisade_provider::Context { reference: reference(1), deadline: Instant::now() };
    let failed = lab.call_within(expired, create(reference(1))).await.unwrap_err();
    assert_eq!(failed.failure, Failure::Unconfirmed);
    assert_eq!(lab.leftovers().await, Vec::<String>::new());
}
