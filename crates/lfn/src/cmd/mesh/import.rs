//! `lfn mesh import`: results of lfn and iperf3, and exported entries.

use std::path::PathBuf;

use lfn_api::mesh::{ImportOptions, import};

use super::archive_flag::ArchiveFlag;
use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;

/// Import results: iperf3 JSON, results of lfn, or an exported log
///
/// Each file is one transaction: a file with an error stores nothing. Entries that the archive has already are not stored
/// again. An archive that does not exist is created.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ImportArgs {
    /// Files to import; - reads standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    archive: ArchiveFlag,
    /// Set the name of the host that ran the command [default: the name in the result]
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// Set the name of the server [default: the name in the result]
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

const EXAMPLES: &str = "Examples:
  lfn mesh import result.json
  lfn mesh import --from aztec --to c90 iperf3.json

Exit codes: 0 imported; 1 a file has an error; 2 usage.";

/// Runs `lfn mesh import` and returns its exit code.
pub fn run(args: ImportArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    let archive = args.archive.path()?;
    let document = import(&ImportOptions { archive, files: args.files, from: args.from, to: args.to })?;
    output.finish(&document, || {
        for file in &document.files {
            print::message(format_args!("{}: {} stored, {} known\n", file.file, file.stored, file.known));
        }
        Ok::<_, Failure>(())
    })?;
    Ok(Exit::Ok)
}
