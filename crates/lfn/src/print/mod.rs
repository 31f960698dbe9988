//! Printers, one for each output format.

use std::fmt::Display;
use std::io::{self, StdoutLock, Write};

pub mod copy;
pub mod emulate;
pub mod label_columns;
pub mod measure;
pub mod plan;
pub mod sanitize;
pub mod show;
pub mod stamp;
pub mod terminal;

use self::sanitize::SafeWriter;

/// Returns standard output for text.
pub fn out() -> SafeWriter<StdoutLock<'static>> {
    SafeWriter::text(stdout())
}

/// Returns standard output for CSV.
pub fn csv() -> SafeWriter<StdoutLock<'static>> {
    SafeWriter::csv(stdout())
}

/// Returns standard output for JSON.
pub fn json() -> SafeWriter<StdoutLock<'static>> {
    SafeWriter::json(stdout())
}

#[expect(clippy::disallowed_methods, reason = "the one place that hands it out")]
fn stdout() -> StdoutLock<'static> {
    io::stdout().lock()
}

/// Prints a message on stderr. A closed stderr does not change the exit code.
pub fn message(text: impl Display) {
    let mut plain = Vec::new();
    let _ = write!(SafeWriter::text(&mut plain), "{text}");
    write_stderr(&plain);
}

/// Prints a message in JSON on stderr.
pub fn message_json(text: impl Display) {
    let mut plain = Vec::new();
    let _ = write!(SafeWriter::json(&mut plain), "{text}");
    write_stderr(&plain);
}

/// Draws on stderr if it is a terminal: the escape sequences and figures of lfn, without text from peers or files.
pub fn draw_stderr(text: impl Display) {
    write_stderr(text.to_string().as_bytes());
}

/// Writes the text at once, so that it keeps its order with other output.
#[expect(clippy::disallowed_methods, reason = "the one place that writes there")]
fn write_stderr(text: &[u8]) {
    let _ = io::stderr().lock().write_all(text);
}
