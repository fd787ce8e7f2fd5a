//! From a dial to an accepted connection (wire §5.1, steps 2–8).

use palisade_core::session::hub::Connection;
use palisade_core::session::hub::upgrade::{Refusal, handshake};
use palisade_core::wire::payload::Identity;

use super::calls::Purpose;
use super::hub::HubConnection;
use crate::plan::Page;
use crate::sabotage::Sabotage;
use crate::world::host::Answered;
use crate::world::store::Denied;
use crate::world::{Event, World, note};

impl World {
    /// A dial arrives.
    pub(in crate::world) fn dialled(&mut self, link: usize) {
        let core = self.links[link].core;
        let process = &self.cores[core];
        if process.alive && process.frozen_until > self.now {
            let at = process.frozen_until;
            return self.queue.push(at, Event::Dial { link });
        }
        if !process.alive || self.is_stopping(core) {
            return self.answer_dial(link, Answered::Nobody);
        }
        self.links[link].core_life = self.cores[core].life;
        self.ask_store(core, Purpose::Dial { link });
    }

    pub(super) fn refuse_dial(&mut self, link: usize, refusal: Refusal) {
        let status = refusal.status();
        self.cover.hit(match refusal {
            Refusal::Unavailable => "core refuses a dial: 503",
            Refusal::Credential => "core refuses a dial: 401",
            Refusal::InUse => "core refuses a dial: 409",
            Refusal::Origin => "core refuses a dial: 403",
            Refusal::NotWebSocket => "core refuses a dial: 400",
        });
        note!(self, "core answers the dial on connection {link} with {status}");
        let body = format!(
            r#"{{"error":{{"message":"{}","type":"{}","code":null,"param":null}}}}"#,
            refusal.message(),
            refusal.kind()
        );
        self.answer_dial(link, Answered::Page { status, body, from_core: true });
    }

    pub(super) fn authenticated(&mut self, core: usize, link: usize, identity: Result<Identity<'static>, Denied>) {
        match self.open(core, link, identity) {
            Ok(()) => {}
            Err(refusal) => self.refuse_dial(link, refusal),
        }
    }

    fn open(&mut self, core: usize, link: usize, identity: Result<Identity<'static>, Denied>) -> Result<(), Refusal> {
        let identity = identity.map_err(|denied| match denied {
            Denied::Rejected => Refusal::Credential,
            Denied::Failed => Refusal::Unavailable,
        })?;
        let host = self.links[link].host;
        let node = self.hosts[host].identity.node;
        let owner_epoch = self.cores[core].lease.ok_or(Refusal::Unavailable)?;
        let first = self.cores[core].connections.iter().find(|(_, held)| held.node == node).map(|(link, _)| *link);
        let reserved = self.cores[core].reservations.reserve(node);
        let ticket = match (reserved, self.sabotage) {
            (Err(_), Some(Sabotage::CoreAcceptsTwice)) if first.is_some() => {
                let first = first.expect("matched above");
                self.cores[core].connections[&first].ticket
            }
            (Err(refused), _) => {
                self.books.conflict(core, node, first);
                self.judge_conflict(core, first);
                return Err(refused.into());
            }
            (Ok(ticket), _) => ticket,
        };
        let mangled = self.hosts[host].proxy.filter(|(_, until)| *until > self.now).map(|(page, _)| page);
        if let Err(refusal) = handshake(mangled == Some(Page::AddsOrigin), mangled != Some(Page::StripsUpgrade)) {
            self.cores[core].reservations.release(node, ticket);
            return Err(refusal);
        }
        let connection_id = self.core_id();
        let machine = Connection::new(self.core_now(core), identity, connection_id, owner_epoch);
        self.links[link].core_open = true;
        self.cores[core].connections.insert(link, HubConnection::new(node, ticket, machine));
        self.books.accepted(core, link, node);
        note!(self, "core {core} accepts connection {link} of host {host} under epoch {owner_epoch}");
        self.answer_dial(link, Answered::Upgraded);
        self.pump_connection(core, link);
        Ok(())
    }

    /// The answer travels, unless it is lost.
    fn answer_dial(&mut self, link: usize, answer: Answered) {
        let host = self.links[link].host;
        let lost = self.hosts[host].lose_dial || self.network_luck.chance(self.weather.lost_dial);
        if lost || self.links[link].down.dead {
            self.hosts[host].lose_dial = false;
            self.cover.hit("fault: answer to a dial lost");
            return;
        }
        let latency = self.latency();
        self.dial_answered_later(link, self.now + latency, answer);
    }
}
