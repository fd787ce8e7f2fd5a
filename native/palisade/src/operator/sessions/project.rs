//! The public API, as the owner of a project uses it.

use std::time::Duration;

use palisade_core::hosted::view::{Session, Turn};
use palisade_core::units::Id;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::operator::http::{Http, Request};

const SESSIONS: &str = "/v1/agents/sessions";
/// What to look at when it was not Core that answered.
const NOT_CORE: &str = "look at --core-url, the proxy variables, and what stands before core";
/// Pause before Core is asked again after it did not answer.
const AGAIN: Duration = Duration::from_millis(500);

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Core refused, and did nothing.
    Refused(String),
    /// Nobody knows whether Core did it.
    Silence(String),
}

impl Trouble {
    pub(super) fn text(&self) -> &str {
        let (Self::Refused(text) | Self::Silence(text)) = self;
        text
    }
}

/// A Core, and the key of a project.
pub(super) struct Project {
    pub(super) http: Http,
    pub(super) key: String,
    /// How long Core is asked again when it does not answer.
    pub(super) patience: Duration,
}

impl Project {
    /// A new session; asked for again under the same key, it is the same one.
    pub(super) async fn create(&self, key: Id) -> Result<Session, Trouble> {
        let body = json!({ "environment": { "type": "openai_hosted" } });
        self.again("POST", SESSIONS, Some(key), Some(&body)).await
    }

    /// A command; asked for again under the same key, it is the same one.
    pub(super) async fn command(&self, session: Id, key: Id, message: &Value) -> Result<Turn, Trouble> {
        self.again("POST", &format!("{SESSIONS}/{session}/events"), Some(key), Some(message)).await
    }

    pub(super) async fn cancel(&self, session: Id) -> Result<Session, Trouble> {
        self.once("POST", &format!("{SESSIONS}/{session}/events"), None, Some(&json!({ "type": "cancel" }))).await
    }

    /// How far a command is.
    pub(super) async fn turn(&self, session: Id, turn: Id) -> Result<Turn, Trouble> {
        self.once("GET", &format!("{SESSIONS}/{session}/turns/{turn}"), None, None).await
    }

    /// Ends a session. One that is gone is ended.
    pub(super) async fn end(&self, session: Id) -> Result<(), Trouble> {
        let ended: Result<Value, _> = self.again("DELETE", &format!("{SESSIONS}/{session}"), None, None).await;
        match ended {
            Err(Trouble::Refused(text)) if text.contains("not_found_error") => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Asks until there is an answer: only for what may be asked twice.
    async fn again<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        key: Option<Id>,
        body: Option<&Value>,
    ) -> Result<T, Trouble> {
        let until = Instant::now() + self.patience;
        loop {
            match self.once(method, path, key, body).await {
                Err(Trouble::Silence(_)) if Instant::now() < until => sleep(AGAIN).await,
                answer => return answer,
            }
        }
    }

    async fn once<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        key: Option<Id>,
        body: Option<&Value>,
    ) -> Result<T, Trouble> {
        let (key, body) = (key.map(|key| key.to_string()), body.map(Value::to_string));
        let mut headers = vec![("OpenAI-Beta", "agents=v1")];
        headers.extend(key.as_deref().map(|key| ("Idempotency-Key", key)));
        let request = Request { method, path, bearer: Some(&self.key), headers: &headers, body: body.as_deref() };
        match self.http.send(request).await {
            Ok(answer) => read(answer.status, &answer.body),
            Err(error) => Err(Trouble::Silence(self.http.unanswered(&error))),
        }
    }
}

/// A 503 with a code is a refusal; any other failure of the server may have had its effect.
fn read<T: DeserializeOwned>(status: u16, body: &[u8]) -> Result<T, Trouble> {
    #[derive(Deserialize)]
    struct Envelope {
        error: Refusal,
    }
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
        code: Option<String>,
        #[serde(default)]
        param: Option<String>,
    }
    if (200..300).contains(&status) {
        let answer = serde_json::from_slice(body);
        return answer.map_err(|_| {
            Trouble::Silence(format!("the answer does not have the form that core's must have; {NOT_CORE}"))
        });
    }
    let refusal = serde_json::from_slice(body).ok().map(|Envelope { error }| error);
    let code = refusal.as_ref().and_then(|refusal| refusal.code.as_deref());
    let refused = (400..500).contains(&status) || (status == 503 && code.is_some());
    let text = match &refusal {
        Some(Refusal { message, code, param }) => {
            let param = param.iter().map(|param| format!("; member {param}"));
            let code = code.iter().map(|code| format!("{code}, "));
            format!("{message}{} ({}status {status})", param.collect::<String>(), code.collect::<String>())
        }
        None => format!("something between here and core answered with status {status}; {NOT_CORE}"),
    };
    Err(if refused { Trouble::Refused(text) } else { Trouble::Silence(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_certain_and_a_failure_is_not() {
        let refused = |status, body: &str| match read::<Value>(status, body.as_bytes()) {
            Err(Trouble::Refused(_)) => true,
            Err(Trouble::Silence(_)) => false,
            Ok(_) => panic!("{status} is no success"),
        };
        let coded = r#"{"error":{"message":"m","type":"t","code":"c","param":null}}"#;
        assert!(refused(409, coded) && refused(503, coded) && refused(404, "<html>"));
        let named = r#"{"error":{"message":"m","type":"t","code":"c","param":"command.directory"}}"#;
        let told = |status, body: &str| read::<Value>(status, body.as_bytes()).unwrap_err().text().to_owned();
        assert_eq!(told(400, named), "m; member command.directory (c, status 400)");
        assert_eq!(told(409, r#"{"error":{"message":"m","code":null,"param":null}}"#), "m (status 409)");
        assert!(told(407, "<html>").contains("between here and core answered with status 407; look at --core-url"));
        assert!(!refused(500, coded) && !refused(503, "<html>") && !refused(502, coded));
    }
}
