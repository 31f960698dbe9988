//! Reasons why a server does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use lfn_measure::proto::iperf3;
use lfn_measure::stamp::StampKeyError;
use lfn_session::identity::IdentityError;
use lfn_session::server::ServeError;
use lfn_session::server::metrics::MetricsError;

use crate::error_kind::ErrorKind;

/// Reasons why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeStartError {
    #[error("--insecure: other hosts can reach {0}")]
    InsecureOnNetwork(SocketAddr),
    #[error("--root {}: {source}", .root.display())]
    Root { root: PathBuf, source: io::Error },
    /// Clients may only write, but no directory is served.
    #[error("{0} needs --root, or a token with a directory")]
    WriteWithoutRoot(&'static str),
    #[error("--audit {}: {source}", .file.display())]
    Audit { file: PathBuf, source: io::Error },
    #[error("no home directory for the server's key")]
    NoHomeDirectory,
    #[error("{} contains no valid token", .0.display())]
    DamagedToken(PathBuf),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("cannot listen on {address} for iperf3 clients: {source}")]
    Iperf3Listen { address: SocketAddr, source: io::Error },
    #[error("{} {}: {reason}", .file.flag(), .path.display())]
    Iperf3File { file: Iperf3File, path: PathBuf, reason: String },
    #[error(transparent)]
    StampKey(#[from] StampKeyError),
    #[error("cannot reflect STAMP packets at {address}: {source}")]
    StampListen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    #[error("no address to listen on")]
    NoAddress,
    #[error("landlock: {0}")]
    Sandbox(String),
    #[error("cannot start the server: {0}")]
    Io(#[from] io::Error),
}

impl ServeStartError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            ServeStartError::Root { root, source } => match source.kind() {
                io::ErrorKind::NotFound => {
                    format!("check the path, or create the directory: mkdir -p {}", root.display())
                }
                io::ErrorKind::NotADirectory => "use the directory that contains the file".to_owned(),
                _ => "choose a directory that this user may read".to_owned(),
            },
            ServeStartError::Audit { file, .. } => match file.parent().filter(|parent| !parent.exists()) {
                Some(parent) => format!("create the directory: mkdir -p {}", parent.display()),
                None => "choose a file that this user may append to, on a disk with free space".to_owned(),
            },
            ServeStartError::NoHomeDirectory => "set HOME, or use --ephemeral".to_owned(),
            ServeStartError::DamagedToken(_) => {
                "delete the file; a new token is created, and old tickets stop working".to_owned()
            }
            ServeStartError::Identity(error) => return error.hint(),
            ServeStartError::Serve(error) => match error {
                ServeError::Listen { .. } => "`ip address` lists the addresses of this host".to_owned(),
                ServeError::Identity(_) => "delete server.key and server.crt; `lfn serve` creates new ones".to_owned(),
                ServeError::TokenSet(IdentityError::Exposed { .. }) => {
                    "run chmod 600 on the file, and revoke its tokens if others may have read it".to_owned()
                }
                ServeError::TokenSet(_) => "correct the file, or delete it together with all its tokens".to_owned(),
            },
            ServeStartError::Iperf3Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                let other = iperf3::DEFAULT_PORT + 1;
                format!("is an iperf3 server running? choose another port: lfn serve --iperf3={other}")
            }
            ServeStartError::Iperf3Listen { .. } => "ports below 1024 need root".to_owned(),
            ServeStartError::Iperf3File { file, .. } => file.hint().to_owned(),
            ServeStartError::StampKey(_) => {
                "create a key for both ends: head -c 32 /dev/urandom | base64 > FILE".to_owned()
            }
            ServeStartError::StampListen { .. } => {
                "ports below 1024 need root; use another port: --stamp=8620".to_owned()
            }
            ServeStartError::Metrics(_) => {
                "choose another address or port: lfn serve --metrics 127.0.0.1:9733".to_owned()
            }
            ServeStartError::InsecureOnNetwork(_)
            | ServeStartError::WriteWithoutRoot(_)
            | ServeStartError::NoAddress
            | ServeStartError::Sandbox(_)
            | ServeStartError::Io(_) => return None,
        })
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ServeStartError::InsecureOnNetwork(_)
            | ServeStartError::Root { .. }
            | ServeStartError::WriteWithoutRoot(_)
            | ServeStartError::Audit { .. }
            | ServeStartError::StampKey(_) => ErrorKind::Usage,
            _ => ErrorKind::Failed,
        }
    }
}

/// Kind of a file that the authentication reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Iperf3File {
    Users,
    Key,
}

impl Iperf3File {
    /// Returns the flag of `lfn serve` that names the file.
    fn flag(self) -> &'static str {
        match self {
            Iperf3File::Users => "--iperf3-users",
            Iperf3File::Key => "--iperf3-rsa-private-key",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Iperf3File::Users => "write lines USER,HASH and create the hash with: printf '{USER}PASSWORD' | sha256sum",
            Iperf3File::Key => {
                "create a key pair: openssl genrsa -out key.pem 2048; openssl rsa -in key.pem -pubout -out public.pem"
            }
        }
    }
}
