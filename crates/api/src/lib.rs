//! The library of lfn. Each command is a function with typed options. It returns a result document and reports progress
//! to a callback.
//!
//! No function prints, exits the process or handles signals. A program with threads can call all functions. Errors are
//! enums. Each error has a kind, and most errors have a hint: one action that fixes the cause.
#![forbid(unsafe_code)]

pub mod copy;
pub mod documents;
pub mod emulate;
pub mod emulator_env;
mod host_error;
pub mod hosts;
pub mod plan;
pub mod prediction;
pub mod resolve;
mod resolve_event;
pub mod serve;
pub mod show;
pub mod ssh;
pub mod test;

pub use copy::copy;
pub use emulate::emulate;
pub use plan::plan;
pub use serve::serve;
pub use show::show;
pub use test::test;

/// Kind of an error, which decides the exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The work failed for another reason.
    Failed,
    /// The options are not valid, or contradict each other.
    Usage,
    /// The work is incomplete. The same call resumes.
    Incomplete,
    /// The caller stopped the work.
    Interrupted,
}
