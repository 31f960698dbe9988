//! The channel: puts fields for the partner, and gets the fields of the partner.
//!
//! [`Channel::open`] connects, and returns when both sites agree about the coupling file. In each step the model calls
//! [`Channel::begin_step`], puts all its variables, and gets those of its partner. [`Channel::finish`] waits until the partner has
//! finished, and returns the measured figures of both.

mod error;
mod event;
mod report;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_session::dial::Target;

pub use error::ChannelError;
pub use event::ChannelEvent;
pub use report::{ComponentReport, ReceivedVariable, RunReport, SentVariable};

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
    /// Maximum memory for fields since the partner's last checkpoint.
    pub history: Bytes,
    /// Data streams for large fields in each direction; `None` derives the number from the BDP.
    pub streams: Option<u16>,
}

/// How this end meets its partner.
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

/// One end of a channel.
pub struct Channel {}

impl Channel {
    /// Connects to the partner, and returns when both sites agree about the coupling file. `on_event` is called on the threads of
    /// the channel, and must not block. `interrupted` ends every wait of the channel soon after it returns true.
    pub fn open(
        _options: ChannelOptions,
        _on_event: impl Fn(&ChannelEvent) + Send + Sync + 'static,
        _interrupted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Channel, ChannelError> {
        Err(ChannelError::NoStep)
    }

    /// Returns the first step of this process: 0, or the step of the last checkpoint after a resume.
    pub fn first_step(&self) -> u64 {
        0
    }

    /// Returns the number of steps in the coupling file.
    pub fn steps(&self) -> u64 {
        0
    }

    /// Begins the next step, and ends the step before. The first call begins [`first_step`](Self::first_step).
    pub fn begin_step(&mut self) -> Result<u64, ChannelError> {
        Err(ChannelError::NoStep)
    }

    /// Puts the field of a variable in this step. `fill` writes the elements in C order, little-endian, into the buffer.
    pub fn put_with(&mut self, _variable: &str, _fill: impl FnOnce(&mut [u8])) -> Result<(), ChannelError> {
        Err(ChannelError::NoStep)
    }

    /// Puts the field of a variable in this step.
    pub fn put(&mut self, variable: &str, data: &[u8]) -> Result<(), ChannelError> {
        let _ = (variable, data);
        Err(ChannelError::NoStep)
    }

    /// Returns the partner's field of step n − lag, after a wait if necessary. A variable with `drop = "oldest"` returns the
    /// newest field that has arrived, without a wait; `None` if there is none yet.
    pub fn get(&mut self, _variable: &str) -> Result<Option<Field>, ChannelError> {
        Err(ChannelError::NoStep)
    }

    /// Reports that the state of the model at the start of this step is on disk: a later process can resume from this step.
    /// Call it before the first put of the step.
    pub fn checkpoint(&mut self) -> Result<(), ChannelError> {
        Err(ChannelError::NoStep)
    }

    /// Ends the last step. Waits until the partner has finished its last step, and returns the figures of both.
    pub fn finish(self) -> Result<RunReport, ChannelError> {
        Err(ChannelError::NoStep)
    }

    /// Stops the run at both ends, with a reason for the partner.
    pub fn stop(self, _reason: &str) {}
}
