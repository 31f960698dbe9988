//! Messages of a session that lists files of interrupted copies, and may delete them.
//!
//! The request contains paths and a rule ([`CleanRule`]). The server walks below each path and reports its findings in
//! small groups, so that both ends hold only one message at a time. The client sends nothing more. It closes the
//! connection when it has enough.

use serde::{Deserialize, Serialize};

use crate::transfer::byte_string::ByteString;
use crate::transfer::leftover::{CleanRule, Leftover};

/// Maximum files per message.
pub const MAX_FOUND_PER_MESSAGE: usize = 64;

/// Request to list or delete files of interrupted copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanRequest {
    /// Paths relative to the served root. An empty path is the root itself.
    pub paths: Vec<ByteString>,
    #[serde(flatten)]
    pub rule: CleanRule,
}

/// Messages of the server in a clean session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "clean", rename_all = "snake_case")]
pub enum CleanMessage {
    /// The next files, at most [`MAX_FOUND_PER_MESSAGE`].
    Found {
        /// In no particular order.
        files: Vec<Leftover>,
    },
    /// A directory that cannot be read. The search continues.
    Unreadable { path: ByteString, reason: String },
    /// Still searching; sent after every second without another message.
    Alive,
    /// The search is complete.
    Done,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::transfer::leftover::LeftoverState;
    use crate::units::Bytes;
    use crate::wire::Request;

    #[test]
    fn messages_match_protocol_doc() {
        let rule = CleanRule { min_age: Duration::from_secs(86_400), remove: false };
        let request = Request::Clean(CleanRequest { paths: vec!["runs".into()], rule });
        let json = r#"{"verb":"clean","paths":["runs"],"min_age_seconds":86400,"remove":false}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), json);
        assert!(matches!(serde_json::from_str(json), Ok(Request::Clean(read)) if read.rule == rule));
        let left = Leftover {
            path: "runs/.a.lfn-partial".into(),
            source: Some("a".into()),
            bytes: Some(Bytes(5000)),
            received: Some(Bytes(1024)),
            disk_usage: Bytes(8192),
            age: Duration::from_secs(90_000),
            state: LeftoverState::Stale,
            reason: None,
        };
        let found = CleanMessage::Found { files: vec![left] };
        let json = r#"{"clean":"found","files":[{"path":"runs/.a.lfn-partial","source":"a","bytes":5000,"#.to_owned()
            + r#""received_bytes":1024,"disk_bytes":8192,"age_seconds":90000,"state":"stale"}]}"#;
        assert_eq!(serde_json::to_string(&found).unwrap(), json);
        assert_eq!(serde_json::from_str::<CleanMessage>(&json).unwrap(), found);
    }
}
