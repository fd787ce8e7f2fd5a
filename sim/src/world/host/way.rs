//! The way from a node to Core: dials, the open connection, and its end.

use palisade_core::session::backoff::Refused;
use palisade_core::units::Millis;

use super::HostEvent;
use crate::books::Duty;
use crate::clock::Time;
use crate::coverage::names;
use crate::plan::{Page, Party, Trap};
use crate::random::index;
use crate::sabotage::Sabotage;
use crate::world::net::{Link, Parcel};
use crate::world::{Event, World, note};

/// Where the way to Core stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Waiting,
    Dialling {
        link: usize,
        since: Millis,
    },
    Open {
        link: usize,
        since: Millis,
    },
    /// The node ends.
    Closed,
}

/// What a dial came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answered {
    Upgraded,
    Page {
        status: u16,
        body: String,
        from_core: bool,
    },
    /// Nobody listens there.
    Nobody,
}

const DIAL_TIMEOUT_MS: u64 = 10_000;
const WRITE_TIMEOUT_MS: u64 = 10_000;

impl World {
    pub(super) fn dial(&mut self, host: usize) {
        let since = self.host_now(host);
        let Some(process) = &self.hosts[host].process else { return };
        if process.way != Way::Waiting {
            return;
        }
        let number = process.number;
        let core = self.balance();
        let link = self.links.len();
        let life = self.hosts[host].life;
        self.links.push(Link::new(host, (life, number), core, 0));
        self.books.dialled(host, self.now);
        if let Some(process) = &mut self.hosts[host].process {
            process.way = Way::Dialling { link, since };
            process.inbox.clear();
        }
        self.effect(Party::Node(host), Trap::Sent);
        let timeout = self.hosts[host].clock.when(since.after(DIAL_TIMEOUT_MS), self.now);
        self.host_later(host, timeout, HostEvent::DialTimedOut(number));
        let latency = self.latency();
        let page = self.hosts[host].proxy.filter(|(_, until)| *until > self.now).map(|(page, _)| page);
        note!(self, "host {host} dials core {core}, connection {link}");
        match page.and_then(answer_of) {
            Some(answer) => {
                self.cover.hit("fault: a proxy answers");
                self.dial_answered_later(link, self.now + latency, answer);
            }
            None => self.queue.push(self.now + latency, Event::Dial { link }),
        }
    }

    /// Mostly the owner is reached, sometimes whoever the balancer believes to be up.
    fn balance(&mut self) -> usize {
        let owner = self.store.lock.map(|(core, _)| core);
        match owner {
            Some(owner) if self.quiet || self.network_luck.chance(700) => owner,
            Some(_) | None => index(self.network_luck.below(self.cores.len() as u64)),
        }
    }

    pub(in crate::world) fn dial_answered_later(&mut self, link: usize, at: Time, answer: Answered) {
        let (host, (life, number)) = (self.links[link].host, self.links[link].attempt);
        self.queue.push(at, Event::Host(host, life, HostEvent::DialAnswered { number, answer }));
    }

    pub(super) fn dial_answered(&mut self, host: usize, answer: Answered) {
        let now = self.host_now(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        let Way::Dialling { link, since } = process.way else { return };
        match answer {
            Answered::Upgraded => {
                process.way = Way::Open { link, since };
                process.machine.handle_opened(now);
                self.cover.hit("event: connection open at the node");
            }
            Answered::Nobody => self.retry(host, None),
            Answered::Page { status, body, from_core } => self.refused(host, status, &body, from_core),
        }
    }

    fn refused(&mut self, host: usize, status: u16, body: &str, from_core: bool) {
        let credulous = self.sabotage == Some(Sabotage::NodeBelievesProxy);
        let touchy = self.sabotage == Some(Sabotage::NodeGivesUpOnConflict) && status == 409;
        let judged = Refused::judge(status, body.as_bytes());
        self.cover.hit(names::refused(judged));
        note!(self, "host {host} is answered {status}: {judged:?}");
        match judged {
            Refused::Credential => self.reject(host, status == 401 && from_core),
            Refused::Core | Refused::Between if credulous && status == 401 || touchy => self.reject(host, false),
            Refused::Core | Refused::Between => {
                let retry_after = self.hosts[host].luck.chance(200).then_some(20_000);
                self.retry(host, retry_after);
            }
        }
    }

    /// The node ends with 78 and stays away.
    fn reject(&mut self, host: usize, believed_rightly: bool) {
        self.cover.hit("node ends: credential rejected");
        self.books.node_rejected(host, believed_rightly);
        self.hosts[host].rejected = true;
        self.end_node(host);
    }

    pub(super) fn dial_timed_out(&mut self, host: usize) {
        let dialling =
            self.hosts[host].process.as_ref().is_some_and(|process| matches!(process.way, Way::Dialling { .. }));
        if dialling {
            self.cover.hit("dial timed out");
            self.retry(host, None);
        }
    }

    /// Drops what is left of the attempt and waits before the next one.
    pub(super) fn retry(&mut self, host: usize, retry_after_ms: Option<u64>) {
        let now = self.host_now(host);
        let random = self.hosts[host].luck.next();
        let Some(process) = &mut self.hosts[host].process else { return };
        let (Way::Dialling { since, .. } | Way::Open { since, .. }) = process.way else { return };
        let delay = process.backoff.next_delay_ms(now.since(since), retry_after_ms, random);
        self.close_way(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        process.number += 1;
        process.way = Way::Waiting;
        let number = process.number;
        let at = self.hosts[host].clock.when(now.after(delay), self.now);
        self.books.waits(host, delay);
        self.host_later(host, at, HostEvent::Retry(number));
    }

    /// The machine ended the connection.
    pub(super) fn give_up_link(&mut self, host: usize, retry_after_ms: Option<u64>) {
        self.retry(host, retry_after_ms);
    }

    /// The connection is gone; the machine may know already.
    pub(super) fn lose_connection(&mut self, host: usize) {
        let now = self.host_now(host);
        let Some(process) = &mut self.hosts[host].process else { return };
        process.machine.handle_closed(now);
        self.perform(host);
        self.retry(host, None);
    }

    pub(in crate::world) fn open_link(&self, host: usize) -> Option<usize> {
        match self.hosts[host].process.as_ref()?.way {
            Way::Dialling { link, .. } | Way::Open { link, .. } => Some(link),
            Way::Waiting | Way::Closed => None,
        }
    }

    /// Closes the node's side; the operating system tells the peer, if it can.
    pub(super) fn close_way(&mut self, host: usize) {
        if let Some(link) = self.open_link(host)
            && std::mem::replace(&mut self.links[link].node_open, false)
        {
            self.books.node_closed(link);
            self.transmit(link, true, Parcel::End);
        }
        if let Some(process) = &mut self.hosts[host].process {
            process.way = Way::Closed;
            process.inbox.clear();
        }
    }

    pub(in crate::world) fn node_receives(&mut self, link: usize, parcel: Parcel) {
        let host = self.links[link].host;
        if self.open_link(host) != Some(link) || !self.links[link].node_open {
            return;
        }
        let Some(process) = &mut self.hosts[host].process else { return };
        process.inbox.push_back(parcel);
        if self.hosts[host].frozen_until <= self.now {
            self.drive_node(host);
        }
    }

    pub(super) fn node_reads(&mut self, host: usize, parcel: Parcel) {
        let now = self.host_now(host);
        let Some(link) = self.open_link(host) else { return };
        self.effect(Party::Node(host), Trap::Received);
        let parcel = self.mangled(host, parcel);
        let duty = match &parcel {
            Parcel::Text(bytes) => self.books.node_reads(host, link, bytes, now.0, &self.store),
            Parcel::Binary => Duty::Close("a binary message"),
            Parcel::Malformed(_) => Duty::Close("a malformed frame"),
            Parcel::Fragment | Parcel::End => Duty::None,
        };
        match parcel {
            Parcel::Text(bytes) | Parcel::Malformed(bytes) => self.node_reads_text(host, link, now, &bytes),
            Parcel::Binary => self.with_node(host, |machine| machine.handle_binary(now)),
            Parcel::Fragment => self.with_node(host, |machine| machine.handle_fragment(now)),
            Parcel::End => return self.lose_connection(host),
        }
        self.perform(host);
        if self.is_doomed(Party::Node(host)) {
            return;
        }
        let open = self.open_link(host) == Some(link);
        self.books.node_did(host, link, duty, open);
    }

    fn node_reads_text(&mut self, host: usize, link: usize, now: Millis, bytes: &[u8]) {
        let altered = match self.sabotage {
            Some(Sabotage::NodeIgnoresFence) => self.books.as_if_fenced(link, bytes),
            Some(Sabotage::NodeTrustsStaleRetention) => self.books.as_if_asked(link, bytes),
            _ => None,
        };
        let bytes = altered.as_deref().unwrap_or(bytes);
        // A WebSocket text message is UTF-8 before anybody reads it.
        let Ok(text) = std::str::from_utf8(bytes) else { return self.lose_connection(host) };
        self.cover.hit(names::frame_at_node(bytes));
        self.with_node(host, |machine| machine.handle_message(now, text));
    }

    pub(super) fn send(&mut self, host: usize, message: Vec<u8>) {
        let Some(link) = self.open_link(host) else { return };
        let hello = message.starts_with(br#"{"version":6,"type":"hello""#);
        let mangled = hello && std::mem::take(&mut self.hosts[host].mangle_hello);
        let message = if mangled { self.mangled_hello(message) } else { message };
        let (number, bytes) = (self.number(host), message.len());
        self.books.node_writes(host, link, &message, self.host_now(host).0);
        let blocked = self.links[link].up.blocked_until.saturating_sub(self.now);
        let refused = self.links[link].reset_at_node || blocked >= WRITE_TIMEOUT_MS;
        let took = if refused { blocked.min(WRITE_TIMEOUT_MS) } else { blocked };
        if blocked > 0 && self.links[link].up.stalled_until < self.now + took {
            self.links[link].up.stalled_until = self.now + took;
        }
        if !refused {
            self.transmit(link, true, Parcel::Text(message));
        } else if blocked > 0 {
            self.cover.hit("fault: write timed out at the node");
        }
        self.effect(Party::Node(host), Trap::Sent);
        let at = self.now + took + self.network_luck.below(2);
        self.host_later(host, at, HostEvent::Written { number, bytes, written: !refused });
    }
}

/// What a page of a proxy looks like; two kinds of proxy only change the handshake.
fn answer_of(page: Page) -> Option<Answered> {
    let html = "<html><body>gateway</body></html>".to_owned();
    let (status, body) = match page {
        Page::Unauthorized => (401, html),
        Page::Forbidden => (403, html),
        Page::BadGateway => (502, html),
        Page::LikeCore => (401, r#"{"error":"unauthorized"}"#.to_owned()),
        Page::StripsUpgrade | Page::AddsOrigin => return None,
    };
    Some(Answered::Page { status, body, from_core: false })
}
