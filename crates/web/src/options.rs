//! Settings of the page.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lfn_mesh::sites::Sites;

/// Minimum length of a token, bytes. Guesses over the network are hopeless from 128 random bits on.
pub(crate) const MIN_TOKEN_LENGTH: usize = 16;

/// The mesh as the hub knows it now. Tests have a clock of their own.
pub trait MeshView: Send + Sync {
    /// Returns the current sites file.
    fn sites(&self) -> Arc<Sites>;

    /// Returns the time since 1970 from which the agents follow the sites file.
    fn valid_from(&self) -> Duration;

    /// Returns the time since 1970.
    fn now(&self) -> Duration;
}

/// Settings of a [`crate::PageServer`], which do not change while it runs.
#[derive(Debug, Clone)]
pub struct PageOptions {
    /// Address to listen on; port 0 for any free port.
    pub address: SocketAddr,
    /// Secret that every request must have, at least 16 bytes. Browsers send it as the password.
    pub token: String,
    /// The archive to read.
    pub archive: PathBuf,
    /// Certificate of HTTPS; `None` for HTTP.
    pub certificate: Option<CertificateFiles>,
    /// Permits HTTP on an address that other hosts can reach: behind a proxy with TLS, or in a network of its own.
    pub insecure: bool,
    pub limits: Limits,
}

/// Certificate and key in PEM format.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// Certificate of the server, followed by those of its issuers.
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// Limits of the clients.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum open connections. The oldest connection without a valid token is closed for a new one.
    pub connections: usize,
    /// Maximum time from the start of a connection, or the end of the last answer, to the end of the next header.
    pub header_time: Duration,
    /// Maximum time to make an answer.
    pub answer_time: Duration,
    /// Maximum time of a connection. It bounds how long a slow client reads one answer.
    pub connection_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 64,
            header_time: Duration::from_secs(10),
            answer_time: Duration::from_secs(20),
            connection_time: Duration::from_secs(120),
        }
    }
}
