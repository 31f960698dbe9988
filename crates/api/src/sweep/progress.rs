//! Progress of a running sweep.

use std::path::PathBuf;

use lfn_campaign::document::SweepEvent;
use lfn_campaign::factor::Level;

use crate::test::TestEvent;

/// Progress of a running sweep.
#[derive(Debug)]
pub enum SweepProgress<'a> {
    /// A line of the events.
    Line(&'a SweepEvent),
    /// The last line of the state file was incomplete, and was removed.
    LineRemoved(&'a PathBuf),
    /// A run of a point begins.
    Begin {
        /// Number of the point.
        point: usize,
        /// Settings of the point.
        levels: &'a [Level],
    },
    /// An event of the running test.
    Test(&'a TestEvent<'a>),
}
