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
use crate::figure::Figure;
use crate::path::{optional_seconds, seconds};
use crate::stamp::report::StampDocument;
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
    let format = schema.get("format").and_then(Value::as_str).map(str::to_owned);
    match format.as_deref() {
        // It may be NaN, of which JSON makes null; a `Figure`, a `Ratio` or a `Duration` may not.
        Some("double" | "float") => panic!("a field is a bare f64, not a Figure: {}", schema.as_value()),
        Some("uint32") => _ = schema.insert("maximum".into(), u32::MAX.into()),
        _ => {}
    }
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
        schema.insert("additionalProperties".into(), false.into());
    }
    if format.is_some_and(|format| format != "date-time") {
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

/// As the types say it themselves, with the formats of Rust's numbers.
pub(super) fn of_types<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>().into()
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

fn stamp() -> String {
    schema::<StampDocument>("lfn.stamp.1", "Result of lfn test --stamp --json, lfn.stamp/1")
}

/// What is kept, by the names of the files.
fn all() -> [(&'static str, String); 4] {
    [("lfn.test.2", document()), ("lfn.test.2.event", event()), ("lfn.show.1", comparison()), ("lfn.stamp.1", stamp())]
}

/// For `doc/schema/make`, which stores what this prints.
#[test]
#[ignore = "prints the schemas: run by doc/schema/make"]
fn print() {
    for (name, text) in all() {
        println!("== {name}.schema.json\n{text}== end");
    }
}

#[test]
fn the_schemas_kept_are_those_of_the_types() {
    let current = "a type of the report has changed: bash doc/schema/make";
    assert_eq!(include_str!("../../../../doc/schema/lfn.test.2.schema.json"), document(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.test.2.event.schema.json"), event(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.show.1.schema.json"), comparison(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.stamp.1.schema.json"), stamp(), "{current}");
}

/// Every object is closed and every field told, down to the last.
#[test]
fn nothing_is_left_undescribed() {
    for (_, text) in all() {
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
