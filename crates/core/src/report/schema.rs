//! JSON Schemas of types whose JSON form is written by hand. `lfn-api` generates the schemas of all documents.

use std::borrow::Cow;

#[cfg(test)]
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
#[cfg(test)]
use serde_json::Value;

use crate::figure::Figure;
use crate::path::{optional_seconds, seconds};
use crate::session::SessionId;
use crate::transfer::byte_string::ByteString;
use crate::transfer::digest::Digest;
use crate::transfer::entry::Name;
use crate::units::Ratio;

impl JsonSchema for seconds {
    fn schema_name() -> Cow<'static, str> {
        "Seconds".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0 })
    }
}

impl JsonSchema for optional_seconds {
    fn schema_name() -> Cow<'static, str> {
        "OptionalSeconds".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "null"], "minimum": 0 })
    }
}

impl JsonSchema for Figure {
    fn schema_name() -> Cow<'static, str> {
        "Figure".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "A finite number.", "type": "number" })
    }
}

impl JsonSchema for Ratio {
    fn schema_name() -> Cow<'static, str> {
        "Ratio".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let share = "A probability or share, from 0 to 1.";
        json_schema!({ "description": share, "type": "number", "minimum": 0, "maximum": 1 })
    }
}

impl JsonSchema for ByteString {
    fn schema_name() -> Cow<'static, str> {
        "ByteString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Text, or an object with the bytes in base64 if they are not plain text.",
            "anyOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "properties": { "base64": { "description": "The bytes in base64.", "type": "string" } },
                    "required": ["base64"],
                    "additionalProperties": false
                }
            ]
        })
    }
}

impl JsonSchema for Name {
    fn schema_name() -> Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ByteString::json_schema(generator)
    }
}

impl JsonSchema for Digest {
    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "BLAKE3 digest of a file.", "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}

impl JsonSchema for SessionId {
    fn schema_name() -> Cow<'static, str> {
        "SessionId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "Identifier of a session.", "type": "string", "pattern": "^[0-9a-f]{32}$" })
    }
}

/// Returns the schema of a type with the formats of Rust's numbers.
#[cfg(test)]
pub(super) fn of_types<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>().into()
}
