//! Events of a running test.

use lfn_measure::tester::{Test, TestProgress};
use lfn_results::report::{Origin, Run};

/// Event of a running test. Each test of one call has a number, from 0.
#[derive(Debug)]
pub enum TestEvent<'a> {
    /// The options are valid. The name of the server is preliminary if a ticket selects the server.
    Started(&'a Origin),
    /// The server is found; its name in the result.
    ServerFound(&'a str),
    /// A test begins, alone or at the same time as the test in the other direction.
    Begin { test: usize, settings: &'a Test, bidirectional: bool },
    /// A running test has new figures.
    Progress { test: usize, progress: &'a TestProgress<'a> },
    /// A test has a result. Tests end in the order of their numbers.
    End { test: usize, run: &'a Run },
}
