//! Frames of a hostile or broken peer, made from what crossed the connection before.

use serde_json::{Value, json};

use super::World;
use super::net::Parcel;
use crate::books::Seen;
use crate::plan::Hostile;

const PADDED: usize = 32_769;

impl World {
    /// Puts one hostile frame before whoever reads next on the connection of `host`.
    pub(super) fn hostile(&mut self, host: usize, hostile: Hostile) {
        match hostile {
            Hostile::OtherIdentity => return self.hosts[host].mangle_hello = true,
            Hostile::LowerWelcome => {
                self.hosts[host].lower_welcome = true;
                return self.cut(host, false);
            }
            Hostile::StaleWelcome => {
                self.hosts[host].mangle_welcome = true;
                return self.crash(crate::plan::Party::Node(host));
            }
            _ => {}
        }
        let live = self.hosts[host].process.as_ref().and_then(|process| process.machine.live()).is_some();
        let Some(link) = self.open_link(host).filter(|_| live) else { return };
        let seen = self.books.seen(link);
        if hostile == Hostile::Malformed {
            return self.malformed(link, &seen);
        }
        if hostile == Hostile::Flood {
            return self.flood(link, &seen);
        }
        let up = match hostile {
            Hostile::LongControl | Hostile::OtherVersion | Hostile::Garbage | Hostile::UnknownMember => {
                self.network_luck.chance(500)
            }
            _ => is_up(hostile),
        };
        let parcel = match hostile {
            Hostile::BinaryDown | Hostile::BinaryUp => Some(Parcel::Binary),
            _ => message(hostile, up, &seen).map(Parcel::Text),
        };
        let Some(parcel) = parcel else { return };
        self.cover.hit(name(hostile));
        if up {
            self.core_receives(link, parcel);
        } else {
            self.links[link].deceived = true;
            self.node_receives(link, parcel);
        }
    }

    /// More operations of one sandbox than a node has places for.
    fn flood(&mut self, link: usize, seen: &Seen) {
        self.cover.hit(name(Hostile::Flood));
        self.links[link].deceived = true;
        for more in 1..=40 {
            let id = self.ids.id().to_string();
            let frame = json!({"version": 6, "type": "request", "request": {
                "deployment_generation": seen.target.2.max(1), "sequence": seen.read + more, "owner_epoch": seen.epoch,
                "connection_id": seen.connection, "id": id, "operation": "info", "timeout_ms": 1_000,
                "reference": {"TenantID": OTHER, "EnvironmentID": OTHER, "AllocationID": OTHER}}});
            self.node_receives(link, Parcel::Text(ordered(&frame)));
        }
    }

    /// A hello of another backend under the same credential.
    pub(super) fn mangled_hello(&mut self, message: Vec<u8>) -> Vec<u8> {
        let Ok(mut frame) = serde_json::from_slice::<Value>(&message) else { return message };
        frame["identity"]["backend_fingerprint"] = json!("2".repeat(64));
        self.cover.hit(name(Hostile::OtherIdentity));
        ordered(&frame)
    }

    /// What arrives at the node, with the next welcome altered when that was planned.
    pub(super) fn mangled(&mut self, host: usize, parcel: Parcel) -> Parcel {
        match parcel {
            Parcel::Text(bytes) if std::mem::take(&mut self.hosts[host].mangle_welcome) => {
                Parcel::Text(self.mangled_welcome(host, &bytes).unwrap_or(bytes))
            }
            Parcel::Text(bytes) if self.hosts[host].lower_welcome => {
                let lower = lowered(&bytes);
                if lower.is_some() {
                    self.hosts[host].lower_welcome = false;
                    self.cover.hit(name(Hostile::LowerWelcome));
                }
                Parcel::Text(lower.unwrap_or(bytes))
            }
            parcel => parcel,
        }
    }

    /// One of many frames that break one rule of the grammar.
    fn malformed(&mut self, link: usize, seen: &Seen) {
        self.cover.hit(name(Hostile::Malformed));
        let up = self.network_luck.chance(600);
        let whole = if up { ordered(&heartbeat(seen)) } else { ordered(&acknowledgement(seen)) };
        let text = String::from_utf8(whole).unwrap_or_default();
        let (from, to) = self.network_luck.pick(if up { MALFORMED_UP } else { MALFORMED_DOWN });
        let broken = if from.is_empty() { text + to } else { text.replacen(from, to, 1) };
        let parcel = Parcel::Malformed(broken.into_bytes());
        if up {
            self.core_receives(link, parcel);
        } else {
            self.node_receives(link, parcel);
        }
    }

    /// A welcome that announces a target of long ago.
    fn mangled_welcome(&mut self, host: usize, message: &[u8]) -> Option<Vec<u8>> {
        let mut frame = serde_json::from_slice::<Value>(message).ok().filter(|frame| frame["type"] == "welcome")?;
        let (generation, digest) = self.hosts[host].disk.oldest()?;
        frame["deployment"] = json!({
            "generation": generation.get(), "specification_digest": digest.to_string(), "serving_generation": null,
        });
        self.cover.hit(name(Hostile::StaleWelcome));
        Some(ordered(&frame))
    }
}

const HEALTH: &str = r#""health":{"#;

/// What is replaced by what to break a heartbeat; an empty text is the end.
const MALFORMED_UP: &[(&str, &str)] = &[
    ("", "x"),
    (r#""owner_epoch":"#, r#""owner_epoch":1,"owner_epoch":"#),
    (r#""owner_epoch":"#, r#""owner_epoch":-"#),
    (r#""owner_epoch":"#, r#""Owner_epoch":"#),
    (r#""active_operations":0"#, r#""active_operations":33"#),
    (r#""active_operations":0"#, r#""active_operations":"0""#),
    (r#""active_operations":0"#, r#""active_operations":null"#),
    (r#""active_operations":0,"#, ""),
    (r#""observed_at":"2026-"#, r#""observed_at":"2026/"#),
    (r#""total_memory_bytes":null"#, r#""total_memory_bytes":1,"available_memory_bytes":2"#),
    (HEALTH, r#""health":{"generations":[{"generation":1,"specification_digest":"short","state":"ready"}],"#),
    (
        HEALTH,
        r#""health":{"generations":[{"generation":1,"specification_digest":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","state":"happy"}],"#,
    ),
    (
        HEALTH,
        r#""health":{"generations":[{"generation":1,"specification_digest":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","state":"failed","diagnostic":"bad_mood"}],"#,
    ),
    (
        HEALTH,
        r#""health":{"generations":[{"generation":1,"specification_digest":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","state":"ready","diagnostic":"provider_unavailable"}],"#,
    ),
    (r#""type":"heartbeat""#, r#""type":"heartbreak""#),
];

/// The same for an acknowledgement.
const MALFORMED_DOWN: &[(&str, &str)] = &[
    ("", "{}"),
    (r#""serving_generation":"#, r#""serving_generations":"#),
    (r#""owner_epoch":"#, r#""owner_epoch":1.0,"x":"#),
    (r#""connection_id":""#, r#""connection_id":"{"#),
    (r#""deployment":{"#, r#""deployment":null,"y":{"#),
];

/// A welcome of an epoch that is one lower, if there is one.
fn lowered(message: &[u8]) -> Option<Vec<u8>> {
    let mut frame = serde_json::from_slice::<Value>(message).ok().filter(|frame| frame["type"] == "welcome")?;
    let lower = frame["owner_epoch"].as_u64()?.checked_sub(1).filter(|epoch| *epoch > 0)?;
    frame["owner_epoch"] = json!(lower);
    Some(ordered(&frame))
}

/// `version` and `type` stand first, as every sender writes them.
fn ordered(frame: &Value) -> Vec<u8> {
    let kind = frame["type"].as_str().unwrap_or_default();
    let mut text = format!(r#"{{"version":{},"type":"{kind}""#, frame["version"]);
    for (name, value) in frame.as_object().into_iter().flatten() {
        if name != "version" && name != "type" {
            text.push_str(",\"");
            text.push_str(name);
            text.push_str("\":");
            text.push_str(&value.to_string());
        }
    }
    text.push('}');
    text.into_bytes()
}

fn is_up(hostile: Hostile) -> bool {
    matches!(
        hostile,
        Hostile::ForeignResponse
            | Hostile::RepeatedResponse
            | Hostile::UnknownCode
            | Hostile::NineObservations
            | Hostile::WrongEpochHeartbeat
            | Hostile::ForeignHeartbeat
            | Hostile::RetentionGap
            | Hostile::SecondHello
            | Hostile::OtherIdentity
            | Hostile::BinaryUp
    )
}

const OTHER: &str = "99999999-9999-4999-8999-999999999999";

fn message(hostile: Hostile, up: bool, seen: &Seen) -> Option<Vec<u8>> {
    let frame = match hostile {
        Hostile::RepeatedRequest => return seen.last_request.clone(),
        Hostile::StaleRetention => return seen.last_ack.clone(),
        Hostile::RepeatedResponse => return seen.last_response.clone(),
        Hostile::Garbage => return Some(b"{\"version\":6,\"type\":\"hel".to_vec()),
        Hostile::LongControl => {
            let mut text = ordered(&if up { heartbeat(seen) } else { acknowledgement(seen) });
            text.resize(PADDED, b' ');
            return Some(text);
        }
        Hostile::BinaryDown
        | Hostile::BinaryUp
        | Hostile::OtherIdentity
        | Hostile::StaleWelcome
        | Hostile::LowerWelcome
        | Hostile::Malformed
        | Hostile::Flood => return None,
        Hostile::SecondWelcome => {
            let mut frame = acknowledgement(seen);
            frame["type"] = json!("welcome");
            frame
        }
        Hostile::SkippedSequence | Hostile::LowerEpoch | Hostile::OtherConnection | Hostile::InvalidRequest => {
            request(hostile, seen)?
        }
        Hostile::PartialRetention | Hostile::MixedRetention | Hostile::GreedyRetention => retention(hostile, seen)?,
        Hostile::ChangedDigest | Hostile::ServingAboveTarget | Hostile::OlderTarget | Hostile::ForeignAck => {
            facts(hostile, seen)?
        }
        Hostile::ForeignResponse => response(seen, &json!(OTHER), OTHER, "unconfirmed"),
        Hostile::UnknownCode => {
            let pending = seen.pending.as_ref()?;
            response(seen, &json!(seen.connection), pending, "exploded")
        }
        Hostile::NineObservations | Hostile::WrongEpochHeartbeat | Hostile::ForeignHeartbeat => beat(hostile, seen),
        Hostile::RetentionGap => json!({"version": 6, "type": "retention", "control": {
            "id": OTHER, "sequence": 1_000, "connection_id": seen.connection, "owner_epoch": seen.epoch,
            "references": [{"generation": 1, "specification_digest": "a".repeat(64)}]}}),
        Hostile::SecondHello => {
            json!({"version": 6, "type": "hello", "identity": identity(), "health": health(0)})
        }
        Hostile::OtherVersion => {
            let mut frame = if up { heartbeat(seen) } else { acknowledgement(seen) };
            frame["version"] = json!(7);
            frame
        }
        Hostile::UnknownMember => {
            let mut frame = if up { heartbeat(seen) } else { acknowledgement(seen) };
            frame["provider_ready"] = Value::Null;
            frame
        }
    };
    Some(ordered(&frame))
}

fn request(hostile: Hostile, seen: &Seen) -> Option<Value> {
    let (mut sequence, mut epoch, mut connection) = (seen.read + 1, seen.epoch, seen.connection.as_str());
    let mut operation = "info";
    match hostile {
        Hostile::SkippedSequence => sequence += 1,
        Hostile::LowerEpoch => epoch = epoch.checked_sub(1).filter(|epoch| *epoch > 0)?,
        Hostile::OtherConnection => connection = OTHER,
        _ => operation = "nonsense",
    }
    // Of every request its own, as of Core's (wire §5.4): the node counts a connection's requests by sequence alone, so two of
    // these are carried out where its welcome was lowered, and the books tell requests apart by their identifiers.
    let id = format!("99999999-{}{sequence:012}", seen.connection.get(9..24)?);
    Some(json!({"version": 6, "type": "request", "request": {
        "deployment_generation": seen.target.0.max(1), "sequence": sequence, "owner_epoch": epoch,
        "connection_id": connection, "id": id, "operation": operation, "timeout_ms": 1_000,
        "reference": {"TenantID": OTHER, "EnvironmentID": OTHER, "AllocationID": OTHER}}}))
}

fn retention(hostile: Hostile, seen: &Seen) -> Option<Value> {
    let (id, sequence, asked) = seen.asked.as_ref()?;
    let mut entries: Vec<Value> = asked
        .iter()
        .map(|(generation, digest)| {
            let keep =
                hostile != Hostile::GreedyRetention || *generation != seen.target.0 && *generation != seen.target.2;
            json!({"generation": generation, "specification_digest": digest, "keep": keep})
        })
        .collect();
    let mut epoch = seen.epoch;
    match hostile {
        Hostile::PartialRetention if entries.len() > 1 => drop(entries.pop()),
        Hostile::PartialRetention => entries[0]["generation"] = json!(seen.target.0 + 1_000),
        Hostile::MixedRetention => epoch += 1,
        _ => {}
    }
    if hostile != Hostile::GreedyRetention {
        for entry in &mut entries {
            entry["keep"] = json!(false);
        }
    }
    Some(json!({"version": 6, "type": "retention_ack", "deployment": deployment(seen), "control": {
        "id": id, "sequence": sequence, "connection_id": seen.connection, "owner_epoch": epoch,
        "retentions": entries}}))
}

fn facts(hostile: Hostile, seen: &Seen) -> Option<Value> {
    let mut frame = acknowledgement(seen);
    match hostile {
        Hostile::ChangedDigest => frame["deployment"]["specification_digest"] = json!("d".repeat(64)),
        Hostile::ServingAboveTarget => frame["deployment"]["serving_generation"] = json!(seen.target.0 + 1),
        Hostile::OlderTarget => {
            let older = seen.target.0.checked_sub(1).filter(|older| *older > 0)?;
            frame["deployment"] =
                json!({"generation": older, "specification_digest": "e".repeat(64), "serving_generation": null});
        }
        _ => frame["connection_id"] = json!(OTHER),
    }
    Some(frame)
}

fn deployment(seen: &Seen) -> Value {
    let serving = if seen.target.2 == 0 { Value::Null } else { json!(seen.target.2) };
    json!({"generation": seen.target.0, "specification_digest": seen.target.1, "serving_generation": serving})
}

fn acknowledgement(seen: &Seen) -> Value {
    json!({"version": 6, "type": "heartbeat_ack", "connection_id": seen.connection, "owner_epoch": seen.epoch,
        "deployment": deployment(seen)})
}

fn beat(hostile: Hostile, seen: &Seen) -> Value {
    let mut frame = heartbeat(seen);
    match hostile {
        Hostile::NineObservations => frame["health"] = health(9),
        Hostile::WrongEpochHeartbeat => frame["owner_epoch"] = json!(seen.epoch + 1),
        _ => frame["connection_id"] = json!(OTHER),
    }
    frame
}

fn heartbeat(seen: &Seen) -> Value {
    json!({"version": 6, "type": "heartbeat", "connection_id": seen.connection, "owner_epoch": seen.epoch,
        "health": health(0)})
}

fn health(observations: u64) -> Value {
    let observed = |generation: u64| json!({"generation": generation, "specification_digest": "a".repeat(64), "state": "preparing"});
    let mut health = json!({"observed_at": "2026-10-01T08:00:00Z", "active_operations": 0, "cpu_utilization": null,
        "total_memory_bytes": null, "effective_cpu_cores": null});
    if observations > 0 {
        health["generations"] = (1_001..=1_000 + observations).map(observed).collect();
    }
    health
}

fn identity() -> Value {
    json!({"node_id": OTHER, "installation_id": OTHER, "provider": "docker", "backend_fingerprint": "1".repeat(64),
        "deployment_generation": 1, "specification_digest": "a".repeat(64), "max_active": 1, "max_retained": 1})
}

fn response(_: &Seen, connection: &Value, id: &str, code: &str) -> Value {
    json!({"version": 6, "type": "response",
        "response": {"id": id, "connection_id": connection, "error_code": code}})
}

const fn name(hostile: Hostile) -> &'static str {
    match hostile {
        Hostile::RepeatedRequest => "hostile: repeated request",
        Hostile::SkippedSequence => "hostile: skipped sequence",
        Hostile::LowerEpoch => "hostile: lower epoch",
        Hostile::OtherConnection => "hostile: request of another connection",
        Hostile::StaleRetention => "hostile: stale retention answer",
        Hostile::PartialRetention => "hostile: partial retention answer",
        Hostile::MixedRetention => "hostile: retention answer of another epoch",
        Hostile::GreedyRetention => "hostile: retention answer against the pin",
        Hostile::ChangedDigest => "hostile: changed digest",
        Hostile::ServingAboveTarget => "hostile: serving pin above target",
        Hostile::OlderTarget => "hostile: older target",
        Hostile::ForeignAck => "hostile: acknowledgement of another connection",
        Hostile::InvalidRequest => "hostile: invalid request",
        Hostile::BinaryDown => "hostile: binary message to the node",
        Hostile::StaleWelcome => "hostile: welcome of long ago",
        Hostile::Flood => "hostile: more requests than places",
        Hostile::LowerWelcome => "hostile: welcome of a lower epoch",
        Hostile::SecondWelcome => "hostile: second welcome",
        Hostile::Malformed => "hostile: malformed frame",
        Hostile::ForeignResponse => "hostile: response of another connection",
        Hostile::RepeatedResponse => "hostile: repeated response",
        Hostile::UnknownCode => "hostile: unknown error code",
        Hostile::NineObservations => "hostile: nine observations",
        Hostile::WrongEpochHeartbeat => "hostile: heartbeat of another epoch",
        Hostile::ForeignHeartbeat => "hostile: heartbeat of another connection",
        Hostile::RetentionGap => "hostile: retention request out of sequence",
        Hostile::SecondHello => "hostile: second hello",
        Hostile::OtherIdentity => "hostile: hello of another identity",
        Hostile::BinaryUp => "hostile: binary message to core",
        Hostile::LongControl => "hostile: long control frame",
        Hostile::OtherVersion => "hostile: another version",
        Hostile::Garbage => "hostile: garbage",
        Hostile::UnknownMember => "hostile: unknown member",
    }
}
