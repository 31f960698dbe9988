//! Messages of a test session, and the figures both ends of a test report.
//!
//! One session is one direction. The client's [`TestRequest`] says all there is to say, so that data may flow before
//! any answer; the server answers with [`Ready`], tells its intervals while the test runs and its [`EndReport`] at the
//! end. What a client can ask is bounded by [`TestRequest::check`] before anything is done for it. The types of figures
//! are also what `--json` prints, so their names carry units.

mod bounded;
mod dscp;
mod report;
mod request;
mod socket;
mod udp;
mod work;

pub use bounded::{Bounded, Sum, Unbounded};
pub use dscp::{Dscp, DscpError};
pub use report::{Cpu, EndReport, Interval, Kernel, Part, StreamReport, StreamSample};
pub use request::{
    DEFAULT_READ, DEFAULT_RECORD, Direction, LARGEST_RECORD, Load, MOST_PARTS, MOST_STREAMS, RequestError,
    SHORTEST_INTERVAL, TestRequest,
};
pub use socket::{LARGEST_WINDOW, SocketReport, SocketWish, of_stream};
pub use udp::UdpRequest;
pub use work::{Check, Data, Mode, Modes};

use serde::{Deserialize, Serialize};

use crate::udp::ramp::{RampReport, StepSeen};
use crate::units::BitRate;

/// What the server tells its client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ServerMessage {
    /// The request was taken.
    Ready(Box<Ready>),
    /// When the server's intervals began to count; told before the first of them, so that they can be laid beside the
    /// client's while the test runs.
    Started {
        /// Nanoseconds on the server's clock (`CLOCK_MONOTONIC`).
        at_nanos: u64,
    },
    /// One interval is over.
    Interval(Box<Interval>),
    /// The answer to a ping.
    Pong {
        /// The ping's.
        number: u32,
        /// When it arrived, nanoseconds on the server's clock (`CLOCK_MONOTONIC`).
        received_nanos: u64,
        /// When this left.
        sent_nanos: u64,
    },
    /// A step of a ramp was sent: what came of it is to be told when nothing more comes.
    StepSent {
        /// Its number.
        step: u32,
        /// Datagrams of it.
        datagrams: u64,
    },
    /// What the server received of one step of a ramp.
    Step(StepSeen),
    /// The server begins a step of its ramp: what is known so far, and the rate of that step.
    StepBegun(Box<RampReport>),
    /// The server's end is done.
    Report(Box<EndReport>),
}

/// What the client tells the server after its request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ClientMessage {
    /// Everything was received: the sender may take its last figures.
    Received,
    /// Every stream of datagrams is open: a server that sends may begin.
    Opened,
    /// Every datagram was sent, so many on each stream in the order of their numbers: what has not come is late or lost.
    Sent {
        /// Of each stream.
        datagrams: Vec<u64>,
    },
    /// A step of a ramp was sent: what came of it is to be told when nothing more comes.
    StepSent {
        /// Its number.
        step: u32,
        /// Datagrams of it.
        datagrams: u64,
    },
    /// What the client received of one step of a ramp.
    Step(StepSeen),
    /// Compares the clocks of the two ends: to be answered at once.
    Ping {
        /// From 0.
        number: u32,
    },
    /// Enough: end the load now and tell the figures.
    Stop,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Where to dial the data streams, if not the server's own port: options had to be set before they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What the far kernel allows.
    pub kernel: Kernel,
    /// What the server holds all streams of the session together to.
    #[serde(default, rename = "rate_limit_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<BitRate>,
}
