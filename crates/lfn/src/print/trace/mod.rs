//! Results of `lfn trace`: text, one JSON object (`lfn.trace/1`), or JSON lines (`lfn.trace.event/1`).

mod flags;
mod pair;
mod share;
mod text;

use std::io::{self, Write};

use lfn_api::documents::{TraceDocument, TraceEvent, TraceEventSchema};

pub use flags::FlaggedPacketPrinter;

use super::output::{Output, OutputFormat, set_document_printed};
use crate::exit::Failure;

/// Returns the text of a stored result, with all its connections.
pub fn page(document: &TraceDocument) -> String {
    text::page(document, usize::MAX)
}

/// Prints the result of an analysis.
pub struct TracePrinter {
    /// Connections of the text.
    pub connections: usize,
    /// Lines of flagged packets precede the result.
    pub has_flags: bool,
}

impl TracePrinter {
    /// Prints the document in the format of the output, and writes the report file.
    pub fn print(&self, document: TraceDocument, mut output: Output) -> Result<(), Failure> {
        if output.format() == OutputFormat::Ndjson {
            output.write_report(&document)?;
            return Ok(print_lines(document)?);
        }
        let connections = self.connections;
        output.finish(&document, || {
            let gap = if self.has_flags { "\n" } else { "" };
            super::result(&format!("{gap}{}", text::page(&document, connections)))
        })
    }
}

/// Prints one line for each connection, then the rest of the document.
fn print_lines(mut document: TraceDocument) -> io::Result<()> {
    set_document_printed();
    let schema = TraceEventSchema::Current;
    for connection in std::mem::take(&mut document.connections) {
        print_event(&TraceEvent::Connection { schema, connection: Box::new(connection) })?;
    }
    print_event(&TraceEvent::End { schema, result: Box::new(document) })
}

/// Writes one line in one call, so that a reader never sees half a line.
fn print_event(event: &TraceEvent) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    let mut out = super::json();
    out.write_all(&line)?;
    out.flush()
}
