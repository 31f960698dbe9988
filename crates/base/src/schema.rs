//! JSON Schemas of types whose JSON form is written by hand.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::figure::{Figure, finite};
use crate::path::{optional_seconds, seconds};
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

impl JsonSchema for finite {
    fn schema_name() -> Cow<'static, str> {
        "Finite".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number" })
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
