//! Effects that a node starts and hears of later: measurements, the stored epoch, probes.

use palisade_core::generation::Probed;
use palisade_core::units::{Generation, OwnerEpoch};
use palisade_core::wire::payload::{Diagnostic, Health};

use super::HostEvent;
use super::disk::File;
use crate::coverage::names;
use crate::plan::{Party, Trap};
use crate::sabotage::Sabotage;
use crate::world::World;

const MEASUREMENT_TIMEOUT_MS: u64 = 2_000;
const PROBE_TIMEOUT_MS: u64 = 6_000;

impl World {
    /// Bounded by the shell: a host that does not answer in time is unknown.
    pub(super) fn measure(&mut self, host: usize) {
        let slow = self.hosts[host].measures_slowly_until > self.now;
        let busy = self.sabotage == Some(Sabotage::HeartbeatWaitsForProvider) && self.hosts[host].engine.is_busy();
        let number = self.number(host);
        let took = if busy {
            8_000
        } else if slow {
            MEASUREMENT_TIMEOUT_MS
        } else {
            self.hosts[host].luck.below(20)
        };
        if slow {
            self.cover.hit("fault: host cannot be measured");
        }
        self.host_later(host, self.now + took, HostEvent::Measured(number));
    }

    pub(super) fn health(&mut self, host: usize) -> Health<'static> {
        let known = self.hosts[host].measures_slowly_until <= self.now;
        Health {
            observed_at: "2026-10-01T08:00:00Z".into(),
            active_operations: 0,
            cpu_utilization: known.then_some(0.25),
            total_memory_bytes: known.then_some(32 << 30),
            effective_cpu_cores: known.then_some(8.0),
            cpu_count: known.then_some(8),
            available_memory_bytes: known.then_some(16 << 30),
            available_disk_bytes: known.then_some(1 << 40),
            generations: Vec::new(),
        }
    }

    pub(super) fn store_epoch(&mut self, host: usize, epoch: OwnerEpoch) {
        let number = self.number(host);
        let took = 1 + self.hosts[host].luck.below(40);
        self.host_later(host, self.now + took, HostEvent::EpochWritten { epoch, number, synced: false });
    }

    /// Renamed first, durable a little later; only then the machine learns of it.
    pub(super) fn epoch_written(&mut self, host: usize, epoch: OwnerEpoch, number: u64, synced: bool) {
        let now = self.host_now(host);
        if self.hosts[host].disk_fails_until > self.now {
            self.cover.hit("fault: epoch not stored");
            if number == self.number(host) {
                self.with_node(host, |machine| machine.handle_epoch_not_stored(now));
            }
            return;
        }
        let stored = self.hosts[host].disk.read(File::Epoch).unwrap_or(0);
        if !synced {
            if self.sabotage != Some(Sabotage::DiskDropsEpoch) && epoch.get() > stored {
                self.hosts[host].disk.write(File::Epoch, epoch.get());
            }
            self.effect(Party::Node(host), Trap::Wrote);
            let at = self.now + 1 + self.hosts[host].luck.below(5);
            return self.host_later(host, at, HostEvent::EpochWritten { epoch, number, synced: true });
        }
        self.hosts[host].disk.sync(File::Epoch);
        self.books.epoch_stored(host, epoch.get(), now.0);
        self.effect(Party::Node(host), Trap::Wrote);
        self.with_node(host, |machine| machine.handle_epoch_stored(now, epoch));
    }

    pub(super) fn probe(&mut self, host: usize, generation: Generation) {
        let image = self.hosts[host].engine.image(generation, self.now);
        let (until, diagnostic) = self.hosts[host].probes_fail;
        let ill = diagnostic.filter(|_| until > self.now);
        let hangs = self.hosts[host].engine.is_down(self.now);
        let fails = self.luck.chance(self.weather.failing_probe);
        let outcome = match (image, ill) {
            (None, _) => Probed::NotReady(Diagnostic::DockerUnavailable),
            (_, Some(diagnostic)) => Probed::NotReady(diagnostic),
            (Some(false), None) => Probed::NotReady(Diagnostic::RuntimeImageUnavailable),
            (Some(true), None) if fails && self.luck.chance(300) => Probed::Cancelled,
            (Some(true), None) if fails => Probed::NotReady(Diagnostic::CapacityInsufficient),
            (Some(true), None) => Probed::Ready(None),
        };
        self.cover.hit(names::probed(&outcome));
        let took = if hangs { PROBE_TIMEOUT_MS } else { 1 + self.luck.below(60) };
        self.host_later(host, self.now + took, HostEvent::Probed(generation, outcome));
    }
}
