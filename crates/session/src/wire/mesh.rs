//! Request of a mesh session: an agent exchanges results for the plan with its hub.
//!
//! The token names the agent. The messages that follow are those of `lfn-mesh`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum duration of a session. An agent with more results opens another session.
pub const MAX_SESSION_TIME: Duration = Duration::from_secs(120);

/// The agent's request for a session with its hub.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshRequest {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;

    #[test]
    fn messages_match_protocol_doc() {
        let request = serde_json::to_value(Request::Mesh(MeshRequest {})).unwrap();
        assert_eq!(request, serde_json::json!({ "verb": "mesh" }));
    }
}
