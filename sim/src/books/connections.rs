//! What crossed each connection, from both ends.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::units::Id;

use super::Books;
use super::frame::{Duty, Frame, references};
use crate::clock::Time;
use crate::world::store::Store;

/// What a node asked of a retention exchange: id, sequence, generations with their digests.
pub(crate) type Asked = (String, u64, Vec<(u64, String)>);

/// One connection.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the two ends")]
#[derive(Debug, Default)]
pub(super) struct LinkBook {
    pub(super) core: usize,
    pub(super) connection: String,
    pub(super) epoch: u64,
    /// What the node was told, which a hostile peer may have altered.
    pub(super) told: (String, u64),
    pub(super) welcomed: bool,
    /// Of the last request that Core wrote, and that the node read.
    sent: u64,
    pub(super) read: u64,
    /// Of the last retention request that Core read.
    asked_at_core: u64,
    /// What the node asked and was not answered: id, sequence, references.
    pub(super) asked: Option<Asked>,
    /// What an accepted answer granted, and was not used up.
    pub(super) granted: BTreeSet<u64>,
    /// Target, digest and serving pin that the node accepted last.
    pub(super) target: (u64, String, u64),
    /// Requests that Core wrote and that were not answered.
    pub(super) pending: BTreeSet<String>,
    /// Requests that wait at Core, sent or not.
    waiting: usize,
    pub(super) node_closed: bool,
    core_closed: bool,
    close_by: Option<(Time, &'static str)>,
    /// When Core read something last.
    heard: Time,
    said: bool,
    last_health: BTreeMap<u64, bool>,
    pub(super) ready: BTreeMap<u64, bool>,
    dropping: Vec<u64>,
    forged: u64,
    pub(super) last_request: Option<Vec<u8>>,
    pub(super) last_ack: Option<Vec<u8>>,
    pub(super) last_response: Option<Vec<u8>>,
}

/// What a hostile peer may know of a connection.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connection: String,
    pub(crate) epoch: u64,
    pub(crate) read: u64,
    pub(crate) asked: Option<Asked>,
    pub(crate) target: (u64, String, u64),
    pub(crate) pending: Option<String>,
    pub(crate) last_request: Option<Vec<u8>>,
    pub(crate) last_ack: Option<Vec<u8>>,
    pub(crate) last_response: Option<Vec<u8>>,
}

impl Books {
    pub(crate) fn seen(&mut self, link: usize) -> Seen {
        let book = self.link(link);
        Seen {
            connection: book.connection.clone(),
            epoch: book.epoch,
            read: book.read,
            asked: book.asked.clone(),
            target: book.target.clone(),
            pending: book.pending.first().cloned(),
            last_request: book.last_request.clone(),
            last_ack: book.last_ack.clone(),
            last_response: book.last_response.clone(),
        }
    }

    /// A request, altered as if it were fenced correctly. A fault that is planted.
    pub(crate) fn as_if_fenced(&mut self, link: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut frame: serde_json::Value =
            serde_json::from_slice(bytes).ok().filter(|frame: &serde_json::Value| frame["type"] == "request")?;
        let book = self.link(link);
        book.forged += 1;
        frame["request"]["sequence"] = book.forged.into();
        frame["request"]["owner_epoch"] = book.told.1.into();
        frame["request"]["connection_id"] = book.told.0.clone().into();
        serde_json::to_vec(&frame).ok()
    }

    /// A retention answer, altered as if it answered the pending exchange. A fault that is planted.
    pub(crate) fn as_if_asked(&mut self, link: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut frame: serde_json::Value =
            serde_json::from_slice(bytes).ok().filter(|frame: &serde_json::Value| frame["type"] == "retention_ack")?;
        let book = self.link(link);
        let (id, sequence, _) = book.asked.clone()?;
        frame["control"]["id"] = id.into();
        frame["control"]["sequence"] = sequence.into();
        frame["control"]["owner_epoch"] = book.told.1.into();
        frame["control"]["connection_id"] = book.told.0.clone().into();
        serde_json::to_vec(&frame).ok()
    }

    pub(super) fn link(&mut self, link: usize) -> &mut LinkBook {
        if self.links.len() <= link {
            self.links.resize_with(link + 1, LinkBook::default);
        }
        &mut self.links[link]
    }

    /// Promise 1: never two accepted connections of one identity in one Core.
    pub(crate) fn accepted(&mut self, core: usize, link: usize, node: Id) {
        let book = self.link(link);
        book.core = core;
        self.not_while_stopping(core, link);
        let earlier = self.accepted.insert((core, node), link);
        self.require(earlier.is_none(), "promise 1", || {
            format!("core {core} accepted connection {link} beside connection {earlier:?} of one node")
        });
    }

    /// E1: a conflict clears 35 s after the old socket went silent, and the storage calls that follow.
    pub(crate) fn conflict(&mut self, core: usize, node: Id, first: Option<usize>) {
        let held = self.accepted.get(&(core, node)).copied();
        self.require(held.is_some() && held == first, "promise 1", || {
            format!("core {core} refused a dial because of connection {first:?}, but {held:?} is the accepted one")
        });
    }

    /// How long ago Core read something on the connection.
    pub(crate) fn silent_for(&self, link: usize, now: Time) -> Option<u64> {
        self.links.get(link).filter(|book| book.said).map(|book| now - book.heard)
    }

    pub(crate) fn core_gone(&mut self, link: usize) {
        self.accepted.retain(|_, held| *held != link);
        let book = self.link(link);
        (book.core_closed, book.close_by) = (true, None);
        book.pending.clear();
    }

    pub(crate) fn core_closed(&mut self, link: usize, _: Time) {
        let book = self.link(link);
        (book.core_closed, book.close_by, book.waiting) = (true, None, 0);
        book.pending.clear();
    }

    pub(crate) fn node_closed(&mut self, link: usize) {
        let book = self.link(link);
        book.node_closed = true;
        book.asked = None;
        book.granted.clear();
    }

    /// A frame that Core writes.
    pub(crate) fn core_writes(&mut self, core: usize, link: usize, bytes: &[u8], now: Time) {
        let frame = match Frame::read(bytes) {
            Ok(frame) => frame,
            Err(why) => return self.fail("promise 9", format!("core {core} writes no frame: {why}")),
        };
        let overdue = self.link(link).close_by.filter(|_| frame.kind == "heartbeat_ack");
        self.require(overdue.is_none(), "promise 9", || format!("core {core} answers on {link} after {overdue:?}"));
        match frame.kind.as_str() {
            "welcome" => {
                let (connection, epoch) = (frame.text(&["connection_id"]).to_owned(), frame.number(&["owner_epoch"]));
                let book = self.link(link);
                (book.connection, book.epoch, book.heard, book.said) = (connection, epoch, now, true);
            }
            "request" => self.core_writes_request(core, link, bytes, &frame),
            "retention_ack" => {
                let dropped = references(frame.at(&["control", "retentions"]));
                let dropped = dropped.iter().filter(|entry| entry.2 == Some(false)).map(|entry| entry.0).collect();
                self.link(link).dropping = dropped;
            }
            _ => {}
        }
    }

    fn core_writes_request(&mut self, core: usize, link: usize, bytes: &[u8], frame: &Frame) {
        let book = self.link(link);
        let (expected, got) = (book.sent + 1, frame.number(&["request", "sequence"]));
        let own = frame.text(&["request", "connection_id"]) == book.connection
            && frame.number(&["request", "owner_epoch"]) == book.epoch;
        book.sent = got;
        book.last_request = Some(bytes.to_vec());
        let id = frame.text(&["request", "id"]).to_owned();
        book.pending.insert(id.clone());
        self.require(got == expected && own, "promise 3", || {
            format!("core {core} writes request {got} on connection {link}, expected {expected}")
        });
        self.request_sent(&id, frame);
    }

    /// A part of a message is a sign of life.
    pub(crate) fn core_hears(&mut self, link: usize, now: Time) -> Duty {
        self.link(link).heard = now;
        Duty::None
    }

    /// What Core owes for what it reads.
    pub(crate) fn core_reads(&mut self, core: usize, link: usize, bytes: &[u8], now: Time) -> Duty {
        let frame = match Frame::read(bytes) {
            Ok(frame) => frame,
            Err(why) => return Duty::Close(why),
        };
        let book = self.link(link);
        book.core = core;
        let live = !book.connection.is_empty();
        let (said, asked) = (book.said, book.asked_at_core);
        (book.heard, book.said) = (now, true);
        let own = frame.text(&["connection_id"]) == book.connection;
        match frame.kind.as_str() {
            "hello" if !live && !said => {
                self.note_health(link, &frame);
                let strange = frame.text(&["identity", "backend_fingerprint"]).starts_with('2');
                if strange { Duty::Close("another identity") } else { Duty::None }
            }
            "heartbeat" if live && !own => Duty::Close("a heartbeat of another connection"),
            "heartbeat" if live && frame.number(&["owner_epoch"]) != book.epoch => {
                Duty::CloseSoon("a heartbeat of another epoch")
            }
            "heartbeat" if live => {
                self.note_health(link, &frame);
                Duty::None
            }
            "retention" if live => {
                let fenced = frame.text(&["control", "connection_id"]) != book.connection
                    || frame.number(&["control", "owner_epoch"]) != book.epoch
                    || frame.number(&["control", "sequence"]) != asked + 1;
                book.asked_at_core = frame.number(&["control", "sequence"]);
                if fenced { Duty::Close("a retention request out of order") } else { Duty::None }
            }
            "response" if live => self.core_reads_response(link, bytes, &frame),
            _ => Duty::Close("a misplaced frame"),
        }
    }

    fn core_reads_response(&mut self, link: usize, bytes: &[u8], frame: &Frame) -> Duty {
        let book = self.link(link);
        if frame.text(&["response", "connection_id"]) != book.connection {
            return Duty::Close("a response of another connection");
        }
        book.last_response = Some(bytes.to_vec());
        let id = frame.text(&["response", "id"]).to_owned();
        let first = book.pending.remove(&id);
        if first {
            self.response_read(&id, frame);
        }
        Duty::Keep("a response, awaited or not")
    }

    fn note_health(&mut self, link: usize, frame: &Frame) {
        let mut said = BTreeMap::new();
        for entry in frame.at(&["health", "generations"]).as_array().into_iter().flatten() {
            said.insert(entry["generation"].as_u64().unwrap_or(0), entry["state"] == "ready");
        }
        self.link(link).last_health = said;
    }

    /// What Core did about the frame that it read.
    pub(crate) fn core_did(&mut self, core: usize, link: usize, duty: Duty, open: bool, now: Time) {
        match duty {
            Duty::None => {}
            Duty::Close(why) => self.require(!open, "promise 9", || format!("core {core} stays connected after {why}")),
            Duty::Keep(why) => {
                let closed = self.link(link).core_closed;
                self.require(open || closed, "promise 9", || format!("core {core} closes because of {why}"));
            }
            Duty::CloseSoon(why) => {
                if open {
                    self.link(link).close_by = Some((now + 25_000, why));
                    self.closing.insert(link);
                }
            }
        }
    }

    /// Promise 14, first half: what was said last of a generation that Core keeps.
    pub(crate) fn recorded(&mut self, link: usize, kept: &[u64]) {
        let book = self.link(link);
        for (generation, ready) in &book.last_health {
            if kept.contains(generation) {
                book.ready.insert(*generation, *ready);
            } else {
                book.ready.remove(generation);
            }
        }
    }

    /// The answer to a retention request was written: what it dropped is forgotten.
    pub(crate) fn retention_written(&mut self, link: usize) {
        let book = self.link(link);
        for generation in std::mem::take(&mut book.dropping) {
            book.ready.remove(&generation);
        }
    }

    /// Promise 14: a generation that was left out keeps its last word.
    pub(crate) fn readiness(&mut self, link: usize, is_ready: impl Fn(u64) -> bool) {
        let Some(book) = self.links.get(link) else { return };
        let wrong =
            book.ready.iter().find(|(generation, ready)| is_ready(**generation) != **ready).map(|(g, r)| (*g, *r));
        if let Some((generation, ready)) = wrong {
            self.fail(
                "promise 14",
                format!("connection {link}: generation {generation} was said to be ready: {ready}"),
            );
        }
    }

    /// Whoever is frozen closes nothing, and has as much time left afterwards as before.
    pub(crate) fn core_frozen(&mut self, core: usize, ms: u64) {
        self.stop_delayed(core, ms);
        for book in self.links.iter_mut().filter(|book| book.core == core) {
            book.close_by = book.close_by.map(|(by, why)| (by + ms, why));
        }
    }

    /// Connections that had to be closed and were not.
    pub(crate) fn overdue(&mut self, now: Time) {
        self.closing.retain(|link| self.links[*link].close_by.is_some());
        let due = self.closing.iter().filter_map(|link| self.links[*link].close_by.map(|(by, why)| (*link, by, why)));
        let late = due.filter(|(_, by, _)| *by < now).map(|(link, _, why)| (link, why)).next();
        if let Some((link, why)) = late {
            self.fail("promise 9", format!("connection {link} is still open after {why}"));
        }
    }

    /// What the node owes for what it reads.
    pub(crate) fn node_reads(&mut self, host: usize, link: usize, bytes: &[u8], now: u64, store: &Store) -> Duty {
        let frame = match Frame::read(bytes) {
            Ok(frame) => frame,
            Err(why) => return Duty::Close(why),
        };
        let book = self.link(link);
        let welcomed = book.welcomed;
        let own = frame.text(&["connection_id"]) == book.told.0;
        let same_epoch = frame.number(&["owner_epoch"]) == book.told.1;
        match frame.kind.as_str() {
            "welcome" if !welcomed => self.node_reads_welcome(host, link, &frame, now),
            "heartbeat_ack" if welcomed && !own => Duty::Close("an acknowledgement of another connection"),
            "heartbeat_ack" if welcomed && !same_epoch => Duty::Close("an acknowledgement of another epoch"),
            "heartbeat_ack" if welcomed => self.node_reads_facts(link, &frame),
            "retention_ack" if welcomed => self.node_reads_retention(link, bytes, &frame),
            "request" if welcomed => self.node_reads_request(host, link, &frame, now, store),
            _ => Duty::Close("a misplaced frame"),
        }
    }

    fn node_reads_welcome(&mut self, host: usize, link: usize, frame: &Frame, now: u64) -> Duty {
        let epoch = frame.number(&["owner_epoch"]);
        let book = self.link(link);
        book.welcomed = true;
        book.told = (frame.text(&["connection_id"]).to_owned(), epoch);
        let known = self.host(host).known_epoch;
        if epoch < known {
            return Duty::Close("an epoch lower than the known one");
        }
        let duty = self.node_reads_facts(link, frame);
        self.welcomed(host, link, epoch, now);
        if matches!(duty, Duty::Close(_)) { Duty::None } else { duty }
    }

    /// Target, digest and serving pin.
    pub(super) fn node_reads_facts(&mut self, link: usize, frame: &Frame) -> Duty {
        let facts = frame.at(&["deployment"]);
        let target = facts["generation"].as_u64().unwrap_or(0);
        let digest = facts["specification_digest"].as_str().unwrap_or_default().to_owned();
        let serving = facts["serving_generation"].as_u64().unwrap_or(0);
        let book = self.link(link);
        if serving > target {
            return Duty::Close("a serving pin above the target");
        }
        if target < book.target.0 {
            return Duty::Keep("an older target");
        }
        if target == book.target.0 && digest != book.target.1 {
            return Duty::Close("another digest of the target");
        }
        book.target = (target, digest, serving);
        Duty::None
    }

    /// Promise 5: only the whole answer to exactly what was asked counts.
    fn node_reads_retention(&mut self, link: usize, bytes: &[u8], frame: &Frame) -> Duty {
        let entries = references(frame.at(&["control", "retentions"]));
        let book = self.link(link);
        let own = frame.text(&["control", "connection_id"]) == book.told.0
            && frame.number(&["control", "owner_epoch"]) == book.told.1;
        let answers = book.asked.as_ref().is_some_and(|(id, sequence, asked)| {
            frame.text(&["control", "id"]) == id
                && frame.number(&["control", "sequence"]) == *sequence
                && entries.iter().map(|entry| (entry.0, &entry.1)).eq(asked.iter().map(|(of, digest)| (*of, digest)))
        });
        if !own || !answers {
            return Duty::Close("a retention answer that is not the one asked for");
        }
        let duty = self.node_reads_facts(link, frame);
        if matches!(duty, Duty::Close(_)) {
            return duty;
        }
        let book = self.link(link);
        book.asked = None;
        book.last_ack = Some(bytes.to_vec());
        book.granted = entries.iter().filter(|entry| entry.2 == Some(false)).map(|entry| entry.0).collect();
        Duty::None
    }

    /// What the node did about the frame that it read.
    pub(crate) fn node_did(&mut self, host: usize, link: usize, duty: Duty, open: bool) {
        match duty {
            Duty::None | Duty::CloseSoon(_) => {}
            Duty::Close(why) => self.require(!open, "promise 3, 5 or 9", || {
                format!("the node of host {host} stays connected on {link} after {why}")
            }),
            Duty::Keep(why) => self.require(open, "promise 9", || {
                format!("the node of host {host} closes connection {link} because of {why}")
            }),
        }
        let book = self.link(link);
        if book.welcomed && open {
            let epoch = book.told.1;
            let place = self.host(host);
            place.known_epoch = place.known_epoch.max(epoch);
        }
    }

    /// A frame that the node writes.
    pub(crate) fn node_writes(&mut self, host: usize, link: usize, bytes: &[u8], now: u64) {
        let frame = match Frame::read(bytes) {
            Ok(frame) => frame,
            Err(why) => return self.fail("promise 9", format!("the node of host {host} writes no frame: {why}")),
        };
        match frame.kind.as_str() {
            "heartbeat" => self.beat(host, now),
            "retention" => {
                let asked = references(frame.at(&["control", "references"]));
                let asked = asked.into_iter().map(|(generation, digest, _)| (generation, digest)).collect();
                let (id, sequence) =
                    (frame.text(&["control", "id"]).to_owned(), frame.number(&["control", "sequence"]));
                self.link(link).asked = Some((id, sequence, asked));
            }
            _ => {}
        }
    }

    /// Promise 9: a caller enters a connection where 32 wait only to be refused.
    pub(crate) fn submitted(&mut self, link: usize, id: Id, waiting: usize, _: u64, _: u64) {
        self.requests.full.retain(|_, held| *held != link);
        if waiting >= 32 {
            self.requests.full.insert(id.to_string(), link);
        }
    }
}
