//! The channel: puts fields for the partner, and gets the fields of the partner.
//!
//! [`Channel::open`] connects, and returns when both sites agree about the coupling file. In each step the model calls
//! [`Channel::begin_step`], puts all its variables, and gets those of its partner. [`Channel::finish`] waits until the partner has
//! finished, and returns the measured figures of both.

mod connection;
mod error;
mod event;
mod handshake;
mod padding;
mod rendezvous;
mod run;
mod shared;
mod streams;
#[cfg(test)]
mod tests;
mod window;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_session::dial::Target;

pub use crate::report::{ComponentReport, ReceivedVariable, RunReport, SentVariable};
pub use error::ChannelError;
pub use event::ChannelEvent;
pub use run::Channel;

use crate::coupling::Coupling;

/// Default port of a component that listens.
pub const COUPLE_PORT: u16 = 7327;

/// Time for which a component waits for its partner, if the caller sets no other time.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(600);

/// Settings of one end of a channel.
#[derive(Debug)]
pub struct ChannelOptions {
    pub coupling: Coupling,
    /// Component that this process runs.
    pub component: String,
    pub rendezvous: Rendezvous,
    /// Maximum time without the partner or without a field of the partner.
    pub patience: Duration,
    /// Resume from the last checkpoint that this component reported before it ended.
    pub resume: bool,
    /// Properties of the model's own fields, which must agree with the coupling file.
    pub declared: BTreeMap<String, DeclaredVariable>,
    /// Maximum memory for fields since the partner's last checkpoint. Fields on the path are kept in any case.
    pub history: Bytes,
    /// Data streams for large fields in each direction, if this end dials; `None` derives the number from the BDP.
    pub streams: Option<u16>,
}

/// The way in which this end meets its partner.
#[derive(Debug)]
pub enum Rendezvous {
    Listen(ListenOptions),
    Dial(Box<Target>),
}

/// Settings of the end that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOptions {
    /// Address to listen on; `None` is every address.
    pub bind: Option<IpAddr>,
    /// Port; 0 takes any free port.
    pub port: u16,
    /// Host name or address in the ticket.
    pub ticket_host: String,
    /// Directory of the key and the token, which stay the same after a restart. `None` creates new ones.
    pub state: Option<PathBuf>,
    /// Accept a partner without a token. The caller checks that the address is loopback or an emulated path.
    pub insecure: bool,
}

/// Properties of a field as the model has them. Absent ones are not compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeclaredVariable {
    pub units: Option<String>,
    pub shape: Option<Vec<u64>>,
    /// Name of the element type, as in NumPy.
    pub element: Option<String>,
}

/// A field of the partner.
#[derive(Debug, Clone)]
pub struct Field {
    /// Step in which the partner put the field; `None` for the initial value of the coupling file.
    pub step: Option<u64>,
    /// Elements in C order, little-endian.
    pub bytes: Arc<Vec<u8>>,
}
