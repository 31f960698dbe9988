//! Entries of a file: exported entries, a result of `lfn test`, or a result of iperf3.
//!
//! Files are bounded ([`MAX_FILE_BYTES`], [`MAX_LINE_BYTES`], [`MAX_ENTRIES`]). A file with an error gives no entry at all.

use lfn_results::report::{ReadError, read_result, read_schema};
use serde_json::value::RawValue;

use crate::entry::Entry;
use crate::from_result::{ResultError, ResultHosts, entries_of};

/// Maximum length of a file, bytes.
pub const MAX_FILE_BYTES: u64 = 512 << 20;

/// Maximum length of a line of exported entries, bytes.
pub const MAX_LINE_BYTES: usize = 16 << 20;

/// Maximum number of entries of a file.
pub const MAX_ENTRIES: usize = 1_000_000;

/// Entries of a batch.
const BATCH: usize = 1_000;

/// Maximum number of bad lines that an error lists.
const MAX_LISTED: usize = 20;

/// Schema of exported entries.
const ENTRY_SCHEMA: &str = "lfn.mesh.entry/1";

/// Schema of an export in one JSON object.
const EXPORT_SCHEMA: &str = "lfn.mesh.export/1";

/// An export in one JSON object.
#[derive(serde::Deserialize)]
struct ExportedDocument<'a> {
    #[serde(borrow)]
    entries: Vec<&'a RawValue>,
}

/// Reasons why a file gives no entries.
#[derive(Debug, thiserror::Error)]
pub enum ImportFileError {
    #[error("{}", show_lines(.lines, *.others))]
    Lines {
        /// Bad lines, at most 20.
        lines: Vec<LineError>,
        /// Number of the other bad lines.
        others: usize,
    },
    #[error("more than {MAX_ENTRIES} entries")]
    TooMany,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Result(#[from] ResultError),
    /// An entry of an export in one JSON object; `number` counts from 1.
    #[error("entry {number}: {reason}")]
    Exported { number: usize, reason: String },
    #[error("{0}")]
    Entry(#[from] crate::entry::EntryError),
}

/// A line that is not an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// Number of the line, from 1.
    pub line: usize,
    pub reason: String,
}

fn show_lines(lines: &[LineError], others: usize) -> String {
    let mut text: Vec<String> = lines.iter().map(|error| format!("line {}: {}", error.line, error.reason)).collect();
    if others > 0 {
        text.push(format!("and {others} more lines"));
    }
    text.join("; ")
}

/// The entries of a checked file. Exported entries stay as text until their batch is made, so that the memory is a small
/// multiple of the file.
#[derive(Debug)]
pub enum FileEntries<'a> {
    /// Exported entries, each as JSON that was parsed once.
    Exported(Vec<&'a [u8]>),
    /// The entries of a result.
    OfResult(Vec<Entry>),
}

impl<'a> FileEntries<'a> {
    /// Returns the entries in batches.
    pub fn batches(self) -> impl Iterator<Item = Vec<Entry>> {
        let (texts, of_result) = match self {
            FileEntries::Exported(texts) => (texts, None),
            FileEntries::OfResult(entries) => (Vec::new(), Some(entries)),
        };
        let count = texts.len().div_ceil(BATCH);
        let exported = (0..count).map(move |at| {
            let end = texts.len().min((at + 1) * BATCH);
            texts[at * BATCH..end].iter().filter_map(|text| read_line(text).ok()).collect()
        });
        of_result.into_iter().chain(exported)
    }
}

/// Reads the content of a file, and checks all of its entries.
pub fn read_file<'a>(bytes: &'a [u8], hosts: ResultHosts<'_>) -> Result<FileEntries<'a>, ImportFileError> {
    // A damaged first line of entries is an error of this line.
    let first = bytes.split(|&byte| byte == b'\n').find(|line| !line.iter().all(u8::is_ascii_whitespace));
    let names_entry = first.is_some_and(|line| {
        let start = &line[..line.len().min(200)];
        start.windows(ENTRY_SCHEMA.len()).any(|window| window == ENTRY_SCHEMA.as_bytes())
    });
    match read_schema(bytes) {
        Ok(schema) if schema == EXPORT_SCHEMA => return check_export(bytes).map(FileEntries::Exported),
        Ok(schema) if schema == ENTRY_SCHEMA => return check_lines(bytes).map(FileEntries::Exported),
        _ if names_entry => return check_lines(bytes).map(FileEntries::Exported),
        _ => {}
    }
    let stored = read_result(bytes)?;
    let mut entries = entries_of(&stored, bytes, hosts)?;
    for entry in &mut entries {
        entry.marks.imported = true;
        entry.check()?;
    }
    Ok(FileEntries::OfResult(entries))
}

/// Reads all entries of a file at once.
pub fn read_entries(bytes: &[u8], hosts: ResultHosts<'_>) -> Result<Vec<Entry>, ImportFileError> {
    Ok(read_file(bytes, hosts)?.batches().flatten().collect())
}

/// Checks the entries of an export in one JSON object.
fn check_export(bytes: &[u8]) -> Result<Vec<&[u8]>, ImportFileError> {
    let ExportedDocument { entries } = serde_json::from_slice(bytes).map_err(ReadError::from)?;
    if entries.len() > MAX_ENTRIES {
        return Err(ImportFileError::TooMany);
    }
    for (index, text) in entries.iter().enumerate() {
        let number = index + 1;
        read_line(text.get().as_bytes()).map_err(|reason| ImportFileError::Exported { number, reason })?;
    }
    Ok(entries.into_iter().map(|text| text.get().as_bytes()).collect())
}

/// Checks one entry in each line. Blank lines are skipped.
fn check_lines(bytes: &[u8]) -> Result<Vec<&[u8]>, ImportFileError> {
    let (mut entries, mut bad, mut others) = (Vec::new(), Vec::new(), 0);
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match read_line(line) {
            Ok(_) if entries.len() == MAX_ENTRIES => return Err(ImportFileError::TooMany),
            Ok(_) => entries.push(line),
            Err(reason) if bad.len() < MAX_LISTED => bad.push(LineError { line: index + 1, reason }),
            Err(_) => others += 1,
        }
    }
    if !bad.is_empty() {
        return Err(ImportFileError::Lines { lines: bad, others });
    }
    Ok(entries)
}

fn read_line(line: &[u8]) -> Result<Entry, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("longer than {} MiB", MAX_LINE_BYTES >> 20));
    }
    let entry: Entry = serde_json::from_slice(line).map_err(|error| {
        // Every line is its own document for the parser.
        let text = error.to_string();
        text.split(" at line ").next().unwrap_or_default().chars().take(200).collect::<String>()
    })?;
    entry.check().map_err(|error| error.to_string())?;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VBNS: &str = include_str!("../../../contrib/mesh/vbns-1997.ndjson");

    #[test]
    fn each_bad_line_is_named() {
        let text = format!("{}\n\n{{}}\n{}", VBNS.lines().next().unwrap(), r#"{"schema":"x"}"#);
        let error = read_entries(text.as_bytes(), ResultHosts::default()).unwrap_err();
        let ImportFileError::Lines { lines, .. } = &error else { panic!("{error}") };
        assert_eq!(lines.iter().map(|error| error.line).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn written_entries_are_read_back() {
        let entries = read_entries(VBNS.as_bytes(), ResultHosts::default()).unwrap();
        let text: String = entries.iter().map(|entry| serde_json::to_string(entry).unwrap() + "\n").collect();
        assert_eq!(read_entries(text.as_bytes(), ResultHosts::default()).unwrap(), entries);
    }

    #[test]
    fn export_in_one_object_is_read_back() {
        let entries = read_entries(VBNS.as_bytes(), ResultHosts::default()).unwrap();
        let document = serde_json::json!({ "schema": EXPORT_SCHEMA, "entries": entries });
        let text = serde_json::to_string_pretty(&document).unwrap();
        assert_eq!(read_entries(text.as_bytes(), ResultHosts::default()).unwrap(), entries);
        let damaged = text.replace("ncar", "<ncar>");
        assert!(read_entries(damaged.as_bytes(), ResultHosts::default()).is_err());
    }

    #[test]
    fn two_results_of_iperf3_in_one_file_are_an_error() {
        let one = r#"{"start":{},"intervals":[],"end":{}}"#;
        let error = read_entries(format!("{one}\n{one}").as_bytes(), ResultHosts::default()).unwrap_err();
        assert!(matches!(error, ImportFileError::Read(ReadError::Trailing)), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read_entries(&bytes, ResultHosts::default());
        }

        #[test]
        fn damaged_entries_give_errors_with_lines(position in 0..VBNS.len(), byte in any::<u8>()) {
            let mut bytes = VBNS.as_bytes().to_vec();
            bytes[position] = byte;
            match read_entries(&bytes, ResultHosts::default()) {
                Ok(entries) => prop_assert!(entries.iter().all(|entry| entry.check().is_ok())),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
