//! Kinds of errors, for the exit codes of commands.

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
