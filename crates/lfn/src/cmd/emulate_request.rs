//! `lfn emulate-request`: the helper of a program that emulates with the library. Not for users.

use std::path::PathBuf;

use crate::exit::{Exit, Failure};

/// Emulate for a program that uses the library: read the request from standard input, write replies to a pipe
#[derive(clap::Args, Debug)]
pub struct EmulateRequestArgs {
    /// Pipe of the program
    #[arg(value_name = "PIPE")]
    pipe: PathBuf,
}

/// Runs `lfn emulate-request` and returns its exit code.
pub fn run(args: &EmulateRequestArgs) -> Result<Exit, Failure> {
    lfn_api::emulate::run_helper(&args.pipe)?;
    Ok(Exit::Ok)
}
