//! The planned events of a history, and the calm after them.

use palisade_core::lifecycle::CallError;
use palisade_core::operation::Operation;
use palisade_core::units::Id;
use palisade_core::wire::payload::{Diagnostic, Instance, ObservationTarget, Reference, Suspend};

use super::core::{Caller, CoreEvent};
use super::net::Parcel;
use super::store::Told;
use super::{Event as Happening, World, note};
use crate::coverage::names;
use crate::plan::{Direction, Event, Party, Weather};
use crate::sabotage::Sabotage;

impl World {
    pub(super) fn planned(&mut self, number: usize) {
        let event = self.plan.events[number].1;
        if let Some(until) = self.sleeps_until(event) {
            return self.queue.push(until, Happening::Planned(number));
        }
        note!(self, "--- {event}");
        self.cover.hit(names::planned(&event));
        match event {
            Event::CreateSession
            | Event::PostTurn { .. }
            | Event::CancelTurns { .. }
            | Event::DeleteSession { .. }
            | Event::Ask { .. } => self.client_event(event),
            Event::ChangeTarget
            | Event::Archive { .. }
            | Event::StartReset
            | Event::CancelReset
            | Event::RemoveNode { .. }
            | Event::PauseAdmission { .. } => self.operator_event(event),
            Event::CrashCore { core } => self.crash(Party::Core(core)),
            Event::StopCore { core } => self.stop_core(core),
            Event::SuspendCore { core, ms } => self.freeze_core(core, ms),
            Event::LoseLock => self.store.lock = None,
            Event::StoreOutage { ms } => self.store.silent_until = self.store.silent_until.max(self.now + ms),
            Event::WallClockJump { ms } => self.store.jump(ms),
            Event::CrashNode { .. }
            | Event::StopNode { .. }
            | Event::NodeAway { .. }
            | Event::Reboot { .. }
            | Event::SuspendHost { .. }
            | Event::ClockJump { .. }
            | Event::EngineDown { .. }
            | Event::ProbesFail { .. }
            | Event::HostMeasuresSlowly { .. }
            | Event::DiskFails { .. }
            | Event::SandboxStops { .. } => self.host_fault(event),
            Event::Cut { host, inside } => self.cut(host, inside),
            Event::HalfOpen { host, direction } => self.on_pipes(host, direction, |pipe, _| pipe.kill()),
            Event::Stall { host, direction, ms } => {
                self.on_pipes(host, direction, |pipe, now| pipe.stalled_until = now + ms);
            }
            Event::Block { host, direction, ms } => {
                self.on_pipes(host, direction, |pipe, now| pipe.blocked_until = now + ms);
            }
            Event::Proxy { host, page, ms } => self.hosts[host].proxy = Some((page, self.now + ms)),
            Event::LoseNextDial { host } => self.hosts[host].lose_dial = true,
            Event::Send { host, hostile } => self.hostile(host, hostile),
            Event::Arm(Party::Core(core), trap, left) => self.cores[core].trap = Some((trap, left)),
            Event::Arm(Party::Node(host), trap, left) => self.hosts[host].trap = Some((trap, left)),
        }
    }

    /// Whoever is frozen hears a signal when it wakes.
    fn sleeps_until(&self, event: Event) -> Option<u64> {
        let until = match event {
            Event::StopCore { core } => self.cores[core].frozen_until,
            Event::StopNode { host } => self.hosts[host].frozen_until,
            _ => 0,
        };
        (until > self.now).then_some(until)
    }

    fn client_event(&mut self, event: Event) {
        let now = self.now;
        let told = match event {
            Event::CreateSession => {
                let ids = [self.ids.id(), self.ids.id()];
                self.store.create_session(ids, now)
            }
            Event::PostTurn { session, timeout_ms } => {
                let id = self.ids.id();
                match self.some_session(session) {
                    Some(at) => {
                        let told = self.store.post_turn(at, id, timeout_ms, now);
                        if told == Told::Done {
                            self.books.turn_posted(id);
                        }
                        told
                    }
                    None => Told::Refused("no session"),
                }
            }
            Event::CancelTurns { session } => self.on_session(session, |store, at| {
                store.cancel_turns(at);
                Told::Done
            }),
            Event::DeleteSession { session } => self.on_session(session, super::store::Store::delete_session),
            Event::Ask { session, callers, unsupported, patience_ms } => {
                if let Some(at) = self.some_session(session) {
                    self.ask_many(at, callers, unsupported, patience_ms);
                }
                Told::Done
            }
            _ => Told::Done,
        };
        self.after_write(told);
    }

    fn operator_event(&mut self, event: Event) {
        let now = self.now;
        let told = match event {
            Event::ChangeTarget if self.store.reset.is_some() => Told::Refused("sandbox_reset_in_progress"),
            Event::ChangeTarget => {
                self.store.select();
                Told::Done
            }
            Event::Archive { session } => self.on_session(session, |store, at| {
                store.archive(at);
                Told::Done
            }),
            Event::StartReset => self.store.start_reset(now),
            Event::CancelReset => {
                self.store.reset = None;
                Told::Done
            }
            Event::RemoveNode { host } => {
                let node = self.hosts[host].identity.node;
                let told = self.store.remove_node(node);
                if told == Told::Done {
                    self.books.node_removed(node);
                    self.disconnect_everywhere(node);
                }
                told
            }
            Event::PauseAdmission { ms } => {
                self.store.paused = true;
                self.paused_until = now + ms;
                Told::Done
            }
            _ => Told::Done,
        };
        self.after_write(told);
    }

    fn on_session(&mut self, number: usize, act: impl FnOnce(&mut super::store::Store, usize) -> Told) -> Told {
        match self.some_session(number) {
            Some(at) => act(&mut self.store, at),
            None => Told::Refused("no session"),
        }
    }

    fn after_write(&mut self, told: Told) {
        if self.store.paused && self.paused_until <= self.now {
            self.store.paused = false;
        }
        if let Told::Refused(code) = told {
            self.cover.hit(code);
        }
        self.books.committed(&self.store, self.now);
        self.tell_owners();
    }

    fn disconnect_everywhere(&mut self, node: Id) {
        for core in 0..self.cores.len() {
            if self.cores[core].frozen_until > self.now {
                self.core_later(core, self.now, CoreEvent::Disconnect(node));
            } else {
                self.disconnect(core, node);
            }
        }
    }

    /// Callers outside the owner ask a Core for something at one moment.
    fn ask_many(&mut self, session: usize, callers: usize, unsupported: bool, patience_ms: u64) {
        let asked = crate::random::index(self.luck.below(self.cores.len() as u64));
        let owner = (0..self.cores.len()).find(|core| self.cores[*core].lease.is_some());
        let by_owner = self.luck.chance(800);
        let core = owner.filter(|_| by_owner).unwrap_or(asked);
        if !self.cores[core].alive || self.is_stopping(core) || self.cores[core].frozen_until > self.now {
            return;
        }
        let work = self.store.work(session, self.now);
        let (Some(placement), Some(reference)) = (work.placement, work.reference) else { return };
        for _ in 0..callers {
            let id = self.ids.id();
            let operation = match (unsupported, self.luck.chance(500)) {
                (true, true) => Operation::SavePreparation("key".to_owned()),
                (true, false) => suspend(reference, id),
                (false, _) if callers < 4 && self.luck.chance(300) => Operation::Renew,
                (false, _) => observe(reference, self.store.installation),
            };
            let asked = self.dispatch(core, id, placement, reference, operation, patience_ms, Caller::Client);
            if let Err(refusal) = asked {
                self.cover.hit(names::refusal(&refusal));
                self.cover.hit(names::outcome(&Err(CallError::Refused(refusal))));
            }
        }
    }

    fn freeze_core(&mut self, core: usize, ms: u64) {
        let frozen = self.cores[core].frozen_until.max(self.now);
        let until = frozen.max(self.now + ms);
        self.cores[core].frozen_until = until;
        self.books.core_frozen(core, until - frozen);
        self.queue.push(until, Happening::ThawCore(core));
    }

    fn host_fault(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::CrashNode { host } => self.crash(Party::Node(host)),
            Event::StopNode { host } => self.stop_node(host),
            Event::NodeAway { host, ms } => {
                self.hosts[host].away_until = now + ms;
                self.end_node(host);
            }
            Event::Reboot { host } => self.reboot(host),
            Event::SuspendHost { host, ms } => {
                let until = self.hosts[host].frozen_until.max(now + ms);
                self.hosts[host].frozen_until = until;
                if self.sabotage == Some(Sabotage::ClockStopsInSuspend) {
                    self.books.clock_stood_still(host, ms);
                    self.hosts[host].clock.stand_still(ms);
                }
                self.queue.push(until, Happening::ThawHost(host));
            }
            Event::ClockJump { host, ms } => {
                self.hosts[host].clock.jump(ms);
                self.books.clock_jumped(host, ms, self.host_now(host).0);
                if let Some(process) = &mut self.hosts[host].process {
                    process.wake = Some(now);
                    self.host_later(host, now, super::host::HostEvent::Wake(now));
                }
            }
            Event::EngineDown { host, ms } => self.hosts[host].engine.down_until = now + ms,
            Event::ProbesFail { host, ms, image } => {
                if image {
                    self.hosts[host].engine.lose_image(ms + now);
                } else {
                    self.hosts[host].probes_fail = (now + ms, Some(Diagnostic::KvmUnavailable));
                }
            }
            Event::HostMeasuresSlowly { host, ms } => self.hosts[host].measures_slowly_until = now + ms,
            Event::DiskFails { host, ms } => self.hosts[host].disk_fails_until = now + ms,
            Event::SandboxStops { session } => {
                let Some(at) = self.some_session(session) else { return };
                let Some(id) = self.store.sessions[at].allocation.as_ref().map(|held| held.id) else { return };
                for host in 0..self.hosts.len() {
                    self.stop_sandboxes(host, Some(id));
                }
            }
            _ => {}
        }
    }

    /// A reset connection, sometimes inside a message.
    pub(super) fn cut(&mut self, host: usize, inside: bool) {
        let Some(link) = self.open_link(host) else { return };
        let now = self.now;
        for up in [true, false] {
            let pipe = self.links[link].pipe(up);
            pipe.flight.clear();
            if pipe.dead {
                continue;
            }
            if inside && let Some(at) = pipe.send(Parcel::Fragment, now, 1) {
                self.queue.push(at, Happening::Arrive { link, up });
            }
            let late = 2 + self.network_luck.below(200);
            if let Some(at) = self.links[link].pipe(up).send(Parcel::End, now, late) {
                self.queue.push(at, Happening::Arrive { link, up });
            }
            self.links[link].pipe(up).dead = true;
        }
    }

    fn on_pipes(&mut self, host: usize, direction: Direction, act: impl Fn(&mut super::net::Pipe, u64)) {
        let Some(link) = self.open_link(host) else { return };
        let now = self.now;
        if matches!(direction, Direction::Up | Direction::Both) {
            act(&mut self.links[link].up, now);
        }
        if matches!(direction, Direction::Down | Direction::Both) {
            act(&mut self.links[link].down, now);
        }
    }

    pub(super) fn crash(&mut self, party: Party) {
        match party {
            Party::Core(core) => self.end_core(core, true),
            Party::Node(host) => self.end_node(host),
        }
    }

    /// From here on nothing goes wrong any more, and operators put right what only they can.
    pub(super) fn calm_down(&mut self) {
        let frozen = self.cores.iter().map(|core| core.frozen_until);
        let hosts = self.hosts.iter().map(|host| host.frozen_until.max(host.away_until));
        let frozen = frozen.chain(hosts).max().unwrap_or(0);
        if frozen > self.now {
            return self.queue.push(frozen + 1, Happening::Quiet);
        }
        note!(self, "--- from here on nothing goes wrong any more");
        self.quiet = true;
        self.weather = Weather { latency_ms: 5, ..Weather::default() };
        self.store.silent_until = 0;
        (self.store.paused, self.store.reset) = (false, None);
        for core in 0..self.cores.len() {
            self.cores[core].trap = None;
        }
        if !self.store.configured {
            self.store.select();
        }
        for host in 0..self.hosts.len() {
            // The next request would close it, at a time of its own.
            if self.open_link(host).is_some_and(|link| self.links[link].deceived) {
                self.cut(host, false);
            }
            self.heal_host(host);
        }
        for link in &mut self.links {
            for up in [true, false] {
                let pipe = link.pipe(up);
                (pipe.stalled_until, pipe.blocked_until) = (0, 0);
            }
        }
        self.books.quiet(self.now);
        self.tell_owners();
    }

    fn heal_host(&mut self, host: usize) {
        let place = &mut self.hosts[host];
        (place.trap, place.proxy, place.lose_dial) = (None, None, false);
        (place.probes_fail, place.measures_slowly_until, place.disk_fails_until) = ((0, None), 0, 0);
        place.engine.down_until = 0;
        place.disk.inspect();
        let copy = self.plan.shape.cloned && host + 1 == self.hosts.len();
        let removed = self.store.nodes.get(&self.hosts[host].identity.node).is_none_or(|row| row.removed);
        if copy {
            self.hosts[host].rejected = true;
            self.end_node(host);
        } else if removed {
            self.end_node(host);
            if let Some(identity) = self.enroll(host) {
                self.hosts[host].identity = identity;
                self.hosts[host].install();
                self.hosts[host].rejected = false;
                self.books.enrolled_again(host);
                self.queue.push(self.now + 500, Happening::StartNode(host));
            }
        }
    }
}

fn observe(reference: Reference, installation: Id) -> Operation<'static> {
    Operation::Observe(Box::new(ObservationTarget {
        tenant_id: reference.tenant.to_string().into(),
        session_id: reference.environment.to_string().into(),
        environment_id: reference.environment.to_string().into(),
        mode: "openai_hosted".into(),
        instance: Instance {
            allocation_id: reference.allocation.to_string().into(),
            provider_key: installation.to_string().into(),
            connection_generation: "".into(),
            allocation_state: "running".into(),
            allocation_created_at: "2026-10-01T08:00:00Z".into(),
            compute_phase: "disabled".into(),
            provider_state: "null".into(),
        },
        token_usage_present: false,
    }))
}

fn suspend(reference: Reference, id: Id) -> Operation<'static> {
    Operation::Suspend(Box::new(Suspend {
        reference: reference.into(),
        operation_id: id.to_string().into(),
        source: palisade_core::wire::payload::Compute {
            generation: 0,
            name: "name".into(),
            id: "native".into(),
            restored_from: None,
        },
        snapshot: None,
        observe_only: false,
    }))
}
