//! The client's request for a test, and its limits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::socket::{MAX_WINDOW, SocketRequest};
use super::udp::UdpRequest;
use super::work::{Mode, Modes, PayloadData};
use crate::latency::LatencyRequest;
use crate::path::seconds;
use crate::udp::datagram;
use crate::units::{BitRate, Bytes, show_duration};
use crate::wire::{Refusal, RefusalCode};

/// Maximum data streams of a test.
pub const MAX_STREAMS: u16 = 256;
/// Maximum record size: the bytes of one write call.
pub const MAX_RECORD: Bytes = Bytes(64 << 20);
/// Maximum memory of the buffers of all streams at one end, which one client can make a server allocate.
pub const MAX_BUFFERS: Bytes = Bytes(256 << 20);
/// Default record size. A kernel packet, before the network card splits it into segments, holds 60 KiB in whole pages
/// (64 KiB with its headers). Two such packets leave no short remainder.
///
/// Gb/s and CPU s/GB of both ends on loopback, one stream and four, 2 CPUs, Linux 6.18: 60 KiB 35, 0.33 and 62, 0.25;
/// 120 KiB 38, 0.30 and 67, 0.23; 128 KiB 24, 0.46 and 50, 0.31; 256 KiB 31, 0.36 and 50, 0.32.
pub const DEFAULT_RECORD: Bytes = Bytes(120 << 10);
/// Default size of one read call: large enough that system calls cost little, small enough for the second-level cache.
pub const DEFAULT_READ: Bytes = Bytes(128 << 10);
/// Maximum parts of an interval.
pub const MAX_PARTS: u16 = 100;
/// Minimum interval of reports.
pub const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum samples of a timed test, one per stream and interval: an end may have to store them.
const MAX_SAMPLES: u128 = 1_000_000;
const MIN_PROBE_INTERVAL: Duration = Duration::from_millis(5);
const MAX_PROBE_INTERVAL: Duration = Duration::from_secs(10);

/// The client's request for a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TestRequest {
    /// End that sends data.
    pub direction: TestDirection,
    /// Data streams, 1 to [`MAX_STREAMS`].
    pub streams: u16,
    /// Amount of data or time after which the sender stops.
    pub load: TestLoad,
    /// Bytes of one write call.
    #[serde(rename = "record_bytes")]
    pub record: Bytes,
    /// Bytes requested by one read call.
    #[serde(default = "default_read", rename = "read_bytes")]
    pub read: Bytes,
    /// Method that each end uses to move the payload.
    #[serde(default)]
    pub modes: Modes,
    /// Content of the payload.
    #[serde(default)]
    pub data: PayloadData,
    /// The receiver checks every byte. Each byte identifies its stream and position.
    #[serde(default)]
    pub check: bool,
    /// Both ends record the time of every record.
    #[serde(default)]
    pub blocks: bool,
    /// Parts into which each interval is divided, each with its own byte count; 0 and 1 for none.
    #[serde(default)]
    pub slices_per_interval: u16,
    /// Length of the reported intervals.
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// Socket options of the server's end.
    pub socket: SocketRequest,
    /// UDP datagrams instead of TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<Box<UdpRequest>>,
    /// Latency probes during the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyRequest>,
}

/// End that sends data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TestDirection {
    /// The client sends data.
    Forward,
    /// The server sends data.
    Reverse,
}

/// Amount of data or time after which the sender stops.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TestLoad {
    /// Stop after this time. Data that is still in flight is not waited for.
    #[serde(with = "seconds")]
    TimeSeconds(Duration),
    /// Stop after this many records. The test ends when the receiver has all of them.
    Records(u64),
    /// Stop after this many bytes of all streams together. Otherwise as with records; the last record may be shorter.
    Bytes(Bytes),
}

impl TestLoad {
    /// Returns the bytes of a counted load with records of this length, or `None` for a timed load.
    pub fn bytes(&self, record: Bytes) -> Option<u64> {
        match self {
            TestLoad::TimeSeconds(_) => None,
            TestLoad::Records(count) => Some(count.saturating_mul(record.0)),
            TestLoad::Bytes(bytes) => Some(bytes.0),
        }
    }
}

fn default_read() -> Bytes {
    DEFAULT_READ
}

/// A forward test of ten seconds over one stream with default socket options.
impl Default for TestRequest {
    fn default() -> Self {
        TestRequest {
            direction: TestDirection::Forward,
            streams: 1,
            load: TestLoad::TimeSeconds(Duration::from_secs(10)),
            record: DEFAULT_RECORD,
            read: DEFAULT_READ,
            modes: Modes::default(),
            data: PayloadData::default(),
            check: false,
            blocks: false,
            slices_per_interval: 0,
            interval: Duration::from_secs(1),
            socket: SocketRequest::default(),
            udp: None,
            latency: None,
        }
    }
}

/// Reason why a test request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Zero, or more than the server's maximum of threads.
    #[error("{0} streams requested: 1 to {MAX_STREAMS} are allowed")]
    Streams(u16),
    /// An empty record would never end, and a large record needs memory.
    #[error("record size of {}: 1 B to {} are allowed", .0, MAX_RECORD)]
    Record(Bytes),
    /// A read of zero bytes means the end of the stream.
    #[error("read size of {}: 1 B to {} are allowed", .0, MAX_RECORD)]
    Read(Bytes),
    /// Each stream has its own buffer.
    #[error("{0} streams with buffers of {1}: at most {MAX_BUFFERS} in total are allowed")]
    Buffers(u16, Bytes),
    /// The content of payload that is not copied cannot be checked.
    #[error("cannot check the payload in no-copy mode")]
    CheckWithoutCopy,
    /// Each part needs its own measurement.
    #[error("intervals in {} parts: at most {MAX_PARTS} parts of at least {} each are allowed", .0, show_duration(MIN_INTERVAL))]
    Parts(u16),
    /// Zero, or more than can be counted.
    #[error("load of {0}: 1 B to 9 EB are allowed")]
    Amount(Bytes),
    /// No records, or more bytes than can be counted.
    #[error("{0} records of {1}: at least one record and at most 9 EB are allowed")]
    Count(u64, Bytes),
    #[error("test duration of 0: use a longer time")]
    Time,
    /// More frequent reports would themselves be the load.
    #[error("interval of {}: at least {} is required", show_duration(*.0), show_duration(MIN_INTERVAL))]
    Interval(Duration),
    /// Each sample is stored until the end of the test: streams, time, interval.
    #[error("{0} streams over {time} in intervals of {interval}: at most {MAX_SAMPLES} samples are allowed", time = show_duration(*.1), interval = show_duration(*.2))]
    Samples(u16, Duration, Duration),
    /// TCP cannot announce this window.
    #[error("receive window of {0}: 2 KiB to {MAX_WINDOW} are allowed")]
    Window(Bytes),
    /// Zero, or larger than an int.
    #[error("socket buffer of {0}: 1 B to 1 GiB are allowed")]
    Buffer(Bytes),
    /// A smaller MSS has no room for header options; a larger one is no valid packet.
    #[error("MSS of {0}: 88 B to 32767 B are allowed")]
    Mss(Bytes),
    /// More values of one option than the maximum of streams.
    #[error("{0} values of one option: at most {MAX_STREAMS} are allowed")]
    Values(usize),
    /// Too low to send anything.
    #[error("pacing rate of {0} is too low: minimum 8 kb/s")]
    Pace(BitRate),
    /// Smaller than the lfn header, or larger than an IP packet.
    #[error("datagrams of {0} B: {shortest} to {longest} B are allowed", shortest = datagram::HEADER_LENGTH, longest = datagram::MAX_LENGTH)]
    Datagram(u32),
    /// Too low to send anything.
    #[error("datagram rate of {0} is too low: minimum 1 kb/s")]
    Rate(BitRate),
    /// Steps on several streams cannot be separated.
    #[error("a ramp over {0} streams: a ramp uses exactly one stream")]
    RampStreams(u16),
    /// The ramp would end before its start.
    #[error("ramp from {0} to {1}: the minimum start is 1 kb/s, and the end must not be lower")]
    Ramp(BitRate, BitRate),
    /// Too short to see a queue fill, or too long to wait.
    #[error("ramp steps of {}: 50 ms to 1 min are allowed", show_duration(*.0))]
    Step(Duration),
    /// More frequent probes would themselves be the load.
    #[error("probe interval of {}: 5 ms to 10 s are allowed", show_duration(*.0))]
    ProbePace(Duration),
    /// Does not fit the socket option.
    #[error("'{0}' is not the name of a congestion control")]
    Congestion(String),
}

impl RequestError {
    /// Returns a hint for the user, if one exists.
    pub fn hint(&self) -> Option<String> {
        match self {
            RequestError::Samples(streams, time, _) => {
                let least = (time.as_millis() * u128::from(*streams)).div_ceil(MAX_SAMPLES);
                Some(format!("use --interval {least}ms or more, a shorter --time, or fewer --streams"))
            }
            _ => None,
        }
    }
}

/// Converts an invalid request to the refusal that the client receives.
impl From<&RequestError> for Refusal {
    fn from(error: &RequestError) -> Refusal {
        Refusal::new(RefusalCode::BadMessage, error.to_string())
            .hint(error.hint().unwrap_or_else(|| "see lfn test --help".into()))
    }
}

impl TestRequest {
    /// Checks that the request can be served. The server checks every request before it acts on it.
    pub fn check(&self) -> Result<(), RequestError> {
        if !(1..=MAX_STREAMS).contains(&self.streams) {
            return Err(RequestError::Streams(self.streams));
        }
        if self.record.0 == 0 || self.record > MAX_RECORD {
            return Err(RequestError::Record(self.record));
        }
        if self.read.0 == 0 || self.read > MAX_RECORD {
            return Err(RequestError::Read(self.read));
        }
        let buffer = self.record.max(self.read);
        if u64::from(self.streams) * buffer.0 > MAX_BUFFERS.0 {
            return Err(RequestError::Buffers(self.streams, buffer));
        }
        if self.check && (self.modes.near, self.modes.far) != (Mode::Copying, Mode::Copying) {
            return Err(RequestError::CheckWithoutCopy);
        }
        match self.load {
            TestLoad::Bytes(bytes) if bytes.0 == 0 || bytes.0 > 1 << 63 => return Err(RequestError::Amount(bytes)),
            TestLoad::TimeSeconds(time) if time.is_zero() => return Err(RequestError::Time),
            TestLoad::Records(count) if count == 0 || count.checked_mul(self.record.0).is_none_or(|b| b > 1 << 63) => {
                return Err(RequestError::Count(count, self.record));
            }
            _ => {}
        }
        if self.interval < MIN_INTERVAL {
            return Err(RequestError::Interval(self.interval));
        }
        match self.load {
            TestLoad::TimeSeconds(time)
                if u128::from(self.streams) * (time.as_nanos() / self.interval.as_nanos()) > MAX_SAMPLES =>
            {
                return Err(RequestError::Samples(self.streams, time, self.interval));
            }
            _ => {}
        }
        if self.slices_per_interval > MAX_PARTS
            || (self.slices_per_interval > 1 && self.interval / self.slices_per_interval.into() < MIN_INTERVAL)
        {
            return Err(RequestError::Parts(self.slices_per_interval));
        }
        if let Some(udp) = &self.udp {
            udp.check(self.streams)?;
        }
        match self.latency {
            Some(latency) if !(MIN_PROBE_INTERVAL..=MAX_PROBE_INTERVAL).contains(&latency.pace) => {
                return Err(RequestError::ProbePace(latency.pace));
            }
            _ => {}
        }
        self.socket.check()
    }
}

impl TestRequest {
    /// Returns the sending time, if known beforehand. The duration of a ramp is unknown.
    pub fn time(&self) -> Option<Duration> {
        match self.load {
            TestLoad::TimeSeconds(time) if !self.is_ramp() => Some(time),
            _ => None,
        }
    }

    /// Returns the payload of all streams together, if known beforehand. Unknown for a timed load, for a ramp, and for
    /// a count of datagrams if their length follows the path MTU.
    pub fn payload_bytes(&self) -> Option<u64> {
        let length = self.udp.as_ref().and_then(|udp| udp.datagram_bytes).map(u64::from);
        match (self.load, &self.udp) {
            (load, None) => load.bytes(self.record),
            (TestLoad::TimeSeconds(_), _) => None,
            _ if self.is_ramp() => None,
            (TestLoad::Records(count), Some(_)) => Some(count.saturating_mul(length?)),
            // Datagrams are never split, not even the last one.
            (TestLoad::Bytes(bytes), Some(_)) => {
                let length = length.unwrap_or(1).max(1);
                Some(bytes.0.div_ceil(length).saturating_mul(length))
            }
        }
    }

    /// Reports whether the test is a ramp that searches the rate at which loss starts.
    pub fn is_ramp(&self) -> bool {
        self.udp.as_ref().is_some_and(|udp| udp.ramp.is_some())
    }

    /// Reports whether the server needs a separate listener for this test's streams. The window scale in the answer to
    /// a SYN follows the receive buffer and the clamp of the listening socket, and Multipath TCP needs its own kind of
    /// listener. The client then waits for the port before it dials.
    pub fn needs_own_listener(&self) -> bool {
        self.udp.is_none()
            && (self.socket.mptcp
                || self.socket.rcvbuf.is_some()
                || (self.direction == TestDirection::Forward && self.socket.window.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::CongestionRequest;

    fn request() -> TestRequest {
        TestRequest::default()
    }

    #[test]
    fn request_round_trips_through_json() {
        let mut request = request();
        request.load = TestLoad::Records(100);
        request.socket.window = Some(Bytes(4_547_813));
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<TestRequest>(&text).unwrap(), request, "{text}");
    }

    #[test]
    fn payload_bytes_match_the_load() {
        let with = |load, udp: Option<UdpRequest>| TestRequest { load, udp: udp.map(Box::new), ..request() };
        let of = |bytes| Some(UdpRequest { datagram_bytes: bytes, ..UdpRequest::default() });
        let ramp = Some(UdpRequest { ramp: Some(Default::default()), ..UdpRequest::default() });
        let seconds = TestLoad::TimeSeconds(Duration::from_secs(10));
        assert_eq!(with(TestLoad::Records(3), None).payload_bytes(), Some(3 * (120 << 10)));
        assert_eq!(with(TestLoad::Records(3), of(Some(400))).payload_bytes(), Some(1200));
        assert_eq!(with(TestLoad::Records(3), of(None)).payload_bytes(), None);
        assert_eq!(with(TestLoad::Bytes(Bytes(401)), of(Some(400))).payload_bytes(), Some(800));
        assert_eq!(with(TestLoad::Bytes(Bytes(401)), of(None)).payload_bytes(), Some(401));
        assert_eq!(with(seconds, of(Some(400))).payload_bytes(), None);
        assert_eq!(with(seconds, of(None)).time(), Some(Duration::from_secs(10)));
        assert_eq!((with(seconds, ramp).time(), with(TestLoad::Records(3), ramp).payload_bytes()), (None, None));
    }

    #[test]
    fn hint_for_too_many_samples_works() {
        let time = TestLoad::TimeSeconds(Duration::from_secs(86_400));
        let request = TestRequest { streams: 16, load: time, ..request() };
        let error = request.check().unwrap_err();
        assert!(error.hint().unwrap().starts_with("use --interval 1383ms or more"), "{:?}", error.hint());
        assert_eq!(TestRequest { interval: Duration::from_millis(1383), ..request.clone() }.check(), Ok(()));
        assert_eq!(TestRequest { streams: 11, ..request }.check(), Ok(()));
    }

    #[test]
    fn invalid_requests_are_rejected() {
        assert_eq!(request().check(), Ok(()));
        let cases: &[fn(&mut TestRequest)] = &[
            |r| r.streams = 0,
            |r| r.streams = 257,
            |r| r.record = Bytes(0),
            |r| r.record = Bytes(u64::MAX),
            |r| r.load = TestLoad::Records(0),
            |r| r.load = TestLoad::Records(u64::MAX),
            |r| r.load = TestLoad::TimeSeconds(Duration::ZERO),
            |r| r.load = TestLoad::Bytes(Bytes(0)),
            |r| r.load = TestLoad::Bytes(Bytes(u64::MAX)),
            |r| r.read = Bytes(0),
            |r| r.read = Bytes(u64::MAX),
            |r| (r.streams, r.record) = (256, Bytes(2 << 20)),
            |r| (r.streams, r.read) = (5, MAX_RECORD),
            |r| r.slices_per_interval = 1000,
            |r| (r.slices_per_interval, r.interval) = (20, Duration::from_millis(100)),
            |r| (r.check, r.modes.far) = (true, Mode::NoCopy),
            |r| r.socket.mss = Some(Bytes(87)),
            |r| r.socket.pacing = vec![BitRate(0)],
            |r| r.socket.pacing = vec![BitRate(1_000_000); 257],
            |r| r.interval = Duration::from_millis(1),
            |r| {
                (r.streams, r.interval, r.load) =
                    (128, Duration::from_millis(10), TestLoad::TimeSeconds(Duration::from_secs(100)))
            },
            |r| r.socket.window = Some(Bytes(1 << 30)),
            |r| r.socket.window = Some(Bytes(0)),
            |r| r.socket.sndbuf = Some(Bytes(0)),
            |r| r.socket.congestion = vec![CongestionRequest::Requested("a name too long for it".into())],
        ];
        for (number, case) in cases.iter().enumerate() {
            let mut request = request();
            case(&mut request);
            assert!(request.check().is_err(), "case {number}");
        }
    }
}
