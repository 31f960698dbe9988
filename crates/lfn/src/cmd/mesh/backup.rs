//! `lfn mesh backup`: a consistent copy of the archive.

use std::path::PathBuf;

use lfn_api::documents::BackupDocument;
use lfn_api::mesh::MeshError;
use lfn_base::units::Bytes;
use lfn_mesh::archive::Archive;

use super::archive_flag::ArchiveFlag;
use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;

/// Copy the archive to a new file while the hub runs
#[derive(clap::Args, Debug)]
pub struct BackupArgs {
    /// New file for the copy; an existing file is never overwritten
    #[arg(value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    archive: ArchiveFlag,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Runs `lfn mesh backup` and returns its exit code.
pub fn run(args: BackupArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    let path = args.archive.path()?;
    let archive = Archive::open_read_only(&path).map_err(MeshError::from)?;
    archive.back_up(&args.to).map_err(MeshError::from)?;
    let bytes = args.to.metadata().map_or(0, |file| file.len());
    let document = BackupDocument { file: args.to.display().to_string(), bytes, ..BackupDocument::default() };
    output.finish(&document, || {
        print::message(format_args!("{}: {} copied\n", document.file, Bytes(bytes)));
        Ok::<_, Failure>(())
    })?;
    Ok(Exit::Ok)
}
