//! Seed, directory and exit status of the emulations of all demos.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use lfn_base::units::Bytes;
use lfn_emulate::CommandExit;

use crate::exit::{Exit, Failure, without_error_number};

/// Seed of the emulation, the same in every demo.
pub const SEED: u64 = 1995;

/// Creates the directory of a demo that needs this space, which only this user can read.
pub fn create_work_directory(space: Bytes) -> Result<PathBuf, Failure> {
    let work = std::env::temp_dir().join(format!("lfn-demo-{}", std::process::id()));
    let created = DirBuilder::new().mode(0o700).create(&work);
    created.map_err(|error| {
        let cause = without_error_number(&error.to_string());
        Failure::msg(format!("cannot create {}: {cause}", work.display()))
            .hint(format!("set TMPDIR to a directory that you can write to, with {space} of free space"))
    })?;
    Ok(work)
}

/// Converts the exit status of the process inside. This process has already printed its error.
pub fn exit_of_inner_process(ending: CommandExit) -> Exit {
    match ending {
        CommandExit::Killed(2 | 15) | CommandExit::Exited(130) => Exit::Interrupted,
        _ => Exit::Failed,
    }
}
