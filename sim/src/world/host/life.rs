//! Starts and ends of a host's node, and of the host itself.

use std::collections::{BTreeSet, VecDeque};

use palisade_core::generation::recovery::{Construction, Files, Refused, Start, discover};
use palisade_core::generation::{Found, Table};
use palisade_core::operation::{Declaration, Support};
use palisade_core::session::backoff::Backoff;
use palisade_core::session::node::Node;
use palisade_core::units::{Generation, OwnerEpoch};
use palisade_core::wire::payload::GenerationReference;

use super::disk::File;
use super::way::Way;
use super::{HostEvent, Identity, Process};
use crate::coverage::names;
use crate::sabotage::Sabotage;
use crate::world::{Event, World, note};

impl World {
    /// The service manager starts the node: the disk says what is there, or the start is refused.
    pub(in crate::world) fn start_node(&mut self, host: usize) {
        if self.hosts[host].away_until > self.now {
            let at = self.hosts[host].away_until;
            return self.queue.push(at, Event::StartNode(host));
        }
        if self.hosts[host].process.is_some() || self.hosts[host].rejected || self.hosts[host].frozen_until > self.now {
            return;
        }
        let identity = self.hosts[host].identity.clone();
        if self.hosts[host].disk.settle() {
            self.cover.hit("node starts over what was not synced");
        }
        let found = match self.discover(host, &identity) {
            Ok(found) => found,
            Err(refused) => {
                self.cover.hit("node refuses to start: damaged file");
                note!(self, "host {host}: the node does not start: {refused}");
                self.books.start_refused(host);
                let again = self.now + 5_000;
                return self.queue.push(again, Event::StartNode(host));
            }
        };
        let epoch = self.hosts[host].disk.read(File::Epoch).and_then(OwnerEpoch::new);
        let providers: BTreeSet<Generation> = found
            .iter()
            .filter(|(_, found)| matches!(found, Found::Provider(_)))
            .map(|(reference, _)| reference.generation)
            .collect();
        let known: Vec<u64> = found.iter().map(|(reference, _)| reference.generation.get()).collect();
        self.hosts[host].life += 1;
        self.books.node_of_host(host, identity.node);
        self.books.node_started(host, identity.node, epoch.map_or(0, OwnerEpoch::get), &known);
        let machine = Node::new(identity.on_the_wire(), epoch, Table::new(found));
        if self.sabotage == Some(Sabotage::EngineKillsAtStart)
            && let Some(killed) = self.hosts[host].engine.lose_one()
        {
            self.books.sandbox_removed(host, killed);
        }
        self.hosts[host].engine.begin_process();
        self.hosts[host].process = Some(Process {
            machine,
            backoff: Backoff::default(),
            way: Way::Waiting,
            number: 0,
            inbox: VecDeque::new(),
            wake: None,
            providers,
            stopping: false,
        });
        self.cover.hit("event: node starts");
        note!(self, "host {host}: the node starts, epoch {epoch:?}");
        self.host_later(host, self.now + 1, HostEvent::Retry(0));
    }

    pub(super) fn discover(
        &mut self,
        host: usize,
        identity: &Identity,
    ) -> Result<Vec<(GenerationReference, Found)>, Refused> {
        let checkpoints = self.store.policy.is_some();
        let place = &self.hosts[host];
        let locals = discover(&place.disk.root(identity.enrolled))?;
        let mut found = Vec::new();
        for (generation, local) in locals {
            self.cover.hit(names::local(local));
            let Some(specification_digest) = place.disk.digest(generation) else { continue };
            let reference = GenerationReference { generation, specification_digest };
            let entered = match local.start() {
                Start::Skip => continue,
                Start::Enter(found) => found,
                Start::Construct => {
                    let files = place.disk.files(generation, identity.enrolled);
                    let whole = files != Files::Missing;
                    let built =
                        if whole { Construction::Built(declaration(checkpoints)) } else { Construction::FileMissing };
                    built.found().map_err(|refusal| Refused { generation: Some(generation), refusal })?
                }
            };
            found.push((reference, entered));
        }
        Ok(found)
    }

    /// The node is asked to stop: its connection closes at once, what runs is waited for.
    pub(in crate::world) fn stop_node(&mut self, host: usize) {
        let now = self.host_now(host);
        let Some(process) = self.hosts[host].process.as_mut().filter(|process| !process.stopping) else { return };
        process.stopping = true;
        self.books.node_stopping(host);
        process.machine.handle_closed(now);
        let until = process.machine.busy_until();
        self.close_way(host);
        self.drive_node(host);
        let at = until.map_or(self.now, |until| self.hosts[host].clock.when(until, self.now));
        self.host_later(host, at.max(self.now + 1), HostEvent::Exit);
    }

    /// The process is gone. The operating system closes its socket, unless the power went as well.
    pub(in crate::world) fn end_node(&mut self, host: usize) {
        if self.hosts[host].process.is_none() {
            return;
        }
        self.close_way(host);
        self.hosts[host].process = None;
        self.hosts[host].trap = None;
        self.books.node_gone(host);
        self.orphan_runs(host, false);
        self.orphan_operations(host);
        note!(self, "host {host}: the node ends");
        let back = self.now + 100 + self.hosts[host].luck.below(5_000);
        self.queue.push(back, Event::StartNode(host));
    }

    /// The host loses power and comes back.
    pub(in crate::world) fn reboot(&mut self, host: usize) {
        if let Some(link) = self.open_link(host) {
            self.links[link].up.kill();
            self.links[link].node_open = false;
        }
        if self.hosts[host].process.take().is_some() {
            self.books.node_gone(host);
        }
        self.hosts[host].trap = None;
        self.orphan_runs(host, true);
        let damage = self.weather.failing_disk;
        let place = &mut self.hosts[host];
        let torn = place.disk.lose_power(damage, &mut place.luck);
        let rotten = place.luck.chance(damage) && place.disk.rot(&mut place.luck);
        if torn || rotten {
            self.cover.hit("fault: file damaged");
        }
        self.reboot_engine(host);
        self.hosts[host].life += 1;
        note!(self, "host {host} loses power");
        let back = self.now + 3_000 + self.hosts[host].luck.below(20_000);
        self.queue.push(back, Event::StartNode(host));
    }

    pub(in crate::world) fn thaw_host(&mut self, host: usize) {
        if self.hosts[host].frozen_until > self.now {
            return;
        }
        let now = self.host_now(host);
        self.books.thawed(host, now.0);
        if self.hosts[host].process.is_none() {
            self.queue.push(self.now + 10, Event::StartNode(host));
        }
        self.drive_node(host);
    }
}

impl Identity {
    fn on_the_wire(&self) -> palisade_core::wire::payload::Identity<'static> {
        palisade_core::wire::payload::Identity {
            node_id: self.node.to_string().into(),
            installation_id: self.installation.to_string().into(),
            provider: "docker".into(),
            backend_fingerprint: "1".repeat(64).into(),
            deployment_generation: self.enrolled.get(),
            specification_digest: self.digest.to_string().into(),
            max_active: 1,
            max_retained: 1,
        }
    }
}

/// What the provider of these hosts carries out.
pub(super) fn declaration(checkpoints: bool) -> Declaration {
    let not_here = |reason: &str| Support::Unsupported { reason: reason.to_owned() };
    Declaration::of_groups(
        &Support::Supported,
        &if checkpoints { Support::Supported } else { not_here("checkpoint_not_supported") },
        &not_here("preparation_not_supported"),
    )
    .expect("the reasons are reason codes")
}
