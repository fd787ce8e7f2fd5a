//! Values that several tests of this crate share.

use serde_json::{Value, json};

/// A valid docker configuration of generation 3.
pub(crate) fn configuration() -> Value {
    let hex = |digit: &str, length| digit.repeat(length);
    json!({
        "installation_id": "0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f",
        "provider": "docker",
        "core_url": "https://core.example/api/v1",
        "generation": 3,
        "specification": {
            "resources": {"cpus": 2, "memory_mib": 4096},
            "runtime": {
                "source_commit": hex("a", 40),
                "image_id": format!("sha256:{}", hex("b", 64)),
                "image_manifest_digest": format!("sha256:{}", hex("c", 64)),
                "microsandbox_ref": format!("oac-runtime@sha256:{}", hex("d", 64)),
                "runtime_sha256": hex("e", 64),
                "firmware_sha256": hex("f", 64),
            },
        },
        "native": {
            "host": "unix:///var/run/docker.sock",
            "image": format!("sha256:{}", hex("b", 64)),
            "network": "oac-node-0b9f3c52-7a41-4d7d-8c3e-5b6a7c8d9e0f",
            "seccomp_file": "/etc/palisade/seccomp.json",
        },
    })
}
