//! Validation of documents with the schemas in `doc/schema`. An error names the document and the field.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Checks a document with the schema that the document names.
pub fn check_document(document: &Value) -> Result<(), String> {
    let name = document["schema"].as_str().ok_or_else(|| format!("no schema is named in {document}"))?;
    check(&name.replace('/', "."), document)
}

/// Checks a value with the schema in the file `doc/schema/NAME.schema.json`.
pub fn check(name: &str, value: &Value) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/schema").join(format!("{name}.schema.json"));
    let text = fs::read(&path).map_err(|error| format!("{name}: {}: {error}", path.display()))?;
    let schema: Value = serde_json::from_slice(&text).unwrap();
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    let place = format!("http://schema/{name}.json");
    compiler.add_resource(&place, schema).unwrap();
    let schema = compiler.compile(&place, &mut schemas).unwrap();
    schemas.validate(value, schema).map_err(|error| format!("{name}: {error:#}"))
}

/// Asserts that the schema of this name accepts the value.
#[track_caller]
pub fn assert_valid(name: &str, value: &Value) {
    check(name, value).unwrap_or_else(|fault| panic!("{fault}"));
}
