//! Destinations of a command's result: standard output in one format, and the file of `--report`.
//!
//! A command makes one document. [`Output::finish`] writes it to the file and prints it in the requested format. A
//! command that fails under JSON output prints an error document instead, unless it has printed its own.

use std::io::{self, BufWriter, Write};
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_api::pictures::Album;
use lfn_results::report::{ErrorDocument, ErrorSchema};
use serde::Serialize;

use super::html::HtmlPage;
use super::page_text;
use super::report_file::ReportFile;
use crate::exit::Failure;

/// Output format of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Lines for a person.
    Text,
    /// One object at the end.
    Json,
    /// One object per line.
    Ndjson,
    /// A table with a header (RFC 4180).
    Csv,
    /// The rows `write`, `read` and `r/w` of nettest.
    Nettest,
}

impl OutputFormat {
    /// Returns the value of `--output`.
    pub fn name(self) -> &'static str {
        match self {
            OutputFormat::Text => "text",
            OutputFormat::Json => "json",
            OutputFormat::Ndjson => "ndjson",
            OutputFormat::Csv => "csv",
            OutputFormat::Nettest => "nettest",
        }
    }

    /// Reports whether programs read this output as JSON.
    pub fn is_json(self) -> bool {
        matches!(self, OutputFormat::Json | OutputFormat::Ndjson)
    }
}

/// True if the complete document of this command is on standard output.
static IS_DOCUMENT_PRINTED: AtomicBool = AtomicBool::new(false);

/// Records that the command has printed its document, so that no error document follows.
pub fn set_document_printed() {
    IS_DOCUMENT_PRINTED.store(true, Ordering::Relaxed);
}

/// Destinations of the result of one command.
pub struct Output {
    format: OutputFormat,
    report: Option<ReportFile>,
    /// Charts of a page.
    album: Album,
}

impl Output {
    /// Creates the destinations from a format and an open report file.
    pub fn new(format: OutputFormat, report: Option<ReportFile>) -> Self {
        let output = Output { format, report, album: Album::default() };
        if output.has_page() {
            page_text::start();
        }
        output
    }

    /// Reports whether the report is a page.
    pub fn has_page(&self) -> bool {
        self.report.as_ref().is_some_and(ReportFile::is_page)
    }

    /// Sets the charts of the page, if the report is a page.
    pub fn set_album(&mut self, album: impl FnOnce() -> Album) {
        if self.has_page() {
            self.album = album();
        }
    }

    /// Returns the format of standard output.
    pub fn format(&self) -> OutputFormat {
        self.format
    }

    /// Reports whether the document is also written to a file.
    pub fn has_report(&self) -> bool {
        self.report.is_some()
    }

    /// Returns the report file, if there is one.
    pub fn report(&self) -> Option<&ReportFile> {
        self.report.as_ref()
    }

    /// Writes the document to the report file if there is one, prints it as JSON if requested, and otherwise calls
    /// `text`.
    pub fn finish<E: Into<Failure>>(
        mut self,
        document: &impl Serialize,
        text: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), Failure> {
        // A report on standard output and a page follow the text. A report file is written even if the text cannot be printed,
        // and the text is printed even if the file cannot be written.
        let is_page = self.has_page();
        let is_later = is_page || matches!(self.report, Some(ReportFile::Open(..)));
        let written = if is_later { Ok(()) } else { self.write_report(document) };
        let printed = match self.format {
            OutputFormat::Json | OutputFormat::Ndjson => {
                if is_page {
                    page_text::make(|| _ = text());
                }
                print_document(document, self.format).map_err(Failure::from)
            }
            OutputFormat::Text | OutputFormat::Csv | OutputFormat::Nettest => text().map_err(Into::into),
        };
        if !is_page {
            printed?;
            return written.and_then(|()| self.write_report(document));
        }
        let written = self.write_report(document);
        printed.and(written)
    }

    /// Writes the page to the report file, if it is a page, and otherwise the document.
    pub fn write_page(&mut self, document: &impl Serialize, page: impl FnOnce() -> HtmlPage) -> Result<(), Failure> {
        match self.report.take() {
            None => Ok(()),
            Some(file) if file.is_page() => file.write_page(&page()),
            Some(file) => file.write(document),
        }
    }

    /// Writes the document to the report file, if there is one. A page has the printed text and the charts, too.
    pub fn write_report(&mut self, document: &impl Serialize) -> Result<(), Failure> {
        match self.report.take() {
            None => Ok(()),
            Some(file) if file.is_page() => file.write_page(&HtmlPage::of(document, take(&mut self.album))),
            Some(file) => file.write(document),
        }
    }
}

/// Prints a document as JSON: indented, or in one line with [`OutputFormat::Ndjson`].
pub fn print_document(document: &impl Serialize, format: OutputFormat) -> io::Result<()> {
    set_document_printed();
    let mut out = BufWriter::new(super::json());
    match format {
        OutputFormat::Ndjson => serde_json::to_writer(&mut out, document)?,
        _ => serde_json::to_writer_pretty(&mut out, document)?,
    }
    writeln!(out)?;
    out.flush()
}

/// Prints the error document of a failed command, unless the command has printed its own document.
pub fn print_error_document(command: &str, failure: &Failure, format: OutputFormat) {
    if IS_DOCUMENT_PRINTED.load(Ordering::Relaxed) || !format.is_json() {
        return;
    }
    // The reader may have closed the pipe. The failure decides the exit code.
    let _ = print_document(&error_document(command, failure), format);
}

/// Returns the document of a failed command.
pub fn error_document(command: &str, failure: &Failure) -> ErrorDocument {
    let (error, hint) = failure.lines();
    ErrorDocument {
        schema: ErrorSchema::V1,
        command: command.to_owned(),
        error,
        hint,
        exit_code: failure.exit().code(),
    }
}
