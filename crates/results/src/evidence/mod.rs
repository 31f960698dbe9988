//! Evidence of one load: the figures of both ends and of the path, before any judgement.
//!
//! A test of TCP, a test of datagrams and a copy each produce [`Evidence`]. [`diagnose`](crate::diagnose::diagnose)
//! turns the evidence into findings and a verdict. The stored result of a test contains its evidence, so a later version can
//! diagnose an old result again. The reports of the ends are the types of the wire protocol: a new figure of
//! [`TcpInfo`](lfn_base::tcp_info::TcpInfo), of a sample or of a host is part of the evidence without further code.

pub mod capture;
mod copy;
mod copy_ends;
pub mod couple;
pub mod disk;
mod ends;
pub mod figures;
pub mod pair;
pub mod trains;

use std::time::Duration;

use lfn_base::path::{PathProfile, optional_seconds, seconds};
use serde::{Deserialize, Serialize};

use crate::block_timing::ReceivedBlocks;
use crate::host::clock::ClockAlignment;
use crate::host::facts::HostFacts;
use crate::iperf3_report::Iperf3Report;
use crate::latency::Latency;
use crate::measure::{EndReport, SocketRequest, TestDirection, TestRequest};
use crate::path_report::PathReport;

pub use copy::{CopyEvidence, CopyHost, ProgressSample, SocketEvidence, StreamTime};
use copy_ends::CopyEnds;
use disk::DiskEvidence;
pub(crate) use ends::host_of;
pub use ends::{HostNames, PerEnd, Side};
use trains::TrainEvidence;

/// Figures of one load in one direction: samples, sockets, hosts and path. Unknown figures are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Evidence {
    /// Names of the two hosts as the user typed them.
    #[serde(default)]
    pub hosts: HostNames,
    /// Request to the server, with the options of its sockets. A copy has the default request in its direction.
    pub request: TestRequest,
    /// Socket options requested at the client's end.
    pub near_socket: SocketRequest,
    /// Arguments of the command that repeats the load, as they were typed, with its direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<TypedArgument>,
    /// Figures of the path with the measured base RTT; null if the capacity is unknown.
    pub path: Option<PathProfile>,
    /// RTT of the control connection's handshake, before the load.
    #[serde(rename = "handshake_rtt_seconds", with = "seconds")]
    pub handshake_rtt: Duration,
    /// Start-up time set by the user (`--omit`); absent if it was detected.
    #[serde(rename = "omit_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub omit: Option<Duration>,
    /// Report of the client's end.
    pub near: EndReport,
    /// Report of the server's end.
    pub far: EndReport,
    /// Offset of the server's clock; the server's intervals then have times on both clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockAlignment>,
    /// Hops and path MTUs, if they were measured (`--path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_report: Option<PathReport>,
    /// Block timings at the receiver, if they were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<ReceivedBlocks>,
    /// Round trips of probes during the load (`--latency`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Trains of datagrams in the direction of the load, if they were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trains: Option<Box<TrainEvidence>>,
    /// Facts of both hosts, if they were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Box<PerEnd<Option<HostFacts>>>>,
    /// Disks of both ends, if they were measured (`lfn doctor --disk`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<Box<PerEnd<Option<DiskEvidence>>>>,
    /// Results of the iperf3 server, if the server was iperf3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iperf3: Option<Iperf3Report>,
    /// Counters of both sides of a copy; absent for a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(skip))]
    pub copy: Option<CopyEvidence>,
    /// Figures of a connection of a packet capture; absent for a test and a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(skip))]
    pub capture: Option<Box<capture::CaptureEvidence>>,
    /// Figures of a coupled run; absent for other loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(skip))]
    pub couple: Option<Box<couple::CoupleEvidence>>,
    /// Reason for the end of the load.
    #[serde(default)]
    pub ended: EndReason,
    /// Both directions ran at the same time (`--bidir`).
    #[serde(default)]
    pub bidirectional: bool,
}

/// Kinds of loads, which have different rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoadKind {
    /// Test of TCP streams, which adapt their rate to the path.
    Tcp,
    /// Test of datagrams at a requested rate.
    Datagrams,
    /// Copy of files between hosts.
    Copy,
    /// TCP connection of a packet capture.
    Capture,
    /// Run of two coupled models.
    Couple,
}

/// An argument of a command as it was typed: a place, or a flag with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TypedArgument {
    /// Long name of the flag, without dashes; null for a host or a place.
    pub flag: Option<String>,
    /// The argument, quoted for a shell.
    pub text: String,
}

/// Reason for the end of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The load was completed.
    #[default]
    Completed,
    /// The confidence interval was narrow enough (`--precision`).
    Converged,
    /// The user interrupted the test; the data received until then is counted.
    Interrupted,
}

impl Evidence {
    /// Creates the evidence of a test from the reports of both ends. `handshake_rtt` is the RTT before the load.
    pub fn of_test(request: TestRequest, handshake_rtt: Duration, near: EndReport, far: EndReport) -> Self {
        Evidence { request, handshake_rtt, near, far, ..Evidence::default() }
    }

    /// Creates the evidence of a copy from the counters of both sides, and from samples of them during the copy.
    pub fn of_copy(direction: TestDirection, copy: CopyEvidence, samples: &[ProgressSample]) -> Self {
        let request = TestRequest { direction, ..TestRequest::default() };
        let CopyEnds { sender, receiver } = CopyEnds::of(samples);
        let (near, far) = match direction {
            TestDirection::Forward => (sender, receiver),
            TestDirection::Reverse => (receiver, sender),
        };
        Evidence { request, near, far, copy: Some(copy), ..Evidence::default() }
    }

    /// Creates the evidence of a connection of a capture. The sender of the data is the near end.
    pub fn of_capture(capture: capture::CaptureEvidence) -> Self {
        let hosts = HostNames { near: capture.sender.clone(), far: capture.receiver.clone() };
        Evidence { hosts, capture: Some(Box::new(capture)), ..Evidence::default() }
    }

    /// Creates the evidence of a coupled run.
    pub fn of_couple(couple: couple::CoupleEvidence) -> Self {
        Evidence { couple: Some(Box::new(couple)), ..Evidence::default() }
    }

    /// Returns the trains of a test of datagrams with a ramp of given rates.
    pub fn into_trains(self) -> TrainEvidence {
        let figures = |end: &EndReport| end.streams.iter().find_map(|stream| stream.udp.clone());
        let (sender, receiver) = (figures(self.sender()), figures(self.receiver()));
        let ramp = sender.as_ref().and_then(|udp| udp.ramp.clone());
        TrainEvidence {
            trains: ramp.map(|ramp| ramp.steps).unwrap_or_default(),
            sent: sender.and_then(|udp| udp.sent),
            received: receiver.and_then(|udp| udp.received),
        }
    }

    /// Returns the kind of the load.
    pub fn kind(&self) -> LoadKind {
        if self.couple.is_some() {
            return LoadKind::Couple;
        }
        match (&self.capture, &self.copy, &self.request.udp) {
            (Some(_), _, _) => LoadKind::Capture,
            (None, Some(_), _) => LoadKind::Copy,
            (None, None, Some(_)) => LoadKind::Datagrams,
            (None, None, None) => LoadKind::Tcp,
        }
    }

    /// Returns the end that sends.
    pub fn sending_side(&self) -> Side {
        Side::sender_and_receiver(self.request.direction).0
    }

    /// Returns the end that receives; its count and its clock give the goodput.
    pub fn receiving_side(&self) -> Side {
        Side::sender_and_receiver(self.request.direction).1
    }

    /// Returns the report of one end.
    pub fn end(&self, side: Side) -> &EndReport {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }

    /// Returns the report of the sender.
    pub fn sender(&self) -> &EndReport {
        self.end(self.sending_side())
    }

    /// Returns the report of the receiver.
    pub fn receiver(&self) -> &EndReport {
        self.end(self.receiving_side())
    }

    /// Returns the minimum RTT of the control connection's handshake and of the data; zero if neither is known.
    pub fn base_rtt(&self) -> Duration {
        if let Some(sockets) = self.copy.and_then(|copy| copy.end.sockets) {
            return Duration::try_from_secs_f64(sockets.min_rtt_seconds).unwrap_or_default();
        }
        let streams = self.sender().streams.iter().filter_map(|stream| stream.tcp_info.as_ref()?.min_rtt);
        let handshake = (!self.handshake_rtt.is_zero()).then_some(self.handshake_rtt);
        streams.filter(|rtt| !rtt.is_zero()).chain(handshake).min().unwrap_or_default()
    }

    /// Returns true if the streams used the settings of the plan (`--tuned`).
    pub fn is_tuned(&self) -> bool {
        let mut sockets = [&self.near, &self.far].into_iter().filter_map(|end| end.streams.first()?.socket.as_ref());
        self.request.socket.planned.is_some() || sockets.any(|socket| socket.congestion_planned.is_some())
    }

    /// Returns true if the receiver found wrong bytes in the payload (`--check-data`).
    pub fn has_wrong_bytes(&self) -> bool {
        self.receiver().streams.iter().filter_map(|stream| stream.check).any(|check| check.wrong_bytes > 0)
    }
}

impl LoadKind {
    /// Returns the name that lists and documents use.
    pub fn name(self) -> &'static str {
        match self {
            LoadKind::Tcp => "tcp",
            LoadKind::Datagrams => "datagrams",
            LoadKind::Copy => "copy",
            LoadKind::Capture => "capture",
            LoadKind::Couple => "couple",
        }
    }
}
