//! Problems of a sites file: each has a line, a column, and one action that fixes it.

use std::fmt;

use lfn_base::units::QuantityError;

use super::limits::{MAX_FILE_BYTES, MAX_LISTED_PROBLEMS, MAX_PARALLEL_MEASUREMENTS};

/// Reasons why a part of a sites file is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the file has {0} bytes: the maximum is {MAX_FILE_BYTES}")]
    TooLong(usize),
    #[error("not TOML: {0}")]
    Syntax(String),
    #[error("unknown key '{key}' in {table}")]
    UnknownKey { table: &'static str, key: String, known: String, similar: Option<&'static str> },
    #[error("{table} has no '{key}'")]
    MissingKey { table: &'static str, key: &'static str },
    #[error("'{key}' in {table} is not {expected}")]
    WrongType { table: &'static str, key: String, expected: &'static str },
    #[error("'{key}' in {table}: {error}")]
    Quantity { table: &'static str, key: &'static str, error: QuantityError },
    #[error("'{key}' in {table}: '{value}' is not one of {choices}")]
    Choice { table: &'static str, key: &'static str, value: String, choices: String },
    #[error("'{value}' is not a valid name")]
    Name { value: String },
    #[error("'{key}' in {table} has {length} characters: the maximum is {max}")]
    LongText { table: &'static str, key: &'static str, length: usize, max: usize },
    #[error("'{key}' in {table} is {value}: the range is {range}")]
    Range { table: &'static str, key: &'static str, value: String, range: String },
    #[error("'{value}' is not an address")]
    Address { value: String },
    #[error("'{value}' is not a mail address")]
    Mail { value: String },
    #[error("{what} '{name}' occurs twice: the first one is in line {first_line}")]
    Duplicate { what: &'static str, name: String, first_line: usize },
    #[error("unknown {what} '{name}'")]
    UnknownName { what: &'static str, name: String },
    #[error("host '{host}' has the name of another site")]
    NameOfOtherSite { host: String },
    #[error("host '{host}' is dial-only, and a host of kind {kind} must accept connections")]
    DialOnlyTarget { host: String, kind: &'static str },
    #[error("interval {interval} of load test '{test}' neither divides a day nor is a whole number of days")]
    Interval { test: String, interval: String, nearest: String },
    #[error("test '{test}' has no pair of hosts")]
    NoPairs { test: String },
    #[error("'{key}' is not for a test of kind {kind}")]
    KeyOfOtherKind { key: &'static str, kind: &'static str },
    #[error("'{key}' is not for a group of kind {kind}")]
    KeyOfOtherGroup { key: &'static str, kind: &'static str },
    #[error("'{key}' is not for a host of kind {kind}")]
    KeyOfOtherHost { key: &'static str, kind: &'static str },
    #[error("'time' {time} of test '{test}' is longer than its interval {interval}")]
    LongerThanInterval { test: String, time: String, interval: String },
    #[error(
        "host '{host}' would run {needed} measurements at once: the maximum of an agent is {MAX_PARALLEL_MEASUREMENTS}"
    )]
    TooManyMeasurements { host: String, needed: u64 },
    #[error("a pair joins '{name}' with itself")]
    SelfPair { name: String },
    #[error("the window ends at {end}, before its start at {start}")]
    EndBeforeStart { start: String, end: String },
    #[error("a window of {length} repeats after {every}, before it ends")]
    RepeatsTooSoon { length: String, every: String },
    #[error("{table} names {given}: {expected}")]
    Alternatives { table: &'static str, given: &'static str, expected: &'static str },
    #[error("{count} {what}: the maximum is {max}")]
    TooMany { what: &'static str, count: u64, max: u64 },
}

impl Problem {
    /// Returns one action that fixes the problem.
    pub fn hint(&self) -> String {
        match self {
            Problem::TooLong(_) => "split the mesh into several sites files".to_owned(),
            Problem::Syntax(_) => "correct the TOML in this line".to_owned(),
            Problem::UnknownKey { similar: Some(similar), .. } => format!("did you mean {similar}?"),
            Problem::UnknownKey { table, known, .. } => format!("the keys of {table} are {known}"),
            Problem::MissingKey { table, key } => format!("add {key} = … to {table}"),
            Problem::WrongType { key, expected, .. } => format!("give '{key}' {expected}"),
            Problem::Quantity { key, error: QuantityError::NoUnit(number), .. } if *key != "rtt" => {
                format!("write \"{number}s\" for seconds or \"{number}h\" for hours")
            }
            Problem::Quantity { error, .. } => match error.suggestion() {
                Some(value) => format!("write \"{value}\""),
                None => "write a number with a unit".to_owned(),
            },
            Problem::Choice { choices, .. } => format!("use one of {choices}"),
            Problem::Name { .. } => "use 1 to 63 letters, digits, dots, dashes and underscores".to_owned(),
            Problem::LongText { max, .. } => format!("use at most {max} characters"),
            Problem::Range { range, .. } => format!("use a value in the range {range}"),
            Problem::Address { .. } => {
                "write a host name or an IP address, with or without a port: 192.0.2.1:7323".to_owned()
            }
            Problem::Mail { .. } => "write a mail address: noc@example.org".to_owned(),
            Problem::Duplicate { what, .. } => format!("rename or delete one {what}"),
            Problem::UnknownName { what, name } => format!("correct the name, or add the {what} '{name}'"),
            Problem::NameOfOtherSite { .. } => "rename the host".to_owned(),
            Problem::DialOnlyTarget { .. } => {
                "delete dial-only, or run an agent on this host: kind = \"agent\"".to_owned()
            }
            Problem::Interval { nearest, .. } => format!("use {nearest}"),
            Problem::NoPairs { .. } => "add members to the group of this test".to_owned(),
            Problem::KeyOfOtherKind { key, .. }
            | Problem::KeyOfOtherGroup { key, .. }
            | Problem::KeyOfOtherHost { key, .. } => format!("delete '{key}'"),
            Problem::LongerThanInterval { interval, .. } => format!("use a time of at most {interval}"),
            Problem::TooManyMeasurements { .. } => {
                "use a longer interval or a shorter time for this test, or fewer pairs".to_owned()
            }
            Problem::SelfPair { .. } => "use two different names".to_owned(),
            Problem::EndBeforeStart { .. } => "use an end after the start".to_owned(),
            Problem::RepeatsTooSoon { length, .. } => format!("use every = a duration longer than {length}"),
            Problem::Alternatives { expected, .. } => format!("use {expected}"),
            Problem::TooMany { max, what, .. } => format!("use at most {max} {what}"),
        }
    }
}

/// A problem with its position in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct SitesError {
    /// Line from 1 on.
    pub line: usize,
    /// Column from 1 on, in characters.
    pub column: usize,
    pub problem: Problem,
}

/// All problems of a sites file, in order of their position. At least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitesErrors {
    /// The first problems of the file: at most 100.
    pub problems: Vec<SitesError>,
    /// Number of further problems.
    pub skipped: usize,
}

impl SitesErrors {
    /// Sorts the problems by position and keeps the first ones.
    pub(super) fn new(mut problems: Vec<SitesError>) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        problems.dedup();
        let skipped = problems.len().saturating_sub(MAX_LISTED_PROBLEMS);
        problems.truncate(MAX_LISTED_PROBLEMS);
        SitesErrors { problems, skipped }
    }
}

impl fmt::Display for SitesErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        match self.skipped {
            0 => Ok(()),
            skipped => write!(f, "\nand {skipped} more"),
        }
    }
}

impl std::error::Error for SitesErrors {}
