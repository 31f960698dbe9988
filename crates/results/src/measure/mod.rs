//! Messages of a test session, and the figures that both ends of a test report.
//!
//! One session is one direction. The client's [`TestRequest`] is complete, so that data may flow before any answer. The
//! server answers with [`Ready`], reports intervals during the test, and sends its [`EndReport`] at the end.
//! [`TestRequest::check`] limits a request before the server acts on it. `--json` prints the same types, so their names
//! carry units.

pub(crate) mod bounded;
mod dscp;
mod error;
mod limits;
mod report;
mod request;
mod socket;
mod udp;
mod work;

pub use bounded::{Bounded, OutOfRange, ReportedTotals};
pub use dscp::{Dscp, DscpError};
pub use error::RequestError;
pub use limits::{
    DEFAULT_LOCKSTEP_RECORD, DEFAULT_READ, DEFAULT_RECORD, MAX_DATAGRAM, MAX_PARTS, MAX_RECORD, MAX_STREAMS,
    MIN_DATAGRAM, MIN_INTERVAL,
};
pub use report::{Cpu, EndReport, Interval, IntervalPart, Kernel, StreamReport, StreamSample};
pub use request::{TestDirection, TestLoad, TestRequest};
pub use socket::{SocketReport, SocketRequest, value_for_stream};
pub use udp::UdpRequest;
pub use work::{Mode, Modes, PayloadCheck, PayloadData};

use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

use crate::udp::ramp::{RampReport, StepReceived};

/// Messages of the server in a test session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ServerMessage {
    Ready(Box<Ready>),
    /// Start of the server's intervals. Sent before the first interval, so that the client can align both ends during
    /// the test.
    Started {
        /// Nanoseconds on the server's clock (`CLOCK_MONOTONIC`).
        at_nanos: u64,
    },
    Interval(Box<Interval>),
    /// Answer to a ping.
    Pong {
        /// Number of the ping.
        number: u32,
        /// Arrival of the ping, in nanoseconds on the server's clock (`CLOCK_MONOTONIC`).
        received_nanos: u64,
        /// Departure of this answer, on the same clock.
        sent_nanos: u64,
    },
    /// A ramp step was sent. The receiver reports its result when nothing more arrives.
    StepSent {
        step: u32,
        /// Datagrams in the step.
        datagrams: u64,
    },
    /// Result of the server as receiver of one ramp step.
    Step(StepReceived),
    /// The server starts a ramp step: the results so far and the rate of the step.
    StepBegun(Box<RampReport>),
    /// The server's side of the test is complete.
    Report(Box<EndReport>),
}

/// Messages of the client after its request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ClientMessage {
    /// All data was received: the sender may read its final counters.
    Received,
    /// All datagram streams are open: a sending server may start.
    Opened,
    /// All datagrams were sent. Datagrams that have not arrived are late or lost.
    Sent {
        /// Datagrams per stream, in order of stream numbers.
        datagrams: Vec<u64>,
    },
    /// A ramp step was sent. The receiver reports its result when nothing more arrives.
    StepSent {
        step: u32,
        /// Datagrams in the step.
        datagrams: u64,
    },
    /// Result of the client as receiver of one ramp step.
    Step(StepReceived),
    /// Measures the clock offset of both ends: answer at once.
    Ping {
        /// Ping number, from 0.
        number: u32,
    },
    /// Ends the load now and requests the report.
    Stop,
}

/// The server's answer to a test request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Port for the data streams, if it differs from the server's port: socket options must be set before the
    /// connections arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Limits of the server's kernel.
    pub kernel: Kernel,
    /// Rate limit of the server for all streams of the session together.
    #[serde(default, rename = "rate_limit_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<BitRate>,
    /// The server obeys the request for lock-step. An earlier version ignores the request and sends no such field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lockstep: bool,
}
