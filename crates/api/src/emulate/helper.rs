//! The helper process of an emulation: one thread, a request on standard input, replies to a pipe of the caller.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use lfn_emulate::{EmulateError, LogFiles, RunOutcome};
use lfn_sys::process;
use serde::{Deserialize, Serialize};

use super::error::EmulateRequestError;
use super::request::EmulateRequest;
use super::run::run_setup;
use crate::error_text::error_chain;

/// Maximum length of a request, bytes. The settings of a path are some hundred bytes.
pub(super) const MAX_REQUEST: u64 = 1 << 20;

/// Reply of the helper, one JSON object per line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HelperReply {
    Started,
    /// Error of the packet log.
    Log(String),
    Result(Box<Result<RunOutcome, EmulateError>>),
    /// Error of the helper before the emulation starts.
    Failed(String),
}

/// Reasons why the helper cannot reply.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    #[error("cannot open the pipe of the caller: {0}")]
    Pipe(io::Error),
    #[error("cannot read the request: {0}")]
    Read(io::Error),
    #[error("the request is not valid: {0}")]
    Request(#[from] serde_json::Error),
    #[error(transparent)]
    Emulate(#[from] EmulateRequestError),
    #[error("cannot serve the caller: {0}")]
    Io(#[from] io::Error),
}

/// Runs the helper: reads the request, emulates and replies. The calling process must have only one thread, because it
/// is cloned.
pub fn run_helper(pipe: &Path) -> Result<(), HelperError> {
    // The pipe is opened before the parent can end and its process id can become that of another process.
    let mut replies = OpenOptions::new().write(true).open(pipe).map_err(HelperError::Pipe)?;
    let served = serve(&mut replies);
    if let Err(error) = &served {
        // A caller that has ended reads no reply.
        let _ = reply(&mut replies, &HelperReply::Failed(error_chain(error)));
    }
    served
}

fn serve(replies: &mut File) -> Result<(), HelperError> {
    process::die_with_parent()?;
    let mut text = Vec::new();
    io::stdin().lock().take(MAX_REQUEST).read_to_end(&mut text).map_err(HelperError::Read)?;
    let request: EmulateRequest = serde_json::from_slice(&text)?;
    let mut setup = request.setup(std::env::current_exe()?)?;
    setup.quiet = true;
    if let Some(path) = &request.log {
        match LogFiles::open(path) {
            Ok(files) => setup.watch.log = Some(files),
            Err(error) => return Ok(reply(replies, &HelperReply::Log(error.to_string()))?),
        }
    }
    reply(replies, &HelperReply::Started)?;
    let outcome = run_setup(&setup, &request.command).map(|document| document.outcome);
    Ok(reply(replies, &HelperReply::Result(Box::new(outcome)))?)
}

fn reply(pipe: &mut File, reply: &HelperReply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    pipe.write_all(&line)
}
