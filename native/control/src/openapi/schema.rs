//! Schemas of types, in the two rules of this interface: every object has exactly its members, and a member that may be
//! absent is never null (decision 5).

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value};

/// Where the document keeps what its schemas refer to.
const COMPONENTS: &str = "/components/schemas";

/// Generators of what is read and of what is written; the same name must mean the same in both.
pub(super) struct Schemas {
    pub(super) read: SchemaGenerator,
    pub(super) written: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = COMPONENTS.into();
            settings.meta_schema = None;
        });
        Self {
            read: settings.clone().for_deserialize().into_generator(),
            written: settings.for_serialize().into_generator(),
        }
    }

    /// Every named schema.
    pub(super) fn components(mut self) -> Map<String, Value> {
        let mut all = self.written.take_definitions(true);
        for (name, read) in self.read.take_definitions(true) {
            let written = all.get(&name).is_none_or(|written| settled(written) == settled(&read));
            assert!(written, "{name} is written and read in different forms: give the type that is read another name");
            all.insert(name, read);
        }
        all.into_iter().map(|(name, schema)| (name, settled(&schema))).collect()
    }
}

/// A schema under the two rules.
pub(super) fn settled(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let mut members: Map<_, _> = members.iter().map(|(name, part)| (name.clone(), settled(part))).collect();
            close(&mut members);
            Value::Object(members)
        }
        Value::Array(parts) => parts.iter().map(settled).collect(),
        other => other.clone(),
    }
}

fn close(schema: &mut Map<String, Value>) {
    let required: Vec<String> =
        schema.get("required").and_then(|names| serde_json::from_value(names.clone()).ok()).unwrap_or_default();
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for (_, optional) in properties.iter_mut().filter(|(name, _)| !required.contains(name)) {
        refuse_null(optional);
    }
    schema.insert("additionalProperties".to_owned(), Value::Bool(false));
}

fn refuse_null(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    if let Some(Value::Array(types)) = members.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            members.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(choices)) = members.get_mut("anyOf") else { return };
    choices.retain(|choice| choice["type"] != "null");
    if let [Value::Object(only)] = choices.as_slice() {
        let only = only.clone();
        members.remove("anyOf");
        only.into_iter().for_each(|(name, part)| {
            members.entry(name).or_insert(part);
        });
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Serialize;
    use serde_json::json;

    use super::*;

    #[derive(Serialize, JsonSchema)]
    struct Inner {
        number: u8,
    }

    #[derive(Serialize, JsonSchema)]
    struct Sample {
        nullable: Option<u8>,
        #[serde(skip_serializing_if = "Option::is_none")]
        optional: Option<u8>,
        #[serde(skip_serializing_if = "Option::is_none")]
        nested: Option<Inner>,
    }

    #[test]
    fn an_optional_member_is_never_null_and_every_object_is_closed() {
        let mut schemas = Schemas::new();
        schemas.written.subschema_for::<Sample>();
        let components = schemas.components();
        let sample = &components["Sample"];
        assert_eq!(sample["additionalProperties"], json!(false));
        assert_eq!(components["Inner"]["additionalProperties"], json!(false));
        assert_eq!(sample["required"], json!(["nullable"]));
        assert_eq!(sample["properties"]["nullable"]["type"], json!(["integer", "null"]));
        assert_eq!(sample["properties"]["optional"]["type"], json!("integer"));
        assert_eq!(sample["properties"]["nested"], json!({"$ref": "#/components/schemas/Inner"}));
    }
}
