//! Reads stored results: `lfn.test/3`, the lines of `--output ndjson`, and the output of iperf3 with `-J` or `--json-stream`.
//!
//! A file may hold anything: every error has its position, the parser bounds the nesting (128 levels), and the memory
//! is a few times the length, which the caller bounds by [`MAX_RESULT_BYTES`]. A duplicate key is an error in lfn's own
//! formats, which never have one. iperf3 writes some keys twice; these keys are not used here.

use serde::de::{DeserializeOwned, IgnoredAny};

use super::checked_values::{PermittedFigures, check_values};
use super::doctor::DoctorDocument;
use super::document::{Origin, TestDocument, TestSchema, UnfinishedTest};
use super::event::TestEvent;
use super::iperf3_json::{self, Iperf3Output};
use super::read_error::{DOCTOR_SCHEMA, EVENT_SCHEMA, ReadError, TEST_SCHEMA, TUNING_SCHEMA};
use super::tuning::TuningDocument;
use crate::evidence::Side;

/// Maximum length of a result file in bytes: one stream at both ends for a day, one interval each second.
pub const MAX_RESULT_BYTES: u64 = 512 << 20;
/// Maximum length of an evidence file of `lfn doctor`, bytes: two loads of an hour with four samples each second.
pub const MAX_DOCTOR_BYTES: u64 = 128 << 20;

/// Result that a file holds.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredResult {
    /// A result of `lfn test`.
    Test(Box<TestDocument>),
    /// A result of `lfn test --compare`.
    Tuning(Box<TuningDocument>),
    /// A result of iperf3.
    Iperf3(Box<Iperf3Output>),
}

/// Keys of the first object that show the format of the file.
#[derive(serde::Deserialize, Default)]
struct FileHead {
    schema: Option<String>,
    event: Option<String>,
    data: Option<IgnoredAny>,
    start: Option<IgnoredAny>,
    end: Option<IgnoredAny>,
}

/// Reads the content of a result file.
pub fn read_result(bytes: &[u8]) -> Result<StoredResult, ReadError> {
    let head = read_head(bytes)?;
    match (head.schema.as_deref(), head.event.as_deref()) {
        (Some(TEST_SCHEMA), None) => {
            read_own(bytes, PermittedFigures::Any).map(|document| StoredResult::Test(Box::new(document)))
        }
        (Some(TUNING_SCHEMA), None) => {
            read_own(bytes, PermittedFigures::Any).map(|document| StoredResult::Tuning(Box::new(document)))
        }
        (Some(EVENT_SCHEMA), Some(_)) => read_events(bytes).map(|document| StoredResult::Test(Box::new(document))),
        (Some(other), _) => Err(ReadError::Schema(printable(other))),
        (None, Some(_)) if head.data.is_some() => read_iperf3_lines(iperf3_json::Iperf3Lines::default(), bytes),
        (None, None) if head.start.is_some() && head.end.is_some() => check_iperf3(read_document(bytes)?),
        (None, Some(_)) => Err(ReadError::NoStart),
        (None, None) => Err(ReadError::Unknown),
    }
}

/// Reads the content of an evidence file of `lfn doctor`.
pub fn read_doctor(bytes: &[u8]) -> Result<DoctorDocument, ReadError> {
    match read_head(bytes)?.schema {
        Some(schema) if schema == DOCTOR_SCHEMA => read_plausible(bytes),
        schema => Err(ReadError::NotDoctor(printable(&schema.unwrap_or_default()))),
    }
}

/// Returns the schema of the first object of a file, without control characters; empty if the object has none.
pub fn read_schema(bytes: &[u8]) -> Result<String, ReadError> {
    Ok(printable(&read_head(bytes)?.schema.unwrap_or_default()))
}

/// Reads the only document of a file. A figure that no measurement has is an error, so that no sum overflows.
pub fn read_plausible<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ReadError> {
    read_own(bytes, PermittedFigures::Plausible)
}

/// Returns the start of a text from a file, without control characters.
fn printable(text: &str) -> String {
    text.chars().take(40).filter(|c| !c.is_control()).collect()
}

fn show_byte(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("'{}'", char::from(byte)) } else { format!("byte 0x{byte:02x}") }
}

fn read_head(bytes: &[u8]) -> Result<FileHead, ReadError> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace()).ok_or(ReadError::Empty)?;
    if *first != b'{' {
        return Err(ReadError::NotJson(show_byte(*first)));
    }
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<FileHead>();
    values.next().transpose()?.ok_or(ReadError::Empty)
}

/// Reads the only value of a file of lfn itself.
fn read_own<T: DeserializeOwned>(bytes: &[u8], permitted: PermittedFigures) -> Result<T, ReadError> {
    check_values(bytes, permitted)?;
    read_document(bytes)
}

/// Reads the only value of a file.
fn read_document<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ReadError> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<T>();
    let value = values.next().transpose()?.ok_or(ReadError::Empty)?;
    if !bytes[values.byte_offset()..].iter().all(u8::is_ascii_whitespace) {
        return Err(ReadError::Trailing);
    }
    Ok(value)
}

/// Returns the lines of a file that are not blank, with their numbers from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|&byte| byte == b'\n').enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace))
}

/// Reads a file of events. The last line has the whole result. If the command was killed, the result is built from the
/// earlier lines.
fn read_events(bytes: &[u8]) -> Result<TestDocument, ReadError> {
    let mut origin: Option<Origin> = None;
    let mut unfinished: Option<UnfinishedTest> = None;
    for (line, text) in lines(bytes) {
        let wrong = |source| ReadError::Line { line, source };
        check_values(text, PermittedFigures::Any).map_err(|error| error.in_line(line))?;
        match serde_json::from_slice(text).map_err(wrong)? {
            TestEvent::Start { origin: first, .. } => origin = Some(first),
            TestEvent::Run { request, .. } => unfinished = Some(UnfinishedTest::new(request)),
            TestEvent::Connected { handshake_rtt, .. } => {
                unfinished.iter_mut().for_each(|seen| seen.handshake_rtt = Some(handshake_rtt));
            }
            TestEvent::Interval { end, interval, .. } => {
                let Some(seen) = &mut unfinished else { return Err(ReadError::NoStart) };
                match end {
                    Side::Near => seen.near_intervals.push(interval),
                    Side::Far => seen.far_intervals.push(interval),
                }
            }
            TestEvent::Step { ramp, .. } => unfinished.iter_mut().for_each(|seen| seen.ramp = Some(ramp.clone())),
            TestEvent::Finding { .. } => {}
            TestEvent::End { result } => return Ok(*result),
        }
    }
    let origin = origin.ok_or(ReadError::NoStart)?;
    Ok(TestDocument { schema: TestSchema::V3, origin, runs: Vec::new(), unfinished, error: None })
}

fn read_iperf3_lines(mut iperf3: iperf3_json::Iperf3Lines, bytes: &[u8]) -> Result<StoredResult, ReadError> {
    for (line, text) in lines(bytes) {
        iperf3.push(text).map_err(|source| ReadError::Line { line, source })?;
    }
    check_iperf3(iperf3.finish())
}

fn check_iperf3(result: Iperf3Output) -> Result<StoredResult, ReadError> {
    match &result.error {
        Some(error) => Err(ReadError::Iperf3Failed(error.chars().take(200).filter(|c| !c.is_control()).collect())),
        None => Ok(StoredResult::Iperf3(Box::new(result))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        read_result(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn errors_have_the_position_in_the_file() {
        assert_eq!(error_of(" \n"), "the file is empty");
        assert_eq!(read_result(b"\x7fELF").unwrap_err().to_string(), "not JSON: begins with byte 0x7f, not with '{'");
        assert_eq!(error_of("[1]"), "not JSON: begins with '[', not with '{'");
        assert!(error_of("{\"schema\": \"lfn.test/3\",\n \"runs\": NaN}").contains("line 2 column"));
        assert!(error_of("{\"schema\": \"lfn.test/3\", \"origin\": 1e999}").contains("out of range"));
        assert!(error_of("{\"schema\": \"lfn.test/3\", \"runs\": [").contains("EOF"));
        assert_eq!(
            error_of("{\"schema\":\"lfn.test/2\",\"runs\":[]}"),
            "schema version 'lfn.test/2' is not supported: lfn reads lfn.test/3, lfn.test.event/3 and JSON of iperf3"
        );
        assert_eq!(error_of("{}"), "not a result of `lfn test` or `iperf3 -J`");
        assert!(
            error_of("{\"schema\":\"lfn.test/3\",\"x\":{\"a\":1,\n\"a\":2}}").contains("duplicate key 'a' at line 2")
        );
        let (open, closed) = ("[".repeat(1_000_000), "]".repeat(1_000_000));
        let deep = format!("{{\"schema\":\"lfn.test/3\",\"x\":{open}{closed}}}");
        assert!(error_of(&deep).contains("recursion limit"));
        assert!(error_of("{\"event\":\"start\"}").contains("is not 'start'"));
        assert!(error_of("{\"schema\":\"lfn.test/3\",\"origin\":{}}").contains("missing field"));
        assert_eq!(
            error_of("{\"start\":{},\"intervals\":[],\"end\":{},\"error\":\"no route\"}"),
            "iperf3 failed: no route"
        );
    }
}
