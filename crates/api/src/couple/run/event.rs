//! Events of a run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lfn_couple::channel::ChannelEvent;

/// Message for the caller.
#[derive(Debug)]
pub enum CoupleRunEvent<'a> {
    Channel(&'a ChannelEvent),
    /// The model starts. The directory has its files.
    Started {
        directory: &'a Path,
        first_step: u64,
    },
    /// The model has not written this file of the step for this time.
    WaitingForModel {
        step: u64,
        file: &'a Path,
        waited: Duration,
    },
    /// The model reported a checkpoint, and the partner knows it.
    Checkpoint {
        step: u64,
    },
}

/// Function that gets the events of a run, on any thread.
pub type OnRunEvent = Arc<dyn Fn(&CoupleRunEvent<'_>) + Send + Sync>;
