//! `lfn mesh export`: the entries of an archive as lines of JSON, as one JSON object or as a table.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use lfn_api::mesh::{ExportedEntries, MeshError, check_hosts, export};
use lfn_base::date;
use lfn_mesh::archive::EntryFilter;
use lfn_mesh::csv::{csv_header, csv_row};
use lfn_mesh::entry::EntryKind;

use super::archive_flag::ArchiveFlag;
use crate::cli::output::{ExportFormats, OutputArgs};
use crate::cmd::values::value_error;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::OutputFormat;

/// Export the archive as NDJSON, JSON or CSV
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExportArgs {
    #[command(flatten)]
    archive: ArchiveFlag,
    /// Select entries with this sender
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// Select entries with this receiver
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Select entries of this kind
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Select entries from this time on (UTC)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Select entries before this time (UTC)
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Export the complete documents of the loads too, as long as the archive keeps them
    #[arg(long)]
    detail: bool,
    #[command(flatten)]
    output: OutputArgs<ExportFormats>,
}

/// Kinds of entries to export.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Kind {
    /// Goodput of timed loads
    Load,
    /// RTT, loss and one-way delay
    Latency,
    /// Hops of the paths
    Path,
    /// Counters of the interfaces
    Counters,
}

const EXAMPLES: &str = "Examples:
  lfn mesh export > log.ndjson
  lfn mesh export --json | jq '.entries[].verdict'
  lfn mesh export --kind load --since 2026-11-01 --output csv > loads.csv

Exit codes: 0 exported, also if the reader closes the pipe; 1 no archive, or a write failed; 2 usage, also an unknown host.";

/// Runs `lfn mesh export` and returns its exit code.
pub fn run(args: ExportArgs) -> Result<Exit, Failure> {
    let archive = args.archive.path()?;
    let filter = EntryFilter {
        from: args.from.as_deref(),
        to: args.to.as_deref(),
        kind: args.kind.map(EntryKind::from),
        since: args.since.as_deref().map(|text| parse_time("since", text)).transpose()?,
        until: args.until.as_deref().map(|text| parse_time("until", text)).transpose()?,
        limit: None,
        texts: true,
        documents: args.detail,
    };
    let mut output = args.output.open()?;
    // A missing archive or host is an error before anything is written.
    check_hosts(&archive, [filter.from, filter.to].into_iter().flatten())?;
    let document = ExportedEntries { archive: &archive, filter };
    if output.format() == OutputFormat::Ndjson {
        output.write_report(&document)?;
        print_lines(&archive, filter)?;
    } else {
        output.finish(&document, || print_table(&archive, filter))?;
    }
    Ok(Exit::Ok)
}

/// Prints one line of JSON for each entry.
fn print_lines(archive: &Path, filter: EntryFilter<'_>) -> Result<(), Failure> {
    let mut out = BufWriter::new(print::json());
    export(archive, filter, &mut |entry| {
        serde_json::to_writer(&mut out, entry)?;
        out.write_all(b"\n")
    })
    .map_err(MeshError::from)??;
    Ok(out.flush()?)
}

/// Prints one row of a table for each entry.
fn print_table(archive: &Path, filter: EntryFilter<'_>) -> Result<(), Failure> {
    let mut out = BufWriter::new(print::csv());
    out.write_all(csv_header().as_bytes())?;
    export(archive, filter, &mut |entry| out.write_all(csv_row(entry).as_bytes())).map_err(MeshError::from)??;
    Ok(out.flush()?)
}

/// Parses a date or a time in UTC.
fn parse_time(flag: &str, text: &str) -> Result<Duration, Failure> {
    let hint = format!("--{flag} 2026-12-01, or --{flag} 2026-12-01T06:00:00Z");
    date::parse(text).ok_or_else(|| value_error(flag, format!("'{text}' is not a time in UTC"), &hint))
}

impl From<Kind> for EntryKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Load => EntryKind::Load,
            Kind::Latency => EntryKind::Latency,
            Kind::Path => EntryKind::Path,
            Kind::Counters => EntryKind::Counters,
        }
    }
}
