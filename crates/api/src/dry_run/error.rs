//! Reasons why a dry run has no result.

use std::time::Duration;

use lfn_base::plan::MAX_WINDOW;
use lfn_base::units::{Bytes, show_duration};
use lfn_sim::transfer::{MAX_STREAMS, TransferError};

use crate::error_kind::ErrorKind;

/// Reasons why a dry run has no result.
#[derive(Debug, thiserror::Error)]
pub enum DryRunError {
    #[error("--size must be at least 1 B")]
    NoSize,
    #[error("--streams {0}: 1 to {MAX_STREAMS}")]
    Streams(u32),
    #[error("an MTU of {0} leaves no room for payload")]
    Mtu(u32),
    #[error("--window {window} is too large; the maximum of TCP is {}", MAX_WINDOW.exact())]
    WindowTooLarge { window: Bytes },
    #[error("--window {window} is smaller than one segment ({min_window})")]
    WindowTooSmall { window: Bytes, min_window: Bytes, bdp: Bytes },
    /// The simulation would take too many steps; `enough` shows the same throughput.
    #[error(
        "--size {size} is too large for a dry run: {segments} packets, of which the model can combine \
         {range_segments} on this path"
    )]
    TooLarge { size: Bytes, segments: u64, range_segments: u32, enough: Bytes },
    #[error("this path holds {held} packets; a dry run with jitter can keep {max} in memory")]
    JitteredPackets { held: u64, max: u64 },
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error(
        "gave up after {steps} steps ({} of virtual time, {arrived} of {size} transferred)",
        show_duration(*.time)
    )]
    TooManySteps { steps: u64, time: Duration, arrived: Bytes, size: Bytes },
}

impl DryRunError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            DryRunError::NoSize => "--size 10GB".to_owned(),
            DryRunError::Streams(_) => "--streams 8".to_owned(),
            DryRunError::Mtu(_) => "--mtu 1500".to_owned(),
            DryRunError::WindowTooLarge { window } => {
                let needed = window.0.div_ceil(MAX_WINDOW.0);
                format!("use several streams, each with its own window: --streams {needed}")
            }
            DryRunError::WindowTooSmall { bdp, .. } => format!("--window {bdp}"),
            DryRunError::TooLarge { enough: size, .. } => {
                format!("use --size {size}: the throughput is constant after slow start")
            }
            DryRunError::JitteredPackets { .. } => "remove --jitter, or lower --rate".to_owned(),
            DryRunError::Transfer(_) => return None,
            DryRunError::TooManySteps { arrived, .. } => {
                format!("use --size {}: the throughput is constant after slow start", Bytes(arrived.0 / 2))
            }
        })
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            DryRunError::TooManySteps { .. } => ErrorKind::Failed,
            _ => ErrorKind::Usage,
        }
    }
}
