//! What a sandbox's container looks like, and whether one still does (node-host §7.3, §7.6).

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, HostConfig, Mount, MountType, VolumeCreateRequest,
};
use palisade_core::wire::payload::Reference;

use crate::bootstrap::FILE;
use crate::configuration::Settings;
use crate::limits::PIDS_MAX;
use crate::name::{Names, labels};

/// The sandbox's unprivileged account.
pub(crate) const USER: &str = "1000:1000";

const ENTRY: &str = "/usr/local/bin/oac-sandbox-io";
const WORKING_DIRECTORY: &str = "/environment/workspace";

/// The container to create. The seccomp profile goes in as text, so later changes of the file have no effect.
pub(crate) fn body(settings: &Settings, reference: Reference, names: &Names) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(settings.image.clone()),
        user: Some(USER.to_owned()),
        working_dir: Some(WORKING_DIRECTORY.to_owned()),
        entrypoint: Some(vec![ENTRY.to_owned(), "--bootstrap-file".to_owned(), FILE.to_owned()]),
        labels: Some(labels(settings.installation, reference)),
        host_config: Some(host_config(settings, names)),
        ..Default::default()
    }
}

fn host_config(settings: &Settings, names: &Names) -> HostConfig {
    HostConfig {
        memory: Some(settings.limits.memory_bytes),
        nano_cpus: Some(settings.limits.nano_cpus),
        pids_limit: Some(PIDS_MAX),
        readonly_rootfs: Some(true),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned(), format!("seccomp={}", settings.seccomp)]),
        network_mode: Some(settings.network.clone()),
        tmpfs: Some(HashMap::from([("/tmp".to_owned(), "rw,nosuid,nodev,size=128m".to_owned())])),
        mounts: Some(vec![mount(&names.home, "/home"), mount(&names.environment, "/environment")]),
        ..Default::default()
    }
}

fn mount(volume: &str, target: &str) -> Mount {
    Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.to_owned()),
        target: Some(target.to_owned()),
        ..Default::default()
    }
}

/// One of the two volumes to create.
pub(crate) fn volume(settings: &Settings, reference: Reference, name: &str) -> VolumeCreateRequest {
    VolumeCreateRequest {
        name: Some(name.to_owned()),
        labels: Some(labels(settings.installation, reference)),
        ..Default::default()
    }
}

/// What the container has that it should not have, given the engine's identity of the configured image.
///
/// Two image identities are compared only as the engine resolved them: stores name the same image differently.
pub(crate) fn drift(settings: &Settings, container: &ContainerInspectResponse, image_id: &str) -> Option<&'static str> {
    let host = container.host_config.as_ref();
    if host.and_then(|host| host.memory) != Some(settings.limits.memory_bytes) {
        return Some("another memory limit");
    }
    if host.and_then(|host| host.nano_cpus) != Some(settings.limits.nano_cpus) {
        return Some("another CPU limit");
    }
    let image = container.image.as_deref().unwrap_or_default();
    (image.is_empty() || image != image_id).then_some("another image")
}

/// The container's native status text.
pub(crate) fn status(container: &ContainerInspectResponse) -> String {
    let status = container.state.as_ref().and_then(|state| state.status);
    status.map(|status| status.to_string()).unwrap_or_default()
}

/// Whether the container's process is running; a paused or restarting one is not.
pub(crate) fn is_running(container: &ContainerInspectResponse) -> bool {
    status(container) == "running"
}
