//! Check of the limit of open files before a copy starts.

use lfn_copy::proto::open_files::CopyRole;
use lfn_copy::proto::streams::StreamPlan;
use lfn_session::limits::connection_table::ConnectionLimits;
use rustix::process::{Resource, getrlimit};

use super::error::CopyError;
use super::places::Direction;
use crate::open_file_limit::{can_raise_limit, raise_command};

/// Returns the role of this process in a copy.
fn role(direction: &Direction) -> CopyRole {
    match direction {
        Direction::Upload(..) => CopyRole::Sender,
        Direction::Download(..) => CopyRole::Receiver,
        Direction::ThirdParty { .. } => CopyRole::Orchestrator,
    }
}

/// Returns the open files that a copy needs in this process and in a server that this process starts.
fn needed_files(direction: &Direction, streams: u16, limit: u64) -> u64 {
    let own = role(direction).open_files(streams);
    let connections = usize::from(streams) + 1;
    if direction.is_local() && connections > ConnectionLimits::max_for_open_files(limit) {
        return own.max(ConnectionLimits::open_files(connections));
    }
    own
}

/// Returns the number of streams that the limit of open files allows.
fn max_streams(direction: &Direction, limit: u64) -> u16 {
    let own = role(direction).max_streams(limit);
    if !direction.is_local() {
        return own;
    }
    let connections = ConnectionLimits::max_for_open_files(limit);
    own.min(u16::try_from(connections.saturating_sub(1)).unwrap_or(u16::MAX))
}

/// Refuses a copy with more streams than the limit of open files allows. `streams` is the requested number.
pub(super) fn check_open_files(direction: &Direction, streams: Option<u16>) -> Result<(), CopyError> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let needed = needed_files(direction, streams.unwrap_or(1), limit);
    if needed <= limit {
        return Ok(());
    }
    let hint = match max_streams(direction, limit) {
        streams @ 1.. if !can_raise_limit() => format!("--streams {streams}"),
        _ => raise_command(needed),
    };
    Err(CopyError::OpenFiles { needed, limit, hint })
}

/// Reduces the streams of a plan to the number that the limit of open files allows.
pub(super) fn reduce_to_open_files(direction: &Direction, plan: StreamPlan) -> StreamPlan {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let max_streams = max_streams(direction, limit).max(1);
    StreamPlan { streams: plan.streams.min(max_streams), max_streams: plan.max_streams.min(max_streams), ..plan }
}
