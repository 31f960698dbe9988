//! Messages of a path session: a client searches path MTUs, and a server answers its probes.
//!
//! Almost everything travels over one stream of datagrams (`lfn_measure::proto::discover::probe`). The control
//! connection carries only the request and the answer. The session lasts until the client closes the connection.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum duration of a session: both searches, with a reserve for slow paths.
pub const MAX_SESSION_TIME: Duration = Duration::from_secs(60);

/// The client's request for a path session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRequest {}

/// The server's answer: the stream of datagrams may be opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReady {
    /// MTU of the server's interface towards the client, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_mtu_bytes: Option<u32>,
}
