//! Messages of a test session, and the figures both ends of a test report.
//!
//! One session is one direction. The client's request says all there is to say, so that data may flow before any
//! answer; the server answers with [`Ready`], tells its intervals while the test runs and its [`EndReport`] at the end.
//! What a client can ask is bounded by [`TestRequest::check`] before anything is done for it. The types of figures are
//! also what `--json` prints, so their names carry units.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::seconds;
use crate::tcp_info::TcpInfo;
use crate::units::{Bytes, show_duration};
use crate::wire::CongestionWish;

/// Most data streams of a test.
pub const MOST_STREAMS: u16 = 256;
/// Largest record, the bytes handed to one write.
pub const LARGEST_RECORD: Bytes = Bytes(64 << 20);
/// Shortest interval of reports.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Largest receive window TCP can announce: 65535 << 14 (RFC 7323 §2.3).
pub const LARGEST_WINDOW: Bytes = Bytes(65_535 << 14);

/// What a client asks of the far end of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestRequest {
    /// Who sends data.
    pub direction: Direction,
    /// Data streams, 1 to [`MOST_STREAMS`].
    pub streams: u16,
    /// When the sender has sent enough.
    pub load: Load,
    /// Bytes handed to one write.
    pub record: Bytes,
    /// Length of the intervals reported.
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// Socket options of the server's end.
    pub socket: SocketWish,
}

/// Who sends data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client, who dialled.
    Forward,
    /// The server.
    Reverse,
}

/// When the sender has sent enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// After this time; what is then still under way is not waited for.
    #[serde(with = "seconds")]
    TimeSeconds(Duration),
    /// After this many records, and the test ends when the receiver has them all.
    Records(u64),
}

/// Socket options asked for at one end; `None` leaves the kernel's own choice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketWish {
    /// Send buffer (`SO_SNDBUF`).
    #[serde(default, rename = "sndbuf_bytes", skip_serializing_if = "Option::is_none")]
    pub sndbuf: Option<Bytes>,
    /// Receive buffer (`SO_RCVBUF`).
    #[serde(default, rename = "rcvbuf_bytes", skip_serializing_if = "Option::is_none")]
    pub rcvbuf: Option<Bytes>,
    /// Receive window to hold exactly.
    #[serde(default, rename = "window_bytes", skip_serializing_if = "Option::is_none")]
    pub window: Option<Bytes>,
    /// Congestion control of the sending end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionWish>,
    /// What the plan asks of each stream: buffers are set explicitly only where autotuning would stop short of it.
    #[serde(default, rename = "planned_bytes", skip_serializing_if = "Option::is_none")]
    pub planned: Option<Bytes>,
    /// The most each stream may have in flight before the bottleneck's queue is half full, where the path is known that
    /// well: autotuning, which would fill the queue and then lose, is bounded by it. An exact window is not promised.
    #[serde(default, rename = "planned_most_bytes", skip_serializing_if = "Option::is_none")]
    pub planned_most: Option<Bytes>,
}

/// What the server tells its client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ServerMessage {
    /// The request was taken.
    Ready(Box<Ready>),
    /// One interval is over.
    Interval(Interval),
    /// The server's end is done.
    Report(Box<EndReport>),
}

/// What the client tells the server after its request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ClientMessage {
    /// Everything was received: the sender may take its last figures.
    Received,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Where to dial the data streams, if not the server's own port: options had to be set before they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What the far kernel allows.
    pub kernel: Kernel,
}

/// A host's kernel and its limits on buffers (sysctls of its network namespace); zero where they cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// What the host calls itself.
    pub host: String,
    /// Kernel release.
    pub release: String,
    /// `net.core.rmem_max`: cap of `SO_RCVBUF`.
    pub rmem_max_bytes: u64,
    /// `net.core.wmem_max`: cap of `SO_SNDBUF`.
    pub wmem_max_bytes: u64,
    /// `net.ipv4.tcp_rmem`: least, first and largest receive buffer of autotuning.
    pub tcp_rmem_bytes: [u64; 3],
    /// `net.ipv4.tcp_wmem`: least, first and largest send buffer of autotuning.
    pub tcp_wmem_bytes: [u64; 3],
    /// `net.ipv4.tcp_moderate_rcvbuf`: receive buffers are autotuned.
    pub moderate_rcvbuf: bool,
    /// `net.ipv4.tcp_window_scaling`.
    pub window_scaling: bool,
}

/// One slice of a test as one end saw it. Times count from the end's own start: its first payload byte.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it began.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// When it ended.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Payload bytes of all streams: written by a sender, read by a receiver.
    pub bytes: u64,
    /// Each stream at the end of the interval.
    pub streams: Vec<StreamSample>,
}

/// One stream at the end of an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamSample {
    /// Its number, from 0.
    pub stream: u16,
    /// Payload bytes in the interval.
    pub bytes: u64,
    /// Bytes received that the application had not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread_bytes: Option<u64>,
    /// What the kernel says.
    pub tcp_info: TcpInfo,
}

/// What one end has to say when the test is over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EndReport {
    /// From the first payload byte to the last counted one.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub elapsed: Duration,
    /// Payload bytes written or read in that time.
    pub bytes: u64,
    /// Processor time of the threads that moved the data.
    pub cpu: Cpu,
    /// This end's kernel.
    pub kernel: Kernel,
    /// Each stream.
    pub streams: Vec<StreamReport>,
    /// The intervals; empty on the wire, where they were told one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// In user mode.
    #[serde(rename = "user_seconds", with = "seconds")]
    pub user: Duration,
    /// In the kernel.
    #[serde(rename = "system_seconds", with = "seconds")]
    pub system: Duration,
}

/// One stream of one end when the test is over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Its number, from 0.
    pub stream: u16,
    /// Payload bytes written or read.
    pub bytes: u64,
    /// Socket options, asked and granted.
    pub socket: SocketReport,
    /// What the kernel says at the end.
    pub tcp_info: TcpInfo,
}

/// Socket options of one stream. A granted buffer is half of what `getsockopt` says, because Linux doubles what it is
/// asked for; under autotuning (nothing asked) it is what the kernel had come to at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketReport {
    /// Send buffer asked for.
    pub sndbuf_asked_bytes: Option<Bytes>,
    /// Send buffer granted.
    pub sndbuf_granted_bytes: Bytes,
    /// Receive buffer asked for.
    pub rcvbuf_asked_bytes: Option<Bytes>,
    /// Receive buffer granted.
    pub rcvbuf_granted_bytes: Bytes,
    /// Receive window asked for, to be held exactly.
    pub window_asked_bytes: Option<Bytes>,
    /// Bound of the receive window that was set again and again: what was asked for, or the plan's.
    pub window_bound_bytes: Option<Bytes>,
    /// Congestion control asked for.
    pub congestion_asked: Option<String>,
    /// Congestion control the plan prefers, where none was asked for.
    #[serde(default)]
    pub congestion_planned: Option<String>,
    /// Congestion control in use after the connect, where a route's `congctl` may have overridden what was asked.
    pub congestion: String,
}

/// A request that cannot be served, whoever sends it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// None, or more than a server keeps threads for.
    #[error("{0} streams: from 1 to {MOST_STREAMS} are possible")]
    Streams(u16),
    /// A record of nothing would never end; a huge one is memory.
    #[error("record of {}: from 1 B to {} are possible", .0, LARGEST_RECORD)]
    Record(Bytes),
    /// No records at all, or more bytes than can be counted.
    #[error("{0} records of {1}: at least one and at most 9 EB are possible")]
    Count(u64, Bytes),
    /// A test that takes no time measures nothing.
    #[error("a test of no time measures nothing")]
    Time,
    /// Reports more often than that would be the load.
    #[error("interval of {}: at least {} are needed", show_duration(*.0), show_duration(SHORTEST_INTERVAL))]
    Interval(Duration),
    /// TCP cannot announce it.
    #[error("receive window of {0}: from 2 KiB to {LARGEST_WINDOW} are possible")]
    Window(Bytes),
    /// A buffer of nothing, or beyond an int.
    #[error("socket buffer of {0}: from 1 B to 1 GiB are possible")]
    Buffer(Bytes),
    /// The name would not fit the socket option.
    #[error("'{0}' is not the name of a congestion control")]
    Congestion(String),
}

/// The kernel raises smaller clamps to half its smallest receive buffer (`SOCK_MIN_RCVBUF`).
const SMALLEST_WINDOW: u64 = 2048;

impl TestRequest {
    /// Whether the request can be served at all. The server asks this of every request before it does anything.
    pub fn check(&self) -> Result<(), RequestError> {
        if !(1..=MOST_STREAMS).contains(&self.streams) {
            return Err(RequestError::Streams(self.streams));
        }
        if self.record.0 == 0 || self.record > LARGEST_RECORD {
            return Err(RequestError::Record(self.record));
        }
        match self.load {
            Load::TimeSeconds(time) if time.is_zero() => return Err(RequestError::Time),
            Load::Records(count) if count == 0 || count.checked_mul(self.record.0).is_none_or(|b| b > 1 << 63) => {
                return Err(RequestError::Count(count, self.record));
            }
            _ => {}
        }
        if self.interval < SHORTEST_INTERVAL {
            return Err(RequestError::Interval(self.interval));
        }
        self.socket.check()
    }
}

impl TestRequest {
    /// Whether the server must listen anew for this test's streams: the window scale it answers a SYN with follows the
    /// receive buffer and the clamp of the listening socket. The client then dials them only when it knows the port.
    pub fn apart(&self) -> bool {
        self.socket.rcvbuf.is_some() || (self.direction == Direction::Forward && self.socket.window.is_some())
    }
}

impl SocketWish {
    /// Whether these options have a meaning.
    pub fn check(&self) -> Result<(), RequestError> {
        for buffer in [self.sndbuf, self.rcvbuf].into_iter().flatten() {
            if buffer.0 == 0 || buffer.0 > 1 << 30 {
                return Err(RequestError::Buffer(buffer));
            }
        }
        if let Some(window) = self.window.filter(|window| window.0 < SMALLEST_WINDOW || *window > LARGEST_WINDOW) {
            return Err(RequestError::Window(window));
        }
        match self.congestion.as_ref().map(CongestionWish::name) {
            // TCP_CA_NAME_MAX is 16 with the closing zero.
            Some(name) if name.is_empty() || name.len() > 15 || !name.chars().all(|c| c.is_ascii_graphic()) => {
                Err(RequestError::Congestion(name.to_owned()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> TestRequest {
        TestRequest {
            direction: Direction::Forward,
            streams: 1,
            load: Load::TimeSeconds(Duration::from_secs(10)),
            record: Bytes(131_072),
            interval: Duration::from_secs(1),
            socket: SocketWish::default(),
        }
    }

    #[test]
    fn a_request_survives_the_wire() {
        let mut request = request();
        request.load = Load::Records(100);
        request.socket.window = Some(Bytes(4_547_813));
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<TestRequest>(&text).unwrap(), request, "{text}");
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_it_costs_anything() {
        assert_eq!(request().check(), Ok(()));
        let cases: [fn(&mut TestRequest); 12] = [
            |r| r.streams = 0,
            |r| r.streams = 257,
            |r| r.record = Bytes(0),
            |r| r.record = Bytes(u64::MAX),
            |r| r.load = Load::Records(0),
            |r| r.load = Load::Records(u64::MAX),
            |r| r.load = Load::TimeSeconds(Duration::ZERO),
            |r| r.interval = Duration::from_millis(1),
            |r| r.socket.window = Some(Bytes(1 << 30)),
            |r| r.socket.window = Some(Bytes(0)),
            |r| r.socket.sndbuf = Some(Bytes(0)),
            |r| r.socket.congestion = Some(CongestionWish::Asked("a name too long for it".into())),
        ];
        for (number, case) in cases.iter().enumerate() {
            let mut request = request();
            case(&mut request);
            assert!(request.check().is_err(), "case {number}");
        }
    }
}
