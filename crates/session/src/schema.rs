//! JSON Schemas of types whose JSON form is written by hand.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::SessionId;
use crate::wire::copy::byte_string::ByteString;
use crate::wire::copy::digest::Digest;
use crate::wire::copy::entry::Name;

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
