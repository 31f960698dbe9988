//! Errors at the start of the page.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Reasons why the page cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    #[error("cannot listen on {address} for the page: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("the page would be unencrypted on {0}, which other hosts can reach")]
    Unencrypted(SocketAddr),
    #[error("the token of the page has {0} bytes; at least {min} are needed", min = crate::options::MIN_TOKEN_LENGTH)]
    ShortToken(usize),
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no usable {kind}: {reason}", .path.display())]
    Certificate { path: PathBuf, kind: &'static str, reason: String },
    #[error("cannot start the threads of the page: {0}")]
    Threads(io::Error),
}

impl WebError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            WebError::Bind { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                Some("choose another port, or stop the program that uses this one".to_owned())
            }
            WebError::Unencrypted(address) => Some(format!(
                "listen on loopback (127.0.0.1:{}) and forward the port with `ssh -L`, or give a certificate and its key",
                address.port()
            )),
            WebError::Certificate { kind, .. } => Some(format!("give a file in PEM format with the {kind}")),
            _ => None,
        }
    }
}
