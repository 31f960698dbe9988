//! Documents that a file may hold, recognised by their schema.

use std::path::Path;

use lfn_campaign::document::SweepDocument;
use lfn_campaign::stored::{MAX_SWEEP_BYTES, STATE_SCHEMA, SWEEP_EVENT_SCHEMA, SWEEP_SCHEMA, read_sweep};
use lfn_results::report::{
    DoctorDocument, MAX_DOCTOR_BYTES, MAX_RESULT_BYTES, ReadError, StoredResult, read_doctor, read_plausible,
    read_result, read_schema,
};
use serde::de::IgnoredAny;

use super::contents::read_contents;
use super::error::ShowError;
use crate::documents::{CopyDocument, EmulateDocument, TraceDocument};

/// Document of a file.
#[derive(Debug)]
pub enum StoredDocument {
    /// A result of `lfn test` or iperf3.
    Test(StoredResult),
    Sweep(Box<SweepDocument>),
    Doctor(Box<DoctorDocument>),
    Copy(Box<CopyDocument>),
    Emulation(Box<EmulateDocument>),
    Trace(Box<TraceDocument>),
}

impl StoredDocument {
    /// Returns the command of lfn that writes such a document.
    pub fn command(&self) -> &'static str {
        match self {
            StoredDocument::Test(_) => "test",
            StoredDocument::Sweep(_) => "sweep",
            StoredDocument::Doctor(_) => "doctor",
            StoredDocument::Copy(_) => "copy",
            StoredDocument::Emulation(_) => "emulate",
            StoredDocument::Trace(_) => "trace",
        }
    }
}

/// Schemas that can be shown, without those of tests.
const SCHEMAS: [&str; 7] =
    [SWEEP_SCHEMA, SWEEP_EVENT_SCHEMA, STATE_SCHEMA, "lfn.doctor/1", "lfn.copy/3", "lfn.emulate/2", "lfn.trace/1"];

/// Maximum length of a result of `lfn copy`, `emulate` or `trace`, bytes.
const MAX_DOCUMENT_BYTES: u64 = 128 << 20;

/// Reads the document of a file. The path `-` reads standard input.
pub(super) fn read(path: &Path) -> Result<StoredDocument, ShowError> {
    let file = || path.to_owned();
    let bytes = read_contents(path, MAX_RESULT_BYTES).map_err(|source| ShowError::Read { file: file(), source })?;
    let check_length = |max: u64| {
        if bytes.len() as u64 > max { Err(ShowError::TooLong { file: file(), max }) } else { Ok(()) }
    };
    check_length(MAX_RESULT_BYTES)?;
    let unreadable = |source| ShowError::Result { file: file(), source };
    let schema = read_schema(&bytes).map_err(unreadable)?;
    if is_newer(&schema) {
        return Err(ShowError::Newer { file: file(), schema });
    }
    match schema.as_str() {
        SWEEP_SCHEMA | SWEEP_EVENT_SCHEMA | STATE_SCHEMA => {
            check_length(MAX_SWEEP_BYTES)?;
            let sweep = read_sweep(&bytes, &path.display().to_string());
            let sweep = sweep.map_err(|source| ShowError::Sweep { file: file(), source: Box::new(source) })?;
            Ok(StoredDocument::Sweep(Box::new(sweep)))
        }
        "lfn.doctor/1" => {
            check_length(MAX_DOCTOR_BYTES)?;
            let document = read_doctor(&bytes).map_err(unreadable)?;
            Ok(StoredDocument::Doctor(Box::new(document.diagnosed_again())))
        }
        "lfn.copy/3" | "lfn.emulate/2" | "lfn.trace/1" => {
            check_length(MAX_DOCUMENT_BYTES)?;
            read_document(&schema, &bytes).map_err(unreadable)
        }
        other if other.starts_with("lfn.") && !other.starts_with("lfn.test") => {
            Err(ShowError::Schema { file: file(), schema: other.to_owned() })
        }
        _ => read_result(&bytes).map(StoredDocument::Test).map_err(unreadable),
    }
}

/// Reads a result of `lfn copy`, `emulate` or `trace`.
fn read_document(schema: &str, bytes: &[u8]) -> Result<StoredDocument, ReadError> {
    /// A key that only the error of a copy has.
    #[derive(serde::Deserialize)]
    struct FailedHead {
        exit_code: Option<IgnoredAny>,
    }
    Ok(match schema {
        "lfn.emulate/2" => StoredDocument::Emulation(Box::new(read_plausible(bytes)?)),
        "lfn.trace/1" => StoredDocument::Trace(Box::new(read_plausible(bytes)?)),
        _ => {
            let head: FailedHead = read_plausible(bytes)?;
            let document = match head.exit_code {
                Some(_) => CopyDocument::Failed(read_plausible(bytes)?),
                None => CopyDocument::Finished(Box::new(read_plausible(bytes)?)),
            };
            StoredDocument::Copy(Box::new(document))
        }
    })
}

/// Reports whether a later version than this one writes the schema.
fn is_newer(schema: &str) -> bool {
    let version = |schema: &str| schema.rsplit_once('/').and_then(|(_, version)| version.parse::<u32>().ok());
    let name = |schema: &str| schema.rsplit_once('/').map(|(name, _)| name.to_owned());
    let known = SCHEMAS.into_iter().find(|known| name(known) == name(schema));
    known.is_some_and(|known| version(schema) > version(known))
}
