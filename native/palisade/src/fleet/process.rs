//! What a process uses, as the kernel counts it.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

/// The kernel counts processor time in hundredths of a second for its users, whatever it does inside.
const TICKS_A_SECOND: f64 = 100.0;

/// Processor time of a process and its ended children, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cpu {
    user: u64,
    system: u64,
}

/// Shares of one core over some time; 1 is a whole core.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Load {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    resident: u64,
    proportional: u64,
}

/// Growth of memory by connection, in bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Growth {
    pub(crate) resident_bytes: u64,
    pub(crate) proportional_bytes: u64,
}

impl Cpu {
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        Self::parse(&read(pid, "stat")?).context("the kernel's process line has another form")
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name in parentheses may hold spaces; the fields after it begin with the third, the times are the 14th and
        // 15th.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        Some(Self { user: fields.next()?.parse().ok()?, system: fields.next()?.parse().ok()? })
    }

    pub(crate) fn since(self, before: Self, time: Duration) -> Load {
        #[expect(clippy::cast_precision_loss, reason = "ticks of a few hours")]
        let share = |after: u64, before: u64| {
            after.saturating_sub(before) as f64 / TICKS_A_SECOND / time.as_secs_f64().max(f64::EPSILON)
        };
        Load { user: share(self.user, before.user), system: share(self.system, before.system) }
    }
}

impl Memory {
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        Self::parse(&read(pid, "smaps_rollup")?).context("the kernel's memory report has another form")
    }

    fn parse(rollup: &str) -> Option<Self> {
        let kib = |name: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        Some(Self { resident: kib("Rss:")? * 1024, proportional: kib("Pss:")? * 1024 })
    }

    pub(crate) fn over(self, before: Self, connections: u32) -> Growth {
        let each = |after: u64, before: u64| after.saturating_sub(before) / u64::from(connections.max(1));
        Growth {
            resident_bytes: each(self.resident, before.resident),
            proportional_bytes: each(self.proportional, before.proportional),
        }
    }
}

fn read(pid: u32, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}: has core ended?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_behind_any_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 5 6 20 0 1 0 100 1 1";
        let cpu = Cpu::parse(stat).unwrap();
        assert_eq!(cpu, Cpu { user: 150, system: 50 });
        let load = cpu.since(Cpu { user: 50, system: 0 }, Duration::from_secs(2));
        assert!((load.user - 0.5).abs() < 1e-9 && (load.system - 0.25).abs() < 1e-9, "{load:?}");
    }

    #[test]
    fn memory_is_shared_among_the_connections() {
        let before =
            Memory::parse("7f00 ---p [rollup]\nRss:     1000 kB\nPss:      500 kB\nPss_Dirty: 1 kB\n").unwrap();
        assert_eq!(before, Memory { resident: 1_024_000, proportional: 512_000 });
        let after = Memory { resident: 2_024_000, proportional: 512_000 };
        assert_eq!(after.over(before, 10).resident_bytes, 100_000);
    }

    #[test]
    fn this_process_uses_something() {
        assert!(Memory::of(std::process::id()).unwrap().resident > 0);
        Cpu::of(std::process::id()).unwrap();
    }
}
