//! The JSON Schemas of what is stored and printed, made from the types.
//!
//! Made, and not written by hand: two hundred fields change with the code, and a description that is the field's own
//! comment cannot contradict it. `doc/schema` holds what comes out, and the test here fails where that is old. They are
//! strict, so that a validation finds a field nobody described; readers of results are not.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::{Comparison, Document, Event};
use crate::path::{optional_seconds, seconds};

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

/// The schema of one type, as text with a line end.
fn schema<T: JsonSchema>(name: &str, title: &str) -> String {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| settings.transforms.push(Box::new(RecursiveTransform(strict))))
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("title".into(), title.into());
    schema.insert("$id".into(), format!("urn:lfn:schema:{name}").into());
    let text = serde_json::to_string_pretty(&schema).unwrap();
    format!("{text}\n")
}

/// Nothing but what is named; formats of Rust's that JSON Schema does not know go; comments become prose.
fn strict(schema: &mut Schema) {
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
        schema.insert("additionalProperties".into(), false.into());
    }
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| format != "date-time") {
        schema.remove("format");
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = prose(text);
    }
}

/// Without the marks of links and code, in one line.
fn prose(text: &str) -> String {
    let text = text.replace("[`", "").replace("`]", "").replace('`', "");
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

fn document() -> String {
    schema::<Document>("lfn.test.2", "Result of lfn test, lfn.test/2")
}

fn event() -> String {
    schema::<Event>("lfn.test.2.event", "A line of lfn test --ndjson, lfn.test.event/2")
}

fn comparison() -> String {
    schema::<Comparison>("lfn.show.1", "Comparison of lfn show --json, lfn.show/1")
}

/// For `doc/schema/make`, which stores what this prints.
#[test]
#[ignore = "prints the schemas: run by doc/schema/make"]
fn print() {
    for (name, text) in [("lfn.test.2", document()), ("lfn.test.2.event", event()), ("lfn.show.1", comparison())] {
        println!("== {name}.schema.json\n{text}== end");
    }
}

#[test]
fn the_schemas_kept_are_those_of_the_types() {
    let current = "a type of the report has changed: bash doc/schema/make";
    assert_eq!(include_str!("../../../../doc/schema/lfn.test.2.schema.json"), document(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.test.2.event.schema.json"), event(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.show.1.schema.json"), comparison(), "{current}");
}

/// Every object is closed and every field told, down to the last.
#[test]
fn nothing_is_left_undescribed() {
    for text in [document(), event(), comparison()] {
        described(&serde_json::from_str(&text).unwrap(), "");
    }
}

fn described(value: &Value, at: &str) {
    let Value::Object(map) = value else {
        return value.as_array().into_iter().flatten().for_each(|part| described(part, at));
    };
    if let Some(Value::Object(properties)) = map.get("properties") {
        assert_eq!(map.get("additionalProperties"), Some(&false.into()), "{at} takes anything");
        // A variant that is one named value: what is said of it stands outside.
        let variant = properties.len() == 1 && map.contains_key("description");
        for (name, property) in properties {
            let told = variant || ["description", "const", "$ref"].iter().any(|key| property.get(key).is_some());
            assert!(told, "{at}/{name} has no description");
        }
    }
    for (name, part) in map {
        described(part, &format!("{at}/{name}"));
    }
}
