//! The document as a JSON value.

use axum::http::StatusCode;
use palisade_core::admin::error::{Code, Envelope};
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::operation::{Authority, Content, Operation, Parameter};
use super::schema::{Schemas, settled};

const DESCRIPTION: &str = "Every object has exactly the members that are named here. A refusal is an error envelope whose \
    `code` clients branch on; a code means the same on every path.";

pub(super) fn of(operations: &[Operation]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path()).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_lowercase()] = describe(operation, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Palisade Core", "version": env!("CARGO_PKG_VERSION"), "description": DESCRIPTION},
        "paths": paths,
        "components": {"schemas": schemas.components(), "securitySchemes": security_schemes()},
    })
}

fn describe(operation: &Operation, schemas: &mut Schemas) -> Value {
    let mut described = json!({
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": responses(operation, &mut schemas.written),
    });
    let parameters: Vec<_> =
        operation.segments().map(segment).chain(operation.parameters.iter().map(parameter)).collect();
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(schema) = operation.body {
        let schema = settled(&schema(&mut schemas.read).to_value());
        described["requestBody"] = json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    if let Some(scheme) = scheme(Authority::of(operation.path())) {
        described["security"] = json!([{scheme: []}]);
    }
    described
}

fn segment(name: &str) -> Value {
    // Identifiers, except for the names of providers.
    let schema =
        if name == "provider" { json!({"type": "string"}) } else { json!({"type": "string", "format": "uuid"}) };
    json!({"name": name, "in": "path", "required": true, "schema": schema})
}

fn parameter(parameter: &Parameter) -> Value {
    let Parameter { name, place, required, description } = parameter;
    json!({"name": name, "in": place, "required": required, "description": description, "schema": {"type": "string"}})
}

fn responses(operation: &Operation, written: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for (status, content) in &operation.answers {
        responses.insert(status.as_str().to_owned(), answer(*status, *content, written));
    }
    let details = Authority::of(operation.path()) == Authority::Administrator;
    for (status, codes) in operation.refusals() {
        responses.insert(status.to_string(), refusal(&codes, details, written));
    }
    responses.into()
}

fn answer(status: StatusCode, content: Content, written: &mut SchemaGenerator) -> Value {
    let description = status.canonical_reason().unwrap_or_default();
    match content {
        Content::Json(schema) => json_answer(description, &settled(&schema(written).to_value())),
        Content::Media(media) => json!({"description": description, "content": {media: {}}}),
        Content::Empty => json!({"description": description}),
        Content::Unnamed => {
            let error = json!({"properties": {"code": {"const": null}, "details": false}});
            json_answer(description, &envelope(&error, written))
        }
    }
}

/// An envelope with one of these codes, and details only where they are sent.
fn refusal(codes: &[Code], details: bool, written: &mut SchemaGenerator) -> Value {
    let names: std::collections::BTreeSet<_> = codes.iter().map(|code| code.code()).collect();
    let kinds: std::collections::BTreeSet<_> = codes.iter().map(|code| code.kind()).collect();
    let mut error = json!({"properties": {"code": {"enum": names}, "type": {"enum": kinds}}});
    if !details {
        error["properties"]["details"] = false.into();
    }
    let description: Vec<_> = codes.iter().map(|code| format!("`{}`: {}", code.code(), code.message())).collect();
    json_answer(&description.join("; "), &envelope(&error, written))
}

fn envelope(error: &Value, written: &mut SchemaGenerator) -> Value {
    let mut schema = written.subschema_for::<Envelope>().to_value();
    schema["properties"] = json!({"error": error});
    schema
}

fn json_answer(description: &str, schema: &Value) -> Value {
    json!({"description": description, "content": {"application/json": {"schema": schema}}})
}

const fn scheme(authority: Authority) -> Option<&'static str> {
    match authority {
        Authority::Administrator => Some("core_key"),
        Authority::Project => Some("project_key"),
        Authority::Machine => Some("node_credential"),
        Authority::Nobody => None,
    }
}

fn security_schemes() -> Map<String, Value> {
    let names = Authority::ALL.into_iter().filter_map(scheme);
    names.map(|name| (name.to_owned(), json!({"type": "http", "scheme": "bearer"}))).collect()
}
