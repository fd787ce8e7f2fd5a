//! A frame as the books read it.

use serde_json::Value;

/// What a party owes for the frame that it just read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Nothing in particular.
    None,
    /// The connection must be closed in this very step.
    Close(&'static str),
    /// The connection must be closed as soon as storage has answered.
    CloseSoon(&'static str),
    /// The connection must stay open.
    Keep(&'static str),
}

/// The members of a frame, as far as the books know the grammar.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: String,
    pub(super) value: Value,
}

const CONTROL_LIMIT: usize = 32_768;

impl Frame {
    /// Reads a message, or says why it is no frame.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let value: Value = serde_json::from_slice(bytes).map_err(|_| "no JSON")?;
        if value["version"] != 6 {
            return Err("another version");
        }
        let kind = value["type"].as_str().unwrap_or_default().to_owned();
        let members: &[&str] = match kind.as_str() {
            "hello" => &["identity", "health"],
            "welcome" | "heartbeat_ack" => &["connection_id", "owner_epoch", "deployment"],
            "heartbeat" => &["connection_id", "owner_epoch", "health"],
            "retention" => &["control"],
            "retention_ack" => &["control", "deployment"],
            "request" => &["request"],
            "response" => &["response"],
            _ => return Err("another type"),
        };
        if bytes.len() > CONTROL_LIMIT && kind != "request" && kind != "response" {
            return Err("a control frame of more than 32768 bytes");
        }
        let object = value.as_object().ok_or("no object")?;
        let known = |name: &str| name == "version" || name == "type" || members.contains(&name);
        if object.keys().any(|name| !known(name)) || !members.iter().all(|name| object.contains_key(*name)) {
            return Err("other members");
        }
        if value["health"]["generations"].as_array().is_some_and(|list| list.len() > 8) {
            return Err("more than 8 observations");
        }
        Ok(Self { kind, value })
    }

    pub(super) fn text(&self, path: &[&str]) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    pub(super) fn number(&self, path: &[&str]) -> u64 {
        self.at(path).as_u64().unwrap_or(0)
    }

    pub(super) fn at(&self, path: &[&str]) -> &Value {
        path.iter().fold(&self.value, |value, name| &value[*name])
    }
}

/// Generations with their digests, and what an answer says of each.
pub(super) fn references(list: &Value) -> Vec<(u64, String, Option<bool>)> {
    let entry = |entry: &Value| {
        let digest = entry["specification_digest"].as_str().unwrap_or_default().to_owned();
        (entry["generation"].as_u64().unwrap_or(0), digest, entry["keep"].as_bool())
    };
    list.as_array().map(|list| list.iter().map(entry).collect()).unwrap_or_default()
}
