//! Options of a test that are invalid or contradict each other.

use std::time::Duration;

use lfn_base::units::{Bytes, show_duration};
use lfn_results::measure::RequestError;

use crate::error_kind::ErrorKind;
use crate::hosts::HostError;

/// Reasons why the options of a test are refused.
#[derive(Debug, thiserror::Error)]
pub enum TestOptionsError {
    #[error("no direction is requested")]
    NoDirection,
    #[error("a bidirectional test has the directions forward and reverse, in this order")]
    NotBothDirections,
    #[error("datagrams do not support {0}")]
    Datagrams(TcpOption),
    #[error("Multipath TCP does not support {0}")]
    Multipath(TcpOption),
    #[error("the ignored start of {} is not shorter than the test", show_duration(*.0))]
    OmitTooLong(Duration),
    #[error("path discovery from an interface is not possible: the probes follow the routing table")]
    PathFromInterface,
    #[error("the capacity must be above zero")]
    ZeroCapacity,
    #[error("the settings of a plan need the capacity of the path")]
    UnknownCapacity,
    #[error("datagrams do not use the settings of a plan")]
    PlanForDatagrams,
    #[error("a test with an iperf3 server does not use the settings of a plan")]
    PlanForIperf3,
    /// The comparison chooses this itself, or compares TCP only.
    #[error("a comparison cannot be combined with {0}")]
    Comparison(&'static str),
    #[error("'{0}' is not HOST or HOST:PORT")]
    Iperf3Server(String),
    #[error("the protocol of iperf3 does not support {0}")]
    Iperf3(Iperf3Limit),
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The environment of the emulator is damaged.
    #[error(transparent)]
    Host(Box<HostError>),
}

/// Options of TCP streams that other streams do not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TcpOption {
    #[error("a different rate for each stream")]
    RatePerStream,
    #[error("pacing by the kernel")]
    Pacing,
    #[error("congestion control")]
    Congestion,
    #[error("Multipath TCP")]
    Mptcp,
    #[error("a maximum segment size")]
    Mss,
    #[error("the no-copy mode")]
    NoCopy,
    #[error("several source addresses")]
    BindAddresses,
    #[error("a fixed receive window")]
    Window,
    #[error("a read size: each read returns one datagram")]
    ReadLength,
    #[error("a payload of zeros")]
    Zeros,
    #[error("a check of the payload")]
    PayloadCheck,
    #[error("block timing")]
    BlockTiming,
    #[error("lock-step")]
    Lockstep,
    #[error("a target precision")]
    Precision,
}

/// Options that iperf3's protocol does not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Iperf3Limit {
    #[error("{0} streams")]
    Streams(u16),
    #[error("buffer sizes for one end only")]
    BuffersOfOneEnd,
    #[error("different buffer sizes")]
    DifferentBuffers,
    #[error("a target precision")]
    Precision,
    #[error("no-copy at one end only")]
    NoCopyAtOneEnd,
    #[error("different options for each stream")]
    OptionsPerStream,
    #[error("a check of the payload, block timing and a choice of the payload")]
    Payload,
    #[error("latency probes, ramps and fragments")]
    Probes,
    #[error("lock-step")]
    Lockstep,
    #[error("records of {0}")]
    Record(Bytes),
    #[error("a time that is not in whole seconds")]
    FractionalTime,
}

impl TestOptionsError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            TestOptionsError::Request(error) => error.hint(),
            TestOptionsError::Host(error) => error.hint(),
            TestOptionsError::UnknownCapacity => Some("give the rate of the slowest link".to_owned()),
            TestOptionsError::PathFromInterface => Some("use an address of the interface".to_owned()),
            TestOptionsError::OmitTooLong(_) => Some("use a longer test".to_owned()),
            TestOptionsError::Iperf3(limit) => limit.hint().map(str::to_owned),
            _ => None,
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TestOptionsError::Host(error) => error.kind(),
            _ => ErrorKind::Usage,
        }
    }
}

impl Iperf3Limit {
    /// Returns one action that may fix the error, if there is one.
    fn hint(self) -> Option<&'static str> {
        match self {
            Iperf3Limit::Streams(_) => Some("use 128 streams or fewer"),
            Iperf3Limit::BuffersOfOneEnd | Iperf3Limit::DifferentBuffers => Some("use one size for both ends"),
            Iperf3Limit::NoCopyAtOneEnd => Some("use no-copy at both ends"),
            Iperf3Limit::OptionsPerStream => Some("use one value for all streams"),
            Iperf3Limit::Record(_) => Some("use 1 MiB or less"),
            Iperf3Limit::FractionalTime => Some("use whole seconds"),
            Iperf3Limit::Precision | Iperf3Limit::Payload | Iperf3Limit::Probes | Iperf3Limit::Lockstep => None,
        }
    }
}

impl From<HostError> for TestOptionsError {
    fn from(error: HostError) -> Self {
        TestOptionsError::Host(Box::new(error))
    }
}
