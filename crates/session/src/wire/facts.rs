//! Messages of a facts session: a client requests the facts of the server's host.
//!
//! The server answers with one message and ends the session.

use std::time::Duration;

use lfn_results::host::facts::HostFacts;
use serde::{Deserialize, Serialize};

/// Maximum duration of a session.
pub const MAX_SESSION_TIME: Duration = Duration::from_secs(30);

/// The client's request for the facts of the server's host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactsRequest {}

/// The server's answer. The maximum is that of a hello ([`HELLO_LIMIT`](super::HELLO_LIMIT)).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FactsReply {
    /// Facts of the server's host, with the interface and the route towards the client.
    pub facts: HostFacts,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;

    #[test]
    fn messages_match_protocol_doc() {
        let request = serde_json::to_value(Request::Facts(FactsRequest {})).unwrap();
        assert_eq!(request, serde_json::json!({ "verb": "facts" }));
        // A newer server may add fields.
        let reply = r#"{"facts":{"release":"6.8.0","is_root":true,"sysctls":{},"congestion_available":["cubic"],
            "congestion_allowed":[],"interface":{"name":"eth0","mtu_bytes":1500,"later":1},"later":{}},"later":[]}"#;
        let reply: FactsReply = serde_json::from_str(reply).unwrap();
        assert_eq!(reply.facts.interface.unwrap().mtu_bytes, 1500);
    }
}
