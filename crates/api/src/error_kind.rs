//! Kinds of errors.

/// Kind of an error, which decides the exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The work failed.
    Failed,
    /// The options are not valid, or contradict each other.
    Usage,
    /// The work is incomplete. The same call resumes.
    Incomplete,
    /// The caller stopped the work.
    Interrupted,
}
