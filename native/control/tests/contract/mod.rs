//! Every answer of every test is held against the document of the HTTP interface.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use axum::http::{HeaderMap, Method, StatusCode, header};
use jsonschema::Validator;
use palisade_control::http::routes;
use serde_json::{Value, json};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(&routes().document()).unwrap());
static VALIDATORS: Mutex<Option<HashMap<String, Validator>>> = Mutex::new(None);

/// What came back.
pub(crate) struct Answer<'a> {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

impl<'a> Answer<'a> {
    pub(crate) fn new(status: StatusCode, headers: &'a HeaderMap, body: &'a [u8]) -> Self {
        let content_type = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap());
        Self { status, content_type, body }
    }
}

/// Panics unless the document allows this answer: a described operation, status, media type and schema.
///
/// A path that is not described is answered 404 `not_found`, a method that is not 405 `unsupported_operation`, both
/// behind the key that the path wants.
pub(crate) fn check(method: &Method, target: &str, answer: &Answer<'_>) {
    if let Err(reason) = judge(method, target, answer) {
        let Answer { status, body, .. } = answer;
        panic!(
            "{method} {target} answered {status}, against the document: {reason}\n{}",
            String::from_utf8_lossy(body)
        );
    }
}

/// Why the document does not allow an answer.
pub(crate) fn judge(method: &Method, target: &str, answer: &Answer<'_>) -> Result<(), String> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let name = if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_lowercase() };
    let Some((template, operations)) = described(path) else { return undescribed(path, answer, "not_found", 404) };
    let Some(operation) = operations.get(&name) else {
        return undescribed(path, answer, "unsupported_operation", 405);
    };
    let status = answer.status.as_str();
    let response = operation["responses"].get(status).ok_or("the status is not described")?;
    if method == Method::HEAD {
        return Ok(());
    }
    let Some(content) = response.get("content").and_then(Value::as_object) else {
        return if answer.body.is_empty() { Ok(()) } else { Err("no body is described".to_owned()) };
    };
    let media = answer.content_type.unwrap_or_default().split(';').next().unwrap_or_default();
    let described = content.get(media).ok_or_else(|| format!("the media type {media:?} is not described"))?;
    match described.get("schema") {
        Some(schema) => validate(&format!("{name} {template} {status}"), schema, answer.body),
        None => Ok(()),
    }
}

fn described(path: &str) -> Option<(&'static String, &'static Value)> {
    let fits = |template: &str| {
        let mut segments = path.split('/');
        let fit = template
            .split('/')
            .all(|part| segments.next().is_some_and(|segment| part.starts_with('{') || part == segment));
        fit && segments.next().is_none()
    };
    DOCUMENT["paths"].as_object().unwrap().iter().find(|(template, _)| fits(template))
}

fn undescribed(path: &str, answer: &Answer<'_>, code: &str, status: u16) -> Result<(), String> {
    let below = |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let administrative = below("/core/v1") || below("/console");
    let allowed = match answer.status.as_u16() {
        401 if administrative => "invalid_admin_key",
        found if found == status => code,
        _ => return Err(format!("expected {status} {code}, for what is not described")),
    };
    let schema = json!({"$ref": "#/components/schemas/Envelope", "properties": {"error": {"properties": {"code": {"const": allowed}}}}});
    validate(&format!("undescribed {allowed}"), &schema, answer.body)
}

fn validate(name: &str, schema: &Value, body: &[u8]) -> Result<(), String> {
    let body: Value = serde_json::from_slice(body).map_err(|error| format!("no json: {error}"))?;
    let mut validators = VALIDATORS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let validators = validators.get_or_insert_default();
    let validator = validators.entry(name.to_owned()).or_insert_with(|| validator(schema));
    let broken: Vec<_> =
        validator.iter_errors(&body).map(|error| format!("{}: {error}", error.instance_path())).collect();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}

/// A schema of the document, with what it refers to.
fn validator(schema: &Value) -> Validator {
    let whole = json!({"allOf": [schema], "components": DOCUMENT["components"]});
    jsonschema::draft202012::options().should_validate_formats(true).build(&whole).unwrap()
}
