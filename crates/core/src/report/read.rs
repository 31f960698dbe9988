//! Reads stored results: `lfn.test/2`, the lines of `--ndjson`, and what iperf3 prints with `-J` or `--json-stream`.
//!
//! A file may hold anything: every error names its place, nesting is bounded by the parser (128 levels), and memory
//! stays within a few times the length, which the caller bounds by [`LARGEST`]. A key that is there twice is refused in
//! lfn's own formats, where it never is; iperf3 does write some twice, and those are not used here.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::document::{Document, Origin, Unfinished};
use super::event::Event;
use super::foreign::{self, Iperf3Output};
use super::{DocumentSchema, Side};

/// The longest file that is read: a day of one stream at both ends, an interval a second.
pub const LARGEST: u64 = 512 << 20;

/// What a file held.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// A result of `lfn test`.
    Test(Box<Document>),
    /// A result of iperf3.
    Iperf3(Box<Iperf3Output>),
}

/// Why a file is no result that can be read. The caller names the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Nothing but white space.
    #[error("the file is empty")]
    Empty,
    /// The first byte decides, before all of something huge is read as text.
    #[error("not JSON: begins with {0}, not with '{{'")]
    NotJson(String),
    /// No JSON, or JSON of another shape; says line and column.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The same of one line of many.
    #[error("line {line}: {source}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// An lfn of long ago, or of later.
    #[error("schema '{0}': this lfn reads lfn.test/2, lfn.test.event/2 and iperf3's JSON")]
    Schema(String),
    /// JSON of something else.
    #[error("neither a result of lfn test nor of iperf3 -J")]
    Unknown,
    /// More after the first result.
    #[error("more than one result in the file")]
    More,
    /// iperf3 tells with `error` that it failed.
    #[error("iperf3 failed: {0}")]
    Failed(String),
    /// Its lines do not begin with the first event.
    #[error("the events do not begin with 'start'")]
    NoStart,
}

/// What the first object of a file says it is.
#[derive(serde::Deserialize, Default)]
struct Head {
    schema: Option<String>,
    event: Option<String>,
    data: Option<IgnoredAny>,
    start: Option<IgnoredAny>,
    end: Option<IgnoredAny>,
}

/// Reads what a file holds.
pub fn read(bytes: &[u8]) -> Result<Stored, ReadError> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace()).ok_or(ReadError::Empty)?;
    if *first != b'{' {
        return Err(ReadError::NotJson(shown(*first)));
    }
    let head = head(bytes)?;
    match (head.schema.as_deref(), head.event.as_deref()) {
        (Some("lfn.test/2"), None) => whole(bytes, true).map(|document| Stored::Test(Box::new(document))),
        (Some("lfn.test.event/2"), Some(_)) => events(bytes).map(|document| Stored::Test(Box::new(document))),
        (Some(other), _) => Err(ReadError::Schema(other.chars().take(40).filter(|c| !c.is_control()).collect())),
        (None, Some(_)) if head.data.is_some() => iperf3(foreign::Lines::default(), bytes),
        (None, None) if head.start.is_some() && head.end.is_some() => checked(whole(bytes, false)?),
        (None, Some(_)) => Err(ReadError::NoStart),
        (None, None) => Err(ReadError::Unknown),
    }
}

fn shown(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("'{}'", char::from(byte)) } else { format!("byte 0x{byte:02x}") }
}

fn head(bytes: &[u8]) -> Result<Head, ReadError> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Head>();
    values.next().transpose()?.ok_or(ReadError::Empty)
}

/// The one value of a file.
fn whole<T: DeserializeOwned>(bytes: &[u8], strict: bool) -> Result<T, ReadError> {
    if strict {
        let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Strict>();
        values.next().transpose()?;
        if !bytes[values.byte_offset()..].iter().all(u8::is_ascii_whitespace) {
            return Err(ReadError::More);
        }
    }
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<T>();
    let value = values.next().transpose()?.ok_or(ReadError::Empty)?;
    if !bytes[values.byte_offset()..].iter().all(u8::is_ascii_whitespace) {
        return Err(ReadError::More);
    }
    Ok(value)
}

/// The lines of a file that are no mere white space, counted from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = bytes.split(|&byte| byte == b'\n').enumerate().map(|(index, line)| (index + 1, line));
    lines.filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace))
}

/// The last line holds the whole result; of a command that was killed there is none, and what was told is put together.
fn events(bytes: &[u8]) -> Result<Document, ReadError> {
    let mut origin: Option<Origin> = None;
    let mut under_way: Option<Unfinished> = None;
    for (line, text) in lines(bytes) {
        let wrong = |source| ReadError::Line { line, source };
        serde_json::from_slice::<Strict>(text).map_err(wrong)?;
        match serde_json::from_slice(text).map_err(wrong)? {
            Event::Start { origin: told, .. } => origin = Some(told),
            Event::Run { request, .. } => under_way = Some(Unfinished::new(request)),
            Event::Connected { handshake_rtt, .. } => {
                under_way.iter_mut().for_each(|seen| seen.handshake_rtt = Some(handshake_rtt));
            }
            Event::Interval { end, interval, .. } => {
                let Some(seen) = &mut under_way else { return Err(ReadError::NoStart) };
                match end {
                    Side::Near => seen.near_intervals.push(interval),
                    Side::Far => seen.far_intervals.push(interval),
                }
            }
            Event::Step { ramp, .. } => under_way.iter_mut().for_each(|seen| seen.ramp = Some(ramp.clone())),
            Event::Finding { .. } => {}
            Event::End { result } => return Ok(*result),
        }
    }
    let origin = origin.ok_or(ReadError::NoStart)?;
    Ok(Document { schema: DocumentSchema::Two, origin, runs: Vec::new(), unfinished: under_way, error: None })
}

fn iperf3(mut told: foreign::Lines, bytes: &[u8]) -> Result<Stored, ReadError> {
    for (line, text) in lines(bytes) {
        told.take(text).map_err(|source| ReadError::Line { line, source })?;
    }
    checked(told.result())
}

fn checked(result: Iperf3Output) -> Result<Stored, ReadError> {
    match &result.error {
        Some(error) => Err(ReadError::Failed(error.chars().take(200).filter(|c| !c.is_control()).collect())),
        None => Ok(Stored::Iperf3(Box::new(result))),
    }
}

/// Any JSON in which no object has a key twice.
struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Strict)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_unit<E: Error>(self) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        while items.next_element::<Strict>()?.is_some() {}
        Ok(Strict)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Strict, A::Error> {
        let mut keys: HashSet<String> = HashSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if keys.contains(&key) {
                let key: String = key.chars().take(40).filter(|c| !c.is_control()).collect();
                return Err(A::Error::custom(format_args!("key '{key}' is there twice")));
            }
            keys.insert(key);
            fields.next_value::<Strict>()?;
        }
        Ok(Strict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        read(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_result_is_named_with_its_place() {
        assert_eq!(said(" \n"), "the file is empty");
        assert_eq!(read(b"\x7fELF").unwrap_err().to_string(), "not JSON: begins with byte 0x7f, not with '{'");
        assert_eq!(said("[1]"), "not JSON: begins with '[', not with '{'");
        assert!(said("{\"schema\": \"lfn.test/2\",\n \"runs\": NaN}").contains("line 2 column"));
        assert!(said("{\"schema\": \"lfn.test/2\", \"origin\": 1e999}").contains("out of range"));
        assert!(said("{\"schema\": \"lfn.test/2\", \"runs\": [").contains("EOF"));
        assert!(said("{\"schema\":\"lfn.test/1\",\"runs\":[]}").starts_with("schema 'lfn.test/1'"));
        assert_eq!(said("{}"), "neither a result of lfn test nor of iperf3 -J");
        assert!(
            said("{\"schema\":\"lfn.test/2\",\"x\":{\"a\":1,\n\"a\":2}}").contains("key 'a' is there twice at line 2")
        );
        let (open, closed) = ("[".repeat(1_000_000), "]".repeat(1_000_000));
        let deep = format!("{{\"schema\":\"lfn.test/2\",\"x\":{open}{closed}}}");
        assert!(said(&deep).contains("recursion limit"));
        assert!(said("{\"event\":\"start\"}").contains("do not begin"));
        assert!(said("{\"schema\":\"lfn.test/2\",\"origin\":{}}").contains("missing field"));
        assert_eq!(
            said("{\"start\":{},\"intervals\":[],\"end\":{},\"error\":\"no route\"}"),
            "iperf3 failed: no route"
        );
    }
}
