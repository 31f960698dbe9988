//! Number of open files that a copy needs at each end, and number of streams that a limit allows.
//!
//! The number is that of an ordinary tree. Deeper trees and interrupted files need more, and report an error of their
//! own if the limit is too low.

/// Standard streams, the control connection, polling, the report, the pipes to ssh or to a server, and the directories
/// on the way to the current file.
const BASE_FILES: u64 = 32;

/// Role of a process in a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyRole {
    /// A stream is a connection and a file that is read.
    Sender,
    /// A stream is a connection, a partial file, its journal and its directory.
    Receiver,
    /// A copy between two servers has no streams here.
    Orchestrator,
}

impl CopyRole {
    /// Returns the open files of one stream.
    const fn files_per_stream(self) -> u64 {
        match self {
            CopyRole::Sender => 2,
            CopyRole::Receiver => 4,
            CopyRole::Orchestrator => 0,
        }
    }

    /// Returns the open files that a copy with this number of streams needs in a process that has nothing else open.
    pub const fn open_files(self, streams: u16) -> u64 {
        BASE_FILES + self.files_per_stream() * streams as u64
    }

    /// Returns the maximum number of streams if `limit` files can be open; 0 if the copy is not possible.
    pub fn max_streams(self, limit: u64) -> u16 {
        let for_streams = limit.saturating_sub(BASE_FILES);
        match for_streams.checked_div(self.files_per_stream()) {
            Some(streams) => u16::try_from(streams).unwrap_or(u16::MAX),
            None if limit >= BASE_FILES => u16::MAX,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_streams_need_at_most_the_limit() {
        for role in [CopyRole::Sender, CopyRole::Receiver] {
            for limit in [0, 16, 32, 33, 64, 1024] {
                let streams = role.max_streams(limit);
                assert!(streams == 0 || role.open_files(streams) <= limit, "{role:?} {limit}");
                assert!(role.open_files(streams + 1) > limit, "{role:?} {limit}");
            }
        }
        assert_eq!((CopyRole::Sender.max_streams(64), CopyRole::Receiver.max_streams(64)), (16, 8));
        assert_eq!(CopyRole::Sender.max_streams(u64::MAX), u16::MAX);
        assert_eq!((CopyRole::Orchestrator.max_streams(31), CopyRole::Orchestrator.max_streams(32)), (0, u16::MAX));
    }
}
