//! The verb `stamp`: measures delay and loss with a STAMP reflector (RFC 8762), without load and without a session.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lfn_measure::proto::stamp::report::{StampDocument, StampSchema};
use lfn_measure::proto::stamp::{self, packet};
use lfn_measure::stamp::{StampError, StampKey, StampProbeOptions, probe};
use lfn_session::{TicketError, split_host_port};
use lfn_sys::names::lookup;

use crate::emulator_env;
use crate::error_kind::ErrorKind;
use crate::hosts::{HostError, SavedHosts};

/// Maximum number of packets: all of them are in memory until the end.
pub const MAX_COUNT: u32 = 10_000_000;

/// Maximum payload of a UDP datagram, bytes.
const MAX_SIZE: usize = 65_507;

/// Waiting time for the last answers: five times the longest known path.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Options of a measurement with a STAMP reflector.
#[derive(Debug, Clone)]
pub struct StampOptions {
    /// HOST or HOST:PORT of the reflector. A saved name stands for the host of its ticket, with the default port 862.
    pub reflector: String,
    /// Number of packets, 1 to [`MAX_COUNT`].
    pub count: u32,
    /// Time between two packets.
    pub interval: Duration,
    /// Size of a packet in bytes, without IP and UDP headers; `None` uses the minimum.
    pub size: Option<usize>,
    /// Key of the authenticated mode, which the reflector must have too.
    pub key: Option<StampKey>,
}

/// Reasons why a measurement with a STAMP reflector failed.
#[derive(Debug, thiserror::Error)]
pub enum StampVerbError {
    #[error("{0} packets are requested: 1 to {MAX_COUNT} are allowed")]
    Count(u32),
    #[error("{size} B is not in the range {min} to {MAX_SIZE}")]
    Size { size: usize, min: usize },
    #[error("{0}")]
    InvalidAddress(TicketError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("unknown host '{host}': {}", source.as_ref().map_or("no address".into(), ToString::to_string))]
    UnknownHost { host: String, source: Option<io::Error> },
    #[error(transparent)]
    Probe(#[from] StampError),
}

impl StampOptions {
    /// Creates options for 100 packets of the minimum size, ten per second.
    pub fn new(reflector: impl Into<String>) -> Self {
        StampOptions {
            reflector: reflector.into(),
            count: 100,
            interval: Duration::from_millis(100),
            size: None,
            key: None,
        }
    }

    /// Refuses options that are out of range.
    pub fn check(&self) -> Result<(), StampVerbError> {
        if !(1..=MAX_COUNT).contains(&self.count) {
            return Err(StampVerbError::Count(self.count));
        }
        let min = packet::base_length(self.key.is_some());
        match self.size {
            Some(size) if !(min..=MAX_SIZE).contains(&size) => Err(StampVerbError::Size { size, min }),
            _ => Ok(()),
        }
    }
}

impl StampVerbError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            StampVerbError::Count(_) => Some("--stamp-count 100".to_owned()),
            StampVerbError::Size { .. } => Some("--stamp-size 200".to_owned()),
            StampVerbError::InvalidAddress(_) | StampVerbError::UnknownHost { .. } => {
                Some("use a valid host name or an address: --stamp 192.0.2.1:862".to_owned())
            }
            StampVerbError::Host(error) => error.hint(),
            StampVerbError::Probe(StampError::Closed { to }) => {
                Some(format!("start a reflector on that host: lfn serve --stamp={}", to.port()))
            }
            StampVerbError::Probe(StampError::NoAnswer { .. }) => Some(
                "check that a reflector runs there, that firewalls pass UDP in both directions, and that both ends have the same key"
                    .to_owned(),
            ),
            StampVerbError::Probe(StampError::Io { .. }) => None,
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StampVerbError::Count(_) | StampVerbError::Size { .. } | StampVerbError::InvalidAddress(_) => {
                ErrorKind::Usage
            }
            StampVerbError::Host(error) => error.kind(),
            StampVerbError::UnknownHost { .. } | StampVerbError::Probe(_) => ErrorKind::Failed,
        }
    }
}

/// Sends the packets and evaluates the answers. `on_progress` receives the numbers of sent and answered packets. A set
/// `stop` ends the measurement, whose figures up to then are the result.
pub fn stamp(
    options: &StampOptions,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(u64, u64),
) -> Result<StampDocument, StampVerbError> {
    options.check()?;
    let probing = StampProbeOptions {
        to: address(&options.reflector)?,
        from: None,
        count: options.count,
        interval: options.interval,
        size: options.size.unwrap_or_else(|| packet::base_length(options.key.is_some())),
        wait: ANSWER_TIMEOUT,
        // Both sides of an emulated path are on this host.
        has_shared_clock: emulator_env::is_inside(),
        key: options.key.clone(),
    };
    Ok(StampDocument { schema: StampSchema::V2, report: probe(&probing, stop, on_progress)? })
}

/// Resolves the name of the reflector, with its port.
fn address(typed: &str) -> Result<SocketAddr, StampVerbError> {
    let (name, port) = split_host_port(typed).map_err(StampVerbError::InvalidAddress)?;
    let host = SavedHosts::load()?.get(&name)?.map_or(name, |ticket| ticket.host);
    let unknown = |source| StampVerbError::UnknownHost { host: host.clone(), source };
    let addresses = lookup(&host, port.unwrap_or(stamp::PORT)).map_err(|error| unknown(Some(error)))?;
    addresses.first().copied().ok_or_else(|| unknown(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_range_are_refused() {
        let options = StampOptions::new("192.0.2.1");
        assert!(options.check().is_ok());
        for wrong in [
            StampOptions { count: 0, ..options.clone() },
            StampOptions { count: MAX_COUNT + 1, ..options.clone() },
            StampOptions { size: Some(43), ..options.clone() },
            StampOptions { size: Some(MAX_SIZE + 1), ..options.clone() },
            StampOptions { size: Some(44), key: Some(StampKey::new(&[1; 16])), ..options.clone() },
        ] {
            let error = stamp(&wrong, &AtomicBool::new(false), &mut |_, _| {});
            assert!(error.is_err_and(|error| error.kind() == ErrorKind::Usage), "{wrong:?}");
        }
    }
}
