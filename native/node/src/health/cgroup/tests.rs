use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use rstest::rstest;

use super::*;

/// A host made of file contents. An absent entry is a missing file, `None` one that may not be read.
#[derive(Default)]
struct Made {
    files: RefCell<BTreeMap<String, Option<String>>>,
    reads: Cell<usize>,
    /// The membership after the first read of it.
    moved_to: Option<&'static str>,
}

impl Files for Made {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.reads.set(self.reads.get() + 1);
        let path = path.to_str().unwrap();
        let content = self.files.borrow().get(path).cloned();
        if path == MEMBERSHIP
            && let Some(moved_to) = self.moved_to
        {
            self.files.borrow_mut().insert(MEMBERSHIP.to_owned(), Some(moved_to.to_owned()));
        }
        match content {
            None => Err(io::ErrorKind::NotFound.into()),
            Some(None) => Err(io::ErrorKind::PermissionDenied.into()),
            Some(Some(text)) => Ok(text),
        }
    }
}

impl Made {
    fn with(mut self, path: &str, text: &str) -> Self {
        self.files.get_mut().insert(path.to_owned(), Some(text.to_owned()));
        self
    }

    fn without(mut self, path: &str) -> Self {
        self.files.get_mut().remove(path);
        self
    }

    fn unreadable(mut self, path: &str) -> Self {
        self.files.get_mut().insert(path.to_owned(), None);
        self
    }

    fn cores(&self, affinity: u32) -> Option<f64> {
        effective_cores(self, Some(affinity))
    }
}

const V2_MOUNT: &str = "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
const V1_MOUNT: &str = "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
const ROOT: &str = "/sys/fs/cgroup";

/// `/slice/leaf`, nothing limited.
fn v2() -> Made {
    Made::default()
        .with(MEMBERSHIP, "0::/slice/leaf\n")
        .with(MOUNTS, V2_MOUNT)
        .with("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
        .with("/sys/fs/cgroup/slice/cpu.max", "max 100000\n")
        .with("/sys/fs/cgroup/slice/leaf/cpu.max", "max 100000\n")
}

fn v1() -> Made {
    let levels = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu/slice", "/sys/fs/cgroup/cpu/slice/leaf"];
    let made = Made::default()
        .with(MEMBERSHIP, "3:cpuacct,cpu:/slice/leaf\n2:memory:/other\n0::/unified\n")
        .with(MOUNTS, &format!("{V2_MOUNT}{V1_MOUNT}"))
        .with("/sys/fs/cgroup/cpu/release_agent", "\n");
    levels.into_iter().fold(made, |made, level| {
        made.with(&format!("{level}/cpu.cfs_quota_us"), "-1\n").with(&format!("{level}/cpu.cfs_period_us"), "100000\n")
    })
}

/// W 165.
#[test]
fn the_smallest_quota_of_the_chain_limits_the_cores() {
    let parent = || v2().with("/sys/fs/cgroup/slice/cpu.max", "150000 100000\n");
    assert_eq!(v2().cores(4), Some(4.0), "unlimited");
    assert_eq!(parent().cores(4), Some(1.5), "inherited");
    assert_eq!(parent().cores(1), Some(1.0), "affinity");
    assert_eq!(parent().with("/sys/fs/cgroup/slice/leaf/cpu.max", "25000 100000\n").cores(4), Some(0.25), "leaf");
    let disabled = parent()
        .without("/sys/fs/cgroup/slice/leaf/cpu.max")
        .with("/sys/fs/cgroup/slice/leaf/cgroup.controllers", "memory pids\n");
    assert_eq!(disabled.cores(4), Some(1.5), "controller disabled at the leaf");
    assert_eq!(v2().with(MEMBERSHIP, "0::/\n").cores(4), Some(4.0), "process at the root");
}

#[rstest]
#[case::missing_membership(v2().without(MEMBERSHIP))]
#[case::invalid_membership(v2().with(MEMBERSHIP, "0:/slice/leaf\n"))]
#[case::blank_line(v2().with(MEMBERSHIP, "0::/slice/leaf\n\n"))]
#[case::bad_id(v2().with(MEMBERSHIP, "4294967296::/slice/leaf\n"))]
#[case::signed_id(v2().with(MEMBERSHIP, "+0::/slice/leaf\n"))]
#[case::id_with_no_controller(v2().with(MEMBERSHIP, "1::/slice/leaf\n"))]
#[case::unified_with_controller(v2().with(MEMBERSHIP, "0:cpu:/slice/leaf\n"))]
#[case::relative(v2().with(MEMBERSHIP, "0::slice/leaf\n"))]
#[case::unclean(v2().with(MEMBERSHIP, "0::/slice/../slice/leaf\n"))]
#[case::deleted(v2().with(MEMBERSHIP, "0::/slice/leaf (deleted)\n"))]
#[case::duplicate_unified(v2().with(MEMBERSHIP, "0::/slice/leaf\n0::/slice/leaf\n"))]
#[case::duplicate_cpu(v1().with(MEMBERSHIP, "3:cpu:/slice/leaf\n4:cpu:/slice/leaf\n"))]
#[case::missing_mount(v2().with(MOUNTS, V1_MOUNT))]
#[case::no_mounts(v2().without(MOUNTS))]
#[case::subtree_mount(v2().with(MOUNTS, "30 20 0:26 /slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"))]
#[case::short_mount(v2().with(MOUNTS, "30 20 0:26 / /sys/fs/cgroup - cgroup2 cgroup2 rw\n"))]
#[case::unclean_mount(v2().with(MOUNTS, "30 20 0:26 / /sys//fs/cgroup rw - cgroup2 cgroup2 rw\n"))]
#[case::namespace_root(v2().with("/sys/fs/cgroup/cgroup.type", "domain\n"))]
#[case::limited_root(v2().with("/sys/fs/cgroup/cpu.max", "max 100000\n"))]
#[case::no_root_controllers(v2().without("/sys/fs/cgroup/cgroup.controllers"))]
#[case::missing_limit(v2().without("/sys/fs/cgroup/slice/cpu.max"))]
#[case::missing_limit_of_a_delegated_controller(
    v2().without("/sys/fs/cgroup/slice/cpu.max").with("/sys/fs/cgroup/slice/cgroup.controllers", "cpu\n")
)]
#[case::zero_period(v2().with("/sys/fs/cgroup/slice/cpu.max", "1000 0\n"))]
#[case::negative_quota(v2().with("/sys/fs/cgroup/slice/cpu.max", "-1 100000\n"))]
#[case::zero_quota(v2().with("/sys/fs/cgroup/slice/cpu.max", "0 100000\n"))]
#[case::one_word(v2().with("/sys/fs/cgroup/slice/cpu.max", "1000\n"))]
#[case::three_words(v2().with("/sys/fs/cgroup/slice/cpu.max", "1000 1000 1\n"))]
#[case::overflow(v2().with("/sys/fs/cgroup/slice/cpu.max", "9223372036854775808 100000\n"))]
/// W 166. A chain that cannot be proven is unknown; there is no older value to fall back to.
fn a_chain_that_is_not_proven_is_unknown(#[case] made: Made) {
    assert_eq!(made.cores(4), None);
}

/// W 167. With `cpu` in a version 1 hierarchy the unified line does not matter.
#[test]
fn version_1_reads_every_ancestor() {
    assert_eq!(v1().cores(4), Some(4.0), "all unlimited");
    let limited = v1()
        .with("/sys/fs/cgroup/cpu/slice/cpu.cfs_quota_us", "75000\n")
        .with("/sys/fs/cgroup/cpu/slice/leaf/cpu.cfs_quota_us", "200000\n");
    assert_eq!(limited.cores(4), Some(0.75));
    assert_eq!(v1().without("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").cores(4), None);
    assert_eq!(v1().without("/sys/fs/cgroup/cpu/release_agent").cores(4), None);
    assert_eq!(v1().with("/sys/fs/cgroup/cpu/slice/cpu.cfs_period_us", "0\n").cores(4), None);
    assert_eq!(v1().with("/sys/fs/cgroup/cpu/slice/cpu.cfs_quota_us", "-2\n").cores(4), None);
}

/// W 168.
#[test]
fn missing_and_changing_evidence_is_unknown() {
    assert_eq!(effective_cores(&v2(), None), None);
    assert_eq!(v2().unreadable("/sys/fs/cgroup/slice/cpu.max").cores(4), None);
    assert_eq!(v2().unreadable("/sys/fs/cgroup/cgroup.type").cores(4), None);
    assert_eq!(v2().unreadable("/sys/fs/cgroup/cpu.max").cores(4), None);
    let moved = Made { moved_to: Some("0::/slice\n"), ..v2() };
    assert_eq!(moved.cores(4), None);
}

/// W 170.
#[test]
fn escaped_mounts_are_decoded_and_no_cpu_line_is_no_limit() {
    let escaped = Made::default()
        .with(MEMBERSHIP, "0::/leaf\n")
        .with(MOUNTS, "30 20 0:26 / /odd\\040name\\011\\134\\012 rw - cgroup2 cgroup2 rw\n")
        .with("/odd name\t\\\n/cgroup.controllers", "cpu\n")
        .with("/odd name\t\\\n/leaf/cpu.max", "50000 100000\n");
    assert_eq!(escaped.cores(4), Some(0.5));
    let unlimited = Made::default().with(MEMBERSHIP, "2:memory:/a\n1:name=systemd:/b\n");
    assert_eq!(unlimited.cores(4), Some(4.0));
}

/// W 173. A path of 127 levels and the root are read; one level more is unknown, within 129 reads.
#[test]
fn at_most_128_levels_are_walked() {
    for (levels, expected) in [(127, Some(4.0)), (128, None)] {
        let group = "/a".repeat(levels);
        let mut made = v2().with(MEMBERSHIP, &format!("0::{group}\n"));
        for depth in 1..=levels {
            made = made.with(&format!("{ROOT}{}/cpu.max", "/a".repeat(depth)), "max 100000\n");
        }
        assert_eq!(made.cores(4), expected, "{levels} levels");
        assert!(expected.is_some() || made.reads.get() <= 129, "{} reads", made.reads.get());
    }
}
