//! Messages of a disk session: a client requests the rates of a disk of the server.
//!
//! The server measures, answers with one message and ends the session. A client that closes the connection ends the
//! measurement.

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_results::evidence::disk::DiskReport;
use serde::{Deserialize, Serialize};

use super::copy::byte_string::ByteString;

/// Maximum duration of a session.
pub const MAX_SESSION_TIME: Duration = Duration::from_secs(30);

/// The client's request for the rates of a disk of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRequest {
    /// Directory or file below the served root, as in a copy. Empty is the root itself.
    pub path: ByteString,
    /// Time of each activity, reading and writing. The server has a maximum.
    #[serde(rename = "seconds", with = "seconds")]
    pub time: Duration,
}

/// The server's answer. The maximum is that of a hello ([`HELLO_LIMIT`](super::HELLO_LIMIT)).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskReply {
    /// Rates of the disk, as far as the client's rights permit.
    pub disk: DiskReport,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;

    #[test]
    fn messages_match_protocol_doc() {
        let request = DiskRequest { path: ByteString::from("a/b"), time: Duration::from_secs(5) };
        let request = serde_json::to_value(Request::Disk(request)).unwrap();
        assert_eq!(request, serde_json::json!({ "verb": "disk", "path": "a/b", "seconds": 5.0 }));
        // A newer server may add fields.
        let reply = r#"{"disk":{"file_system":"ext4","block_bytes":1048576,"threads":4,"later":1,"write":{"method":"direct",
            "bytes":8,"file_bytes":8,"elapsed_seconds":1.0,"rate_bits_per_second":64,"median_bits_per_second":64,
            "min_bits_per_second":60,"intervals":1}},"later":[]}"#;
        let DiskReply { disk } = serde_json::from_str(reply).unwrap();
        assert_eq!((disk.read, disk.write.unwrap().rate.0), (None, 64));
    }
}
