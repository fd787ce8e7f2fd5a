//! Where a generation's microsandbox store is (node-host §1.6).

use crate::deployment::contract::RuntimeMember;
use crate::deployment::specification::Specification;
use crate::limits::STORE_PATH_MAX_BYTES;
use crate::units::{Digest, Id};

/// The store's path does not leave room for the sockets below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the path of the microsandbox store is longer than 48 bytes; use an account with a shorter home")]
pub struct TooLong;

/// The store of a generation with the specification `wanted`. Whatever runs the same program and firmware as the
/// enrolled generation lives in the same store; everything else has its own.
///
/// # Errors
/// A home that is too long for sockets.
pub fn path(home: &str, installation: Id, enrolled: &Specification, wanted: &Specification) -> Result<String, TooLong> {
    let name = if programs(enrolled) == programs(wanted) {
        short(&installation.to_string())
    } else {
        let [runtime, firmware] = programs(wanted).map(Option::unwrap_or_default);
        short(&format!("{installation}:{runtime}:{firmware}"))
    };
    let path = format!("{home}/.oac/m/{name}");
    if path.len() > STORE_PATH_MAX_BYTES { Err(TooLong) } else { Ok(path) }
}

fn programs(specification: &Specification) -> [Option<&str>; 2] {
    [RuntimeMember::RuntimeSha256, RuntimeMember::FirmwareSha256].map(|member| specification.runtime(member))
}

fn short(text: &str) -> String {
    let mut digits = Digest::of(text.as_bytes()).to_string();
    digits.truncate(12);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployment::contract::Provider;

    const INSTALLATION: &str = "6f1c2b1e-5f0a-4a55-9d0e-0a1b2c3d4e5f";

    fn specification(runtime: &str, firmware: &str, memory_mib: u32) -> Specification {
        let hex = |digit: &str| digit.repeat(64);
        let text = format!(
            r#"{{"resources":{{"cpus":2,"memory_mib":{memory_mib},"root_disk_mib":4096,"environment_disk_mib":4096}},
            "runtime":{{"source_commit":"{}","image_id":"sha256:{}","image_manifest_digest":"sha256:{}",
            "microsandbox_ref":"oac-runtime@sha256:{}","runtime_sha256":"{}","firmware_sha256":"{}"}}}}"#,
            "a".repeat(40),
            hex("b"),
            hex("c"),
            hex("d"),
            hex(runtime),
            hex(firmware),
        );
        Specification::parse(Provider::Microsandbox, text.as_bytes()).unwrap()
    }

    fn at(home: &str, wanted: &Specification) -> Result<String, TooLong> {
        path(home, Id::parse(INSTALLATION).unwrap(), &specification("e", "f", 512), wanted)
    }

    /// H 106. The same programs share the enrolled generation's store, whatever else changed; others have their own.
    #[test]
    fn a_store_is_shared_by_equal_programs() {
        let first = at("/var/lib/oac-node", &specification("e", "f", 512)).unwrap();
        let name = &Digest::of(INSTALLATION.as_bytes()).to_string()[..12];
        assert_eq!(first, format!("/var/lib/oac-node/.oac/m/{name}"));
        assert_eq!(at("/var/lib/oac-node", &specification("e", "f", 4096)), Ok(first.clone()));
        let others = [("1", "f"), ("e", "1"), ("f", "e")]
            .map(|(runtime, firmware)| at("/var/lib/oac-node", &specification(runtime, firmware, 512)).unwrap());
        let all: std::collections::BTreeSet<_> = others.iter().chain([&first]).collect();
        assert_eq!(all.len(), 4);
    }

    /// H 106. 48 bytes are accepted and 49 refused.
    #[test]
    fn a_path_leaves_room_for_sockets() {
        let home = |length: usize| format!("/{}", "h".repeat(length - 1));
        let wanted = specification("e", "f", 512);
        for length in [27, 28] {
            assert_eq!(at(&home(length), &wanted).map(|path| path.len()), Ok(length + 20));
        }
        assert_eq!(at(&home(29), &wanted), Err(TooLong));
    }
}
