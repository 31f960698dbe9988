//! `lfn emulate-request PIPE`: the helper of a program that emulates with the library. It reads the request from
//! standard input and writes replies to the pipe. It is no command for users, so that the command line does not know
//! it.

use std::ffi::OsString;
use std::path::Path;

use lfn_api::emulate::HELPER_COMMAND;

use crate::exit::{Exit, Failure};

/// Returns the pipe if these words of a command line request the helper.
pub fn requested_pipe(words: &[OsString]) -> Option<&Path> {
    match words {
        [_, command, pipe] if command == HELPER_COMMAND => Some(Path::new(pipe)),
        _ => None,
    }
}

/// Runs the helper and returns its exit code.
pub fn run(pipe: &Path) -> Result<Exit, Failure> {
    lfn_api::emulate::run_helper(pipe)?;
    Ok(Exit::Ok)
}
