//! What a node's machine is told, and what it wants done.

use palisade_core::generation::Task;
use palisade_core::session::node::Action;

use super::life::declaration;
use super::way::Way;
use super::{HostEvent, RunAction};
use crate::coverage::names;
use crate::plan::Party;
use crate::world::{World, note};

impl World {
    pub(in crate::world) fn host_event(&mut self, host: usize, event: HostEvent) {
        let (now, checkpoints) = (self.host_now(host), self.store.policy.is_some());
        let Some(process) = &mut self.hosts[host].process else { return };
        let current = process.number;
        match event {
            HostEvent::Retry(number) if number == current => self.dial(host),
            HostEvent::DialAnswered { number, answer } if number == current => self.dial_answered(host, answer),
            HostEvent::DialTimedOut(number) if number == current => self.dial_timed_out(host),
            HostEvent::Measured(number) if number == current => {
                let (health, random) = (self.health(host), self.hosts[host].luck.bytes());
                self.with_node(host, |machine| machine.handle_health(now, health, random));
            }
            HostEvent::EpochWritten { epoch, number, synced } => self.epoch_written(host, epoch, number, synced),
            HostEvent::Written { number, bytes, written } if number == current => {
                if written {
                    process.machine.handle_written(now, bytes);
                } else {
                    self.lose_connection(host);
                }
            }
            // Another time was set since.
            HostEvent::Wake(at) if process.wake != Some(at) => return,
            HostEvent::Wake(_) => {
                process.wake = None;
                if let Some((at, wake)) = process.machine.poll_timeout()
                    && at <= now
                {
                    self.cover.hit(names::node_wake(wake));
                    process.machine.handle_timeout(now);
                }
            }
            HostEvent::Probed(generation, outcome) => process.machine.handle_probed(now, generation, outcome),
            HostEvent::Prepared(generation, outcome) => {
                self.cover.hit(if outcome.is_ok() { "preparation succeeded" } else { "preparation failed" });
                if outcome.is_ok() {
                    process.providers.insert(generation);
                    self.books.loaded(host, generation.get());
                }
                process.machine.handle_prepared(now, generation, outcome.map(|()| declaration(checkpoints)));
            }
            HostEvent::Removed(generation, finished) => {
                self.cover.hit(if finished { "removal finished" } else { "removal did not finish" });
                self.books.removed(host);
                process.machine.handle_removed(now, generation, finished);
            }
            HostEvent::Exit => return self.end_node(host),
            HostEvent::Retry(_)
            | HostEvent::DialAnswered { .. }
            | HostEvent::DialTimedOut(_)
            | HostEvent::Measured(_)
            | HostEvent::Written { .. } => {}
        }
        self.drive_node(host);
    }

    /// Performs what the machine wants, reads what it lets be read, and waits for its next time.
    pub(in crate::world) fn drive_node(&mut self, host: usize) {
        loop {
            self.perform(host);
            if self.is_doomed(Party::Node(host)) {
                return;
            }
            let Some(process) = &mut self.hosts[host].process else { return };
            let open = matches!(process.way, Way::Open { .. });
            if !open || !process.machine.may_read() {
                break;
            }
            let Some(parcel) = process.inbox.pop_front() else { break };
            self.node_reads(host, parcel);
        }
        let now = self.now;
        let place = &mut self.hosts[host];
        let Some(process) = &mut place.process else { return };
        let due = process.machine.poll_timeout().map(|(at, _)| place.clock.when(at, now));
        if let Some(at) = due
            && process.wake.is_none_or(|wake| wake > at)
        {
            process.wake = Some(at);
            self.host_later(host, at, HostEvent::Wake(at));
        }
    }

    pub(super) fn perform(&mut self, host: usize) {
        while !self.is_doomed(Party::Node(host))
            && let Some(process) = &mut self.hosts[host].process
            && let Some(action) = process.machine.poll_action()
        {
            self.act_for_node(host, action);
        }
    }

    pub(super) fn act_for_node(&mut self, host: usize, action: Action) {
        match action {
            Action::MeasureHealth => self.measure(host),
            Action::Send(message) => self.send(host, message),
            Action::StoreEpoch(epoch) => self.store_epoch(host, epoch),
            Action::Execute { ticket, call, deadline } => self.execute(host, ticket, *call, deadline),
            Action::Task(Task::Probe(generation)) => self.probe(host, generation),
            Action::Task(Task::Prepare(reference)) => {
                self.hosts[host].disk.remember(reference.generation, reference.specification_digest);
                self.start_run(host, RunAction::Prepare, reference.generation, reference.specification_digest);
            }
            Action::Task(Task::CancelPreparation(generation)) => {
                self.cover.hit("preparation cancelled");
                self.kill_run(host, RunAction::Prepare, generation);
            }
            Action::Remove(reference) => {
                self.books.removing(host, reference.generation.get(), &self.store, self.now);
                if let Some(process) = &mut self.hosts[host].process {
                    process.providers.remove(&reference.generation);
                }
                self.start_run(host, RunAction::Collect, reference.generation, reference.specification_digest);
            }
            Action::CancelRemoval(generation) => {
                self.cover.hit("removal cancelled");
                self.kill_run(host, RunAction::Collect, generation);
            }
            Action::Close(ended) => {
                self.cover.hit(names::ended(&ended));
                note!(self, "host {host} closes its connection: {ended}");
                self.give_up_link(host, None);
            }
        }
    }
}
