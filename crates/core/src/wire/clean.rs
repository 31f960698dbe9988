//! Messages of a session that looks for what cut copies left, and may remove it.
//!
//! The request names places and a rule ([`Rule`]); the server walks below each and says what it finds as it goes, a few at
//! a time, so that neither end holds more than one message of it however much there is. The client says nothing more, and
//! closes the connection when it has heard enough.

use serde::{Deserialize, Serialize};

use crate::transfer::leftover::{Leftover, Rule};
use crate::transfer::raw::Raw;

/// Most that one message tells of.
pub const MOST_FOUND: usize = 64;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanRequest {
    /// Paths relative to the served root; an empty one is the root itself.
    pub places: Vec<Raw>,
    /// What may go, and whether it does.
    #[serde(flatten)]
    pub rule: Rule,
}

/// What the server says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cleaner", rename_all = "snake_case")]
pub enum FromCleaner {
    /// The next that were found; at most [`MOST_FOUND`].
    Found {
        /// In no order.
        left: Vec<Leftover>,
    },
    /// A directory that could not be looked into; the others are.
    Trouble {
        /// Which.
        path: Raw,
        /// Why, in words.
        what: String,
    },
    /// Still looking; every second in which nothing else is said.
    Alive,
    /// That was all.
    Done,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::transfer::leftover::State;
    use crate::units::Bytes;
    use crate::wire::Request;

    #[test]
    fn messages_read_as_the_protocol_says() {
        let rule = Rule { older: Duration::from_secs(86_400), remove: false };
        let request = Request::Clean(CleanRequest { places: vec!["runs".into()], rule });
        let json = r#"{"verb":"clean","places":["runs"],"older_seconds":86400,"remove":false}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), json);
        assert!(matches!(serde_json::from_str(json), Ok(Request::Clean(read)) if read.rule == rule));
        let left = Leftover {
            path: "runs/.a.lfn-partial".into(),
            source: Some("a".into()),
            bytes: Some(Bytes(5000)),
            kept: Some(Bytes(1024)),
            room: Bytes(8192),
            age: Duration::from_secs(90_000),
            state: State::Stale,
            why: None,
        };
        let found = FromCleaner::Found { left: vec![left] };
        let json = r#"{"cleaner":"found","left":[{"path":"runs/.a.lfn-partial","source":"a","bytes":5000,"#.to_owned()
            + r#""kept_bytes":1024,"disk_bytes":8192,"age_seconds":90000,"state":"stale"}]}"#;
        assert_eq!(serde_json::to_string(&found).unwrap(), json);
        assert_eq!(serde_json::from_str::<FromCleaner>(&json).unwrap(), found);
    }
}
