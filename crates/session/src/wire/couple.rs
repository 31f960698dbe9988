//! Request of a session between two coupled models.
//!
//! The messages that follow are those of `lfn-couple`.

use serde::{Deserialize, Serialize};

/// A component's request for a session with its partner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoupleRequest {
    /// Data streams of the session, in both directions together.
    pub streams: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;

    #[test]
    fn messages_match_protocol_doc() {
        let request = serde_json::to_value(Request::Couple(CoupleRequest { streams: 4 })).unwrap();
        assert_eq!(request, serde_json::json!({ "verb": "couple", "streams": 4 }));
    }
}
