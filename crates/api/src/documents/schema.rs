//! JSON Schemas of all result documents, generated from the types.
//!
//! The generator takes a description from the comment of each field, so a description cannot contradict the code.
//! `doc/schema` has the generated files, and a test here fails if they are out of date. The schemas are strict, so that
//! a validation finds an undescribed key. Readers of results are not strict.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

use lfn_campaign::comparison::SweepComparison;
use lfn_campaign::document::{SweepDocument, SweepEvent};
use lfn_campaign::state::StateLine;
use lfn_measure::proto::stamp::report::StampDocument;
use lfn_mesh::entry::Entry;
use lfn_results::diagnose::FindingsDocument;
use lfn_results::report::{Comparison, DoctorDocument, ErrorDocument, TestDocument, TestEvent, TuningDocument};
use lfn_session::server::audit_line::AuditLine;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::Value;

use super::*;
use crate::ssh::Announcement;

/// Rule for floating-point numbers of a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Floats {
    /// A bare float may be NaN, which JSON writes as null. A `Figure`, a `Ratio` or a `Duration` may not be NaN.
    Forbidden,
    /// Another process has sent the document as JSON, and a null is an error of its reader.
    ReadFromJson,
}

/// Schema of a document, with the name of its file.
struct DocumentSchema {
    name: &'static str,
    text: String,
}

/// Returns the schema of one type as text that ends with a line feed.
fn schema<T: JsonSchema>(name: &'static str, title: &str, floats: Floats) -> DocumentSchema {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .with(|settings| {
            settings.transforms.push(Box::new(RecursiveTransform(move |schema: &mut Schema| strict(schema, floats))));
        })
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.insert("title".into(), title.into());
    schema.insert("$id".into(), format!("urn:lfn:schema:{name}").into());
    let text = serde_json::to_string_pretty(&schema).unwrap();
    DocumentSchema { name, text: format!("{text}\n") }
}

/// Closes each object, removes formats that JSON Schema does not have, and makes the comments plain text.
fn strict(schema: &mut Schema, floats: Floats) {
    let format = schema.get("format").and_then(Value::as_str).map(str::to_owned);
    match format.as_deref() {
        Some("double" | "float") if floats == Floats::Forbidden => {
            panic!("a field is a bare f64, not a Figure: {}", schema.as_value())
        }
        Some("uint32") => _ = schema.insert("maximum".into(), u32::MAX.into()),
        _ => {}
    }
    move_keys_into_variants(schema);
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
        schema.insert("additionalProperties".into(), false.into());
    }
    // A flattened type has closed the object already.
    schema.remove("unevaluatedProperties");
    if format.is_some_and(|format| format != "date-time") {
        schema.remove("format");
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = prose(text);
    }
}

/// Moves the keys of an object with a flattened enum into the variants, so that each variant can be closed.
fn move_keys_into_variants(schema: &mut Schema) {
    let is_variant = |variant: &Value| variant.get("properties").is_some() && variant.get("$ref").is_none();
    let is_flattened = schema.get("properties").is_some()
        && schema.get("oneOf").and_then(Value::as_array).is_some_and(|variants| variants.iter().all(is_variant));
    if !is_flattened {
        return;
    }
    let (properties, required) = (schema.remove("properties"), schema.remove("required"));
    for name in ["additionalProperties", "unevaluatedProperties"] {
        schema.remove(name);
    }
    for variant in schema.get_mut("oneOf").and_then(Value::as_array_mut).into_iter().flatten() {
        if let (Some(Value::Object(common)), Value::Object(own)) = (&properties, &mut variant["properties"]) {
            own.extend(common.clone());
        }
        if let (Some(Value::Array(common)), Value::Array(own)) = (&required, &mut variant["required"]) {
            own.extend(common.iter().cloned());
        }
    }
}

/// Returns `text` in one line without the marks of links and code.
fn prose(text: &str) -> String {
    let text = text.replace("[`", "").replace("`]", "").replace('`', "");
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// Returns the schemas of all documents.
fn all_schemas() -> Vec<DocumentSchema> {
    use Floats::{Forbidden, ReadFromJson};
    vec![
        schema::<TestDocument>("lfn.test.3", "Result of lfn test, lfn.test/3", Forbidden),
        schema::<TestEvent>("lfn.test.3.event", "A line of lfn test --output ndjson, lfn.test.event/3", Forbidden),
        schema::<TuningDocument>("lfn.test.compare.1", "Result of lfn test --compare, lfn.test.compare/1", Forbidden),
        schema::<Comparison>("lfn.show.2", "Comparison of lfn show --json, lfn.show/2", Forbidden),
        schema::<SweepComparison>(
            "lfn.show.sweeps.1",
            "Comparison of sweeps by lfn show --json, lfn.show.sweeps/1",
            Forbidden,
        ),
        schema::<DoctorDocument>("lfn.doctor.1", "Result of lfn doctor, lfn.doctor/1", Forbidden),
        schema::<SweepDocument>("lfn.sweep.1", "Result of lfn sweep, lfn.sweep/1", Forbidden),
        schema::<SweepEvent>("lfn.sweep.event.1", "A line of lfn sweep --output ndjson, lfn.sweep.event/1", Forbidden),
        schema::<StateLine>("lfn.sweep.state.1", "A line of lfn sweep --state FILE, lfn.sweep.state/1", Forbidden),
        schema::<StampDocument>("lfn.stamp.2", "Result of lfn test --stamp --json, lfn.stamp/2", Forbidden),
        schema::<ErrorDocument>("lfn.error.1", "Error of any command under JSON output, lfn.error/1", Forbidden),
        schema::<FindingsDocument>(
            "lfn.findings.1",
            "List of all findings, lfn test --list-findings --json, lfn.findings/1",
            Forbidden,
        ),
        schema::<PlanDocument>("lfn.plan.2", "Result of lfn plan, lfn.plan/2", Forbidden),
        schema::<EmulateDocument>("lfn.emulate.2", "Report of lfn emulate, lfn.emulate/2", ReadFromJson),
        schema::<EmulateShowDocument>(
            "lfn.emulate.show.2",
            "Result of lfn emulate show and set, lfn.emulate.show/2",
            ReadFromJson,
        ),
        schema::<EmulateListDocument>(
            "lfn.emulate.list.1",
            "Result of lfn emulate --list, lfn.emulate.list/1",
            Forbidden,
        ),
        schema::<PacketLogLine>("lfn.emulate.log.2", "A line of lfn emulate --log, lfn.emulate.log/2", Forbidden),
        schema::<DryRunDocument>("lfn.dry-run.2", "Result of lfn emulate --dry-run, lfn.dry-run/2", Forbidden),
        schema::<CopyDocument>("lfn.copy.3", "Result of lfn copy, lfn.copy/3", Forbidden),
        schema::<CopyLine>("lfn.copy.event.3", "A line of lfn copy --output ndjson, version 3", Forbidden),
        schema::<CleanDocument>("lfn.clean.3", "Result of lfn copy --clean, lfn.clean/3", Forbidden),
        schema::<CleanLine>("lfn.clean.event.3", "A line of lfn copy --clean --output ndjson, version 3", Forbidden),
        schema::<VerifyDocument>("lfn.verify.2", "Result of lfn verify, lfn.verify/2", Forbidden),
        schema::<VerifyLine>("lfn.verify.event.2", "A line of lfn verify --output ndjson, version 2", Forbidden),
        schema::<ServerLogLine>("lfn.serve.log.1", "A line of lfn serve --log-format json, version 1", Forbidden),
        schema::<AuditLine>("lfn.serve.audit.1", "A line of lfn serve --audit FILE, version 1", Forbidden),
        schema::<ServeDocument>("lfn.serve.1", "First line of lfn serve --json, lfn.serve/1", Forbidden),
        schema::<Announcement>("lfn.stdio.1", "First line of lfn serve --stdio, lfn.stdio/1", Forbidden),
        schema::<TokenDocument>("lfn.token.1", "Result of lfn token add, lfn.token/1", Forbidden),
        schema::<TokensDocument>("lfn.tokens.1", "Result of lfn token list, lfn.tokens/1", Forbidden),
        schema::<TokenRevokedDocument>(
            "lfn.token.revoke.1",
            "Result of lfn token revoke, lfn.token.revoke/1",
            Forbidden,
        ),
        schema::<CouplePlanDocument>("lfn.couple.plan.1", "Result of lfn couple plan, lfn.couple.plan/1", ReadFromJson),
        schema::<CoupleRunDocument>("lfn.couple.run.1", "Result of lfn couple run, lfn.couple.run/1", ReadFromJson),
        schema::<HubDocument>("lfn.mesh.hub.1", "Result of lfn mesh hub and lfn mesh up, lfn.mesh.hub/1", Forbidden),
        schema::<AgentTicketDocument>("lfn.mesh.ticket.1", "Result of lfn mesh ticket, lfn.mesh.ticket/1", Forbidden),
        schema::<BackupDocument>("lfn.mesh.backup.1", "Result of lfn mesh backup, lfn.mesh.backup/1", Forbidden),
        schema::<Entry>("lfn.mesh.entry.1", "Line of the log of a mesh, lfn.mesh.entry/1", ReadFromJson),
        schema::<HostsDocument>("lfn.hosts.1", "Result of lfn hosts list, lfn.hosts/1", Forbidden),
        schema::<HostAddedDocument>("lfn.hosts.add.1", "Result of lfn hosts add, lfn.hosts.add/1", Forbidden),
        schema::<HostRemovedDocument>(
            "lfn.hosts.remove.1",
            "Result of lfn hosts remove, lfn.hosts.remove/1",
            Forbidden,
        ),
        schema::<ExportDocument>(
            "lfn.mesh.export.1",
            "Result of lfn mesh export --json, lfn.mesh.export/1",
            ReadFromJson,
        ),
        schema::<AgentDocument>("lfn.mesh.agent.1", "Result of lfn mesh agent, lfn.mesh.agent/1", Forbidden),
        schema::<LogDocument>("lfn.mesh.log.1", "Result of lfn mesh log, lfn.mesh.log/1", Forbidden),
        schema::<ImportDocument>("lfn.mesh.import.1", "Result of lfn mesh import, lfn.mesh.import/1", Forbidden),
        schema::<MeshPlanDocument>("lfn.mesh.plan.1", "Result of lfn mesh plan, lfn.mesh.plan/1", Forbidden),
        schema::<MeshCheckDocument>("lfn.mesh.check.1", "Result of lfn mesh check, lfn.mesh.check/1", Forbidden),
        schema::<Coop3dDocument>("lfn.demo.coop3d.1", "Result of lfn demo coop3d, lfn.demo.coop3d/1", ReadFromJson),
        schema::<DemoDocument>("lfn.demo.2", "Result of lfn demo, lfn.demo/2", ReadFromJson),
        schema::<TraceDocument>("lfn.trace.1", "Result of lfn trace, lfn.trace/1", Forbidden),
        schema::<TraceEvent>("lfn.trace.event.1", "A line of lfn trace --output ndjson, lfn.trace.event/1", Forbidden),
        schema::<VersionDocument>("lfn.version.1", "Result of lfn version, lfn.version/1", Forbidden),
        schema::<DefaultsDocument>("lfn.defaults.1", "Result of lfn defaults, lfn.defaults/1", Forbidden),
    ]
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/schema")
}

/// Writes the schemas to `doc/schema`; `doc/schema/make` runs it.
#[test]
#[ignore = "writes doc/schema: run by doc/schema/make"]
fn write() {
    for DocumentSchema { name, text } in all_schemas() {
        fs::write(directory().join(format!("{name}.schema.json")), text).unwrap();
    }
}

#[test]
fn stored_schemas_are_those_of_the_types() {
    let schemas = all_schemas();
    for DocumentSchema { name, text } in &schemas {
        let stored = fs::read_to_string(directory().join(format!("{name}.schema.json"))).unwrap_or_default();
        assert!(stored == *text, "the document {name} has changed: bash doc/schema/make");
    }
    let files = fs::read_dir(directory()).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    for file in files.filter(|name| name.ends_with(".json")) {
        let is_known = schemas.iter().any(|schema| format!("{}.schema.json", schema.name) == file);
        assert!(is_known, "{file} belongs to no document");
    }
}

#[test]
fn every_schema_is_in_the_table_of_formats() {
    let table = include_str!("../../../../doc/reference/formats.md");
    for DocumentSchema { name, .. } in all_schemas() {
        assert!(
            table.contains(&format!("(../schema/{name}.schema.json)")),
            "{name} is not in doc/reference/formats.md"
        );
    }
}

/// Every object is closed and every key has a description.
#[test]
fn every_key_of_a_schema_has_a_description() {
    let mut faults = Vec::new();
    for DocumentSchema { name, text } in all_schemas() {
        find_undescribed(&serde_json::from_str(&text).unwrap(), name, &mut faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn find_undescribed(value: &Value, at: &str, faults: &mut Vec<String>) {
    let Value::Object(map) = value else {
        return value.as_array().into_iter().flatten().for_each(|part| find_undescribed(part, at, faults));
    };
    if let Some(Value::Object(properties)) = map.get("properties") {
        if map.get("additionalProperties") != Some(&false.into()) {
            faults.push(format!("{at} takes anything"));
        }
        // A variant with one named value: its description is outside the object.
        let variant = properties.len() == 1 && map.contains_key("description");
        for (name, property) in properties {
            let is_described =
                variant || ["description", "const", "$ref"].iter().any(|key| property.get(key).is_some());
            if !is_described {
                faults.push(format!("{at}/{name} has no description"));
            }
        }
    }
    for (name, part) in map {
        find_undescribed(part, &format!("{at}/{name}"), faults);
    }
}
