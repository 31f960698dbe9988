//! JSON Schemas of the stored and printed results, generated from the types.
//!
//! The generator takes a description from the comment of each field, so a description cannot contradict the code.
//! `doc/schema` has the generated files, and a test here fails if they are out of date. The schemas are strict, so that
//! a validation finds an undescribed key. Readers of results are not strict.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::{Comparison, ErrorDocument, TestDocument, TestEvent, TuningDocument};
use crate::diagnose::FindingsDocument;
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

/// Returns the schema of one type as text that ends with a line feed.
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

/// Closes each object, removes formats that JSON Schema does not have, and makes the comments plain text.
fn strict(schema: &mut Schema) {
    let format = schema.get("format").and_then(Value::as_str).map(str::to_owned);
    match format.as_deref() {
        // A bare float may be NaN, which JSON writes as null. A `Figure`, a `Ratio` or a `Duration` may not be NaN.
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

/// Returns `text` in one line without the marks of links and code.
fn prose(text: &str) -> String {
    let text = text.replace("[`", "").replace("`]", "").replace('`', "");
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// Returns the schema of a type with the formats of Rust's numbers.
pub(super) fn of_types<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>().into()
}

fn test_schema() -> String {
    schema::<TestDocument>("lfn.test.3", "Result of lfn test, lfn.test/3")
}

fn event_schema() -> String {
    schema::<TestEvent>("lfn.test.3.event", "A line of lfn test --output ndjson, lfn.test.event/3")
}

fn tuning_schema() -> String {
    schema::<TuningDocument>("lfn.test.compare.1", "Result of lfn test --compare, lfn.test.compare/1")
}

fn comparison_schema() -> String {
    schema::<Comparison>("lfn.show.2", "Comparison of lfn show --json, lfn.show/2")
}

fn stamp_schema() -> String {
    schema::<StampDocument>("lfn.stamp.2", "Result of lfn test --stamp --json, lfn.stamp/2")
}

fn error_schema() -> String {
    schema::<ErrorDocument>("lfn.error.1", "Error of any command under JSON output, lfn.error/1")
}

fn findings_schema() -> String {
    schema::<FindingsDocument>(
        "lfn.findings.1",
        "List of all findings, lfn test --list-findings --json, lfn.findings/1",
    )
}

/// Returns all schemas with their file names.
fn all_schemas() -> [(&'static str, String); 7] {
    [
        ("lfn.test.3", test_schema()),
        ("lfn.test.3.event", event_schema()),
        ("lfn.test.compare.1", tuning_schema()),
        ("lfn.show.2", comparison_schema()),
        ("lfn.stamp.2", stamp_schema()),
        ("lfn.error.1", error_schema()),
        ("lfn.findings.1", findings_schema()),
    ]
}

/// Prints the schemas for `doc/schema/make`, which stores them.
#[test]
#[ignore = "prints the schemas: run by doc/schema/make"]
fn print() {
    for (name, text) in all_schemas() {
        println!("== {name}.schema.json\n{text}== end");
    }
}

#[test]
fn the_schemas_kept_are_those_of_the_types() {
    let current = "a type of the report has changed: bash doc/schema/make";
    assert_eq!(include_str!("../../../../doc/schema/lfn.test.3.schema.json"), test_schema(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.test.3.event.schema.json"), event_schema(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.test.compare.1.schema.json"), tuning_schema(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.show.2.schema.json"), comparison_schema(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.stamp.2.schema.json"), stamp_schema(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.error.1.schema.json"), error_schema(), "{current}");
    assert_eq!(include_str!("../../../../doc/schema/lfn.findings.1.schema.json"), findings_schema(), "{current}");
}

/// Every object is closed and every key has a description.
#[test]
fn nothing_is_left_undescribed() {
    for (_, text) in all_schemas() {
        assert_described(&serde_json::from_str(&text).unwrap(), "");
    }
}

fn assert_described(value: &Value, at: &str) {
    let Value::Object(map) = value else {
        return value.as_array().into_iter().flatten().for_each(|part| assert_described(part, at));
    };
    if let Some(Value::Object(properties)) = map.get("properties") {
        assert_eq!(map.get("additionalProperties"), Some(&false.into()), "{at} takes anything");
        // A variant with one named value: its description is outside the object.
        let variant = properties.len() == 1 && map.contains_key("description");
        for (name, property) in properties {
            let is_described =
                variant || ["description", "const", "$ref"].iter().any(|key| property.get(key).is_some());
            assert!(is_described, "{at}/{name} has no description");
        }
    }
    for (name, part) in map {
        assert_described(part, &format!("{at}/{name}"));
    }
}
