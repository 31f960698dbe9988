//! Test that a client requests from a stock server.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lfn_session::dial::BindAddress;

use crate::iperf3::rsa::{Padding, PublicKey};
use crate::proto::iperf3::Parameters;

/// A test on a stock server, with its time-outs.
#[derive(Debug, Clone)]
pub struct IperfTest {
    pub parameters: Parameters,
    /// User name and password, if the server requires them.
    pub login: Option<Login>,
    /// Length of this end's intervals.
    pub interval: Duration,
    /// Maximum time of one step of the protocol.
    pub step_timeout: Duration,
    /// Maximum time until the server requests the streams. A server for several clients lets some of them wait.
    pub queue_timeout: Duration,
    /// Source addresses: the control connection uses the first one, stream n the nth one, starting again after the
    /// last. With an empty list the routing table decides.
    pub bind_addresses: Vec<BindAddress>,
    /// Set to end the load early, with a report.
    pub stop: Arc<AtomicBool>,
}

/// User name, password and key for a server with authentication.
#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: String,
    pub key: PublicKey,
    /// Padding of the encrypted token.
    pub padding: Padding,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({})", self.user)
    }
}
