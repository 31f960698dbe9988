//! Error of reading a stored result, and the schemas that can be read.

/// Schema of a stored result, with its version.
pub(super) const TEST_SCHEMA: &str = "lfn.test/3";
/// Schema of a comparison by `lfn test --compare`, with its version.
pub(super) const TUNING_SCHEMA: &str = "lfn.test.compare/1";
/// Schema of a result of `lfn doctor`, with its version.
pub(super) const DOCTOR_SCHEMA: &str = "lfn.doctor/1";
/// Schema of the events of a test, with its version.
pub(super) const EVENT_SCHEMA: &str = "lfn.test.event/3";

/// Error of reading a result. The caller adds the name of the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the file is empty")]
    Empty,
    /// The first byte is checked before a large file is parsed as text.
    #[error("not JSON: begins with {0}, not with '{{'")]
    NotJson(String),
    /// Invalid JSON or JSON of another shape; the message has the line and the column.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// Invalid JSON in one line of a file of events.
    #[error("line {line}: {source}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// A schema version of an older or a newer lfn.
    #[error("schema version '{0}' is not supported: lfn reads {test}, {event} and JSON of iperf3", test = TEST_SCHEMA, event = EVENT_SCHEMA)]
    Schema(String),
    /// Another schema than that of `lfn doctor`.
    #[error("not a result of `lfn doctor --json`: the schema is '{0}', not '{DOCTOR_SCHEMA}'")]
    NotDoctor(String),
    /// JSON without a known schema.
    #[error("not a result of `lfn test` or `iperf3 -J`")]
    Unknown,
    /// Data after the first result.
    #[error("more than one result in the file")]
    Trailing,
    /// iperf3 reports its failure in the key `error`.
    #[error("iperf3 failed: {0}")]
    Iperf3Failed(String),
    /// The first line is not the event `start`.
    #[error("the first event is not 'start'")]
    NoStart,
}

impl ReadError {
    /// Adds the number of a line to an error of the parser.
    pub(super) fn in_line(self, line: usize) -> ReadError {
        match self {
            ReadError::Json(source) => ReadError::Line { line, source },
            other => other,
        }
    }
}
