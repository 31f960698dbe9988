//! Messages of a path session: a client that searches path MTUs, and a server that answers its probes.
//!
//! Almost all of it goes over one stream of datagrams ([`crate::discover::probe`]); on the control connection nothing is
//! said but the request and its answer. The session lasts until the client closes it.

use serde::{Deserialize, Serialize};

/// What a client asks of the far end of a path session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRequest {}

/// The answer: the stream of datagrams may be opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReady {
    /// MTU of the server's interface towards the client, if the server knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_mtu_bytes: Option<u32>,
}
