//! The JSON schemas of sizes and Runtime release, from the tables that they are read by.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{Resource, Resources, Runtime, RuntimeMember};

impl JsonSchema for Resources {
    fn schema_name() -> Cow<'static, str> {
        "Resources".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let sizes =
            Resource::ALL.map(|size| (size.name(), json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})));
        object(sizes, &[Resource::Cpus.name(), Resource::MemoryMib.name()])
    }
}

impl JsonSchema for Runtime {
    fn schema_name() -> Cow<'static, str> {
        "Runtime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let members = RuntimeMember::ALL.map(|member| {
            let (prefix, digits) = member.pattern();
            (member.name(), json!({"type": "string", "pattern": format!("^{prefix}[0-9a-f]{{{digits}}}$")}))
        });
        object(members, &RuntimeMember::NAMES)
    }
}

fn object<const N: usize>(members: [(&str, Value); N], required: &[&str]) -> Schema {
    let properties: Map<_, _> = members.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    json_schema!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

#[cfg(test)]
mod tests {
    use super::super::Draft;
    use super::*;

    /// D 3. What the schema of a specification names are the tables' members, in the tables' forms.
    #[test]
    fn the_schema_has_the_members_of_the_tables() {
        let schema = schemars::schema_for!(Draft).to_value();
        let names = |of: &str| {
            let members = schema["$defs"][of]["properties"].as_object().expect("members");
            members.keys().cloned().collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(names("Resources"), Resource::NAMES.map(str::to_owned).into());
        assert_eq!(names("Runtime"), RuntimeMember::NAMES.map(str::to_owned).into());
        assert_eq!(schema["$defs"]["Resources"]["required"], json!(["cpus", "memory_mib"]));
        assert_eq!(schema["$defs"]["Runtime"]["required"], json!(RuntimeMember::NAMES));
        let pattern = &schema["$defs"]["Runtime"]["properties"]["image_id"]["pattern"];
        assert_eq!(pattern, "^sha256:[0-9a-f]{64}$");
    }
}
