//! The stored result as one JSON object: schema `lfn.test/2`, whose types and meaning are those of `core::report`.

use std::io::{self, BufWriter, Write};

use lfn_core::report::Document;

use crate::print;

pub fn print(document: &Document) -> io::Result<()> {
    let mut out = BufWriter::new(print::json());
    write(&mut out, document)?;
    out.flush()
}

/// To read by people too, with a line end.
pub fn write(out: &mut dyn Write, document: &Document) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}
