//! Stored result as one JSON object, schema `lfn.test/3`; the types are in `core::report`.

use std::io::{self, BufWriter, Write};

use lfn_core::report::TestDocument;

use crate::print;

/// Prints the document as one JSON object.
pub fn print(document: &TestDocument) -> io::Result<()> {
    let mut out = BufWriter::new(print::json());
    write(&mut out, document)?;
    out.flush()
}

/// Writes the result in indented JSON with a line end.
pub fn write(out: &mut dyn Write, document: &TestDocument) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}
