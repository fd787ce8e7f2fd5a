//! Where checkpoints of a generation can be used: the two tokens of a declaration (wire §2.9b, decision 26).
//!
//! Two generations with equal tokens find each other's files and run on equal machines. Nothing else is in a token, and
//! nothing can be read from one.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::units::{Digest, Id};
use crate::wire::payload::Checkpoint;

/// Where checkpoint files are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ArtifactDomain<'a> {
    /// The installation.
    pub installation: Id,
    /// Absolute path of the store.
    pub store: &'a str,
}

/// What a checkpoint was taken with and can be restored with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ExecutionClass<'a> {
    /// `runtime_sha256` of the Runtime release.
    pub runtime: Digest,
    /// `firmware_sha256` of the Runtime release.
    pub firmware: Digest,
    /// The processors of the host.
    pub cpu: &'a Cpu,
}

/// What the processors of a host can do, as far as a restored machine notices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Cpu {
    /// `vendor_id`.
    pub vendor: String,
    /// `cpu family`.
    pub family: String,
    /// `model`.
    pub model: String,
    /// `flags`, in any order.
    pub flags: BTreeSet<String>,
}

/// The declaration of a ready generation.
#[must_use]
pub fn declare(domain: &ArtifactDomain<'_>, class: &ExecutionClass<'_>) -> Checkpoint<'static> {
    Checkpoint { artifact_domain: token(domain).into(), execution_class: token(class).into() }
}

/// Members are told apart by their JSON form, so that no two values share bytes.
fn token(members: &impl Serialize) -> String {
    Digest::of(&serde_json::to_vec(members).expect("texts, digests and sets serialise")).to_string()
}

impl Cpu {
    /// Reads `/proc/cpuinfo`. `None` when a member is absent, or when the host's processors are not all alike: nothing
    /// could then be promised of a restored machine.
    #[must_use]
    pub fn parse(cpuinfo: &str) -> Option<Self> {
        let mut processors = cpuinfo.split("\n\n").filter(|block| !block.trim().is_empty()).map(Self::processor);
        let first = processors.next()??;
        processors.all(|other| other.as_ref() == Some(&first)).then_some(first)
    }

    fn processor(block: &str) -> Option<Self> {
        let member = |name: &str| {
            let lines = block.lines().filter_map(|line| line.split_once(':'));
            let mut values = lines.filter(|(found, _)| found.trim() == name).map(|(_, value)| value.trim());
            values.next().filter(|value| !value.is_empty() && values.next().is_none())
        };
        Some(Self {
            vendor: member("vendor_id")?.to_owned(),
            family: member("cpu family")?.to_owned(),
            model: member("model")?.to_owned(),
            flags: member("flags")?.split_whitespace().map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTALLATION: &str = "6f1c2b1e-5f0a-4a55-9d0e-0a1b2c3d4e5f";
    const PROCESSOR: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
                             model name\t: Some CPU @ 2.0GHz\nflags\t\t: fpu avx2 vmx\nbugs\t\t:\n";

    fn cpu() -> Cpu {
        Cpu::parse(PROCESSOR).unwrap()
    }

    fn declaration(store: &str, runtime: &[u8], firmware: &[u8], cpu: &Cpu) -> Checkpoint<'static> {
        let domain = ArtifactDomain { installation: Id::parse(INSTALLATION).unwrap(), store };
        let class = ExecutionClass { runtime: Digest::of(runtime), firmware: Digest::of(firmware), cpu };
        declare(&domain, &class)
    }

    /// Decision 26. W 188. Equal facts make equal tokens; each single fact changes its own token and not the other.
    #[test]
    fn each_fact_is_in_exactly_one_token() {
        let first = declaration("/var/lib/oac-node/.oac/m/0123456789ab", b"r", b"f", &cpu());
        assert!(first.is_well_formed());
        assert_eq!(first, declaration("/var/lib/oac-node/.oac/m/0123456789ab", b"r", b"f", &cpu()));
        let moved = declaration("/var/lib/oac-node/.oac/m/0123456789ac", b"r", b"f", &cpu());
        assert_ne!(moved.artifact_domain, first.artifact_domain);
        assert_eq!(moved.execution_class, first.execution_class);
        let with = |change: fn(&mut Cpu)| {
            let mut other = cpu();
            change(&mut other);
            declaration("/var/lib/oac-node/.oac/m/0123456789ab", b"r", b"f", &other)
        };
        let others = [
            declaration("/var/lib/oac-node/.oac/m/0123456789ab", b"R", b"f", &cpu()),
            declaration("/var/lib/oac-node/.oac/m/0123456789ab", b"r", b"F", &cpu()),
            declaration("/var/lib/oac-node/.oac/m/0123456789ab", b"f", b"r", &cpu()),
            with(|cpu| cpu.vendor = "AuthenticAMD".to_owned()),
            with(|cpu| cpu.family = "7".to_owned()),
            with(|cpu| cpu.model = "144".to_owned()),
            with(|cpu| cpu.flags.retain(|flag| flag != "avx2")),
        ];
        let classes: BTreeSet<_> = others.iter().map(|other| other.execution_class.to_string()).collect();
        assert_eq!((classes.len(), classes.contains(&*first.execution_class)), (others.len(), false));
        assert!(others.iter().all(|other| other.artifact_domain == first.artifact_domain));
    }

    /// The order of flags, and everything that differs between equal processors, is no difference.
    #[test]
    fn processors_that_are_alike_are_one_cpu() {
        let second = PROCESSOR.replace(": 0\n", ": 1\n").replace("fpu avx2 vmx", "vmx fpu avx2");
        assert_eq!(Cpu::parse(&format!("{PROCESSOR}\n{second}\n")), Some(cpu()));
        assert_eq!(cpu().flags.into_iter().collect::<Vec<_>>(), ["avx2", "fpu", "vmx"]);
    }

    #[test]
    fn processors_that_differ_or_do_not_say_are_unknown() {
        let second = PROCESSOR.replace("avx2 ", "");
        assert_eq!(Cpu::parse(&format!("{PROCESSOR}\n{second}\n")), None);
        for name in ["vendor_id", "cpu family", "model\t\t", "flags"] {
            assert_eq!(Cpu::parse(&PROCESSOR.replace(name, "other")), None, "{name}");
        }
        assert_eq!(Cpu::parse(&PROCESSOR.replace(": 6", ":")), None);
        assert_eq!(Cpu::parse(&format!("{PROCESSOR}model\t: 9\n")), None);
        assert_eq!(Cpu::parse(""), None);
    }
}
