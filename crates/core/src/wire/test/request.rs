//! What a client asks of the far end of a test, and the bounds on it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::socket::{LARGEST_WINDOW, SocketWish};
use super::udp::UdpRequest;
use super::work::{Data, Mode, Modes};
use crate::latency::LatencyRequest;
use crate::path::seconds;
use crate::udp::datagram;
use crate::units::{BitRate, Bytes, show_duration};

/// Most data streams of a test.
pub const MOST_STREAMS: u16 = 256;
/// Largest record, the bytes handed to one write.
pub const LARGEST_RECORD: Bytes = Bytes(64 << 20);
/// Most memory the buffers of all streams of an end may take: what one client can make a server keep.
pub const LARGEST_BUFFERS: Bytes = Bytes(256 << 20);
/// Bytes handed to one write if nothing else is asked for: a packet of the kernel, before a card cuts it into segments,
/// holds 60 KiB in whole pages (64 KiB with its headers), and two of them leave no short one over.
///
/// Gb/s and CPU s/GB of both ends on loopback, one stream and four, 2 CPUs, Linux 6.18: 60 KiB 35, 0.33 and 62, 0.25;
/// 120 KiB 38, 0.30 and 67, 0.23; 128 KiB 24, 0.46 and 50, 0.31; 256 KiB 31, 0.36 and 50, 0.32.
pub const DEFAULT_RECORD: Bytes = Bytes(120 << 10);
/// Bytes asked of one read if nothing else is said: large enough that the calls cost nothing, small enough for the
/// second-level cache.
pub const DEFAULT_READ: Bytes = Bytes(128 << 10);
/// Most parts of an interval that are told apart.
pub const MOST_PARTS: u16 = 100;
/// Shortest interval of reports.
pub const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Most samples of a timed test, one of each stream in each interval: what an end may have to keep.
const MOST_SAMPLES: u128 = 1_000_000;
const LEAST_PACE: Duration = Duration::from_millis(5);
const MOST_PACE: Duration = Duration::from_secs(10);

/// What a client asks of the far end of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TestRequest {
    /// Who sends data.
    pub direction: Direction,
    /// Data streams, 1 to [`MOST_STREAMS`].
    pub streams: u16,
    /// When the sender has sent enough.
    pub load: Load,
    /// Bytes handed to one write.
    pub record: Bytes,
    /// Bytes asked of one read.
    #[serde(default = "default_read")]
    pub read: Bytes,
    /// How each end moves payload.
    #[serde(default)]
    pub modes: Modes,
    /// What payload consists of.
    #[serde(default)]
    pub data: Data,
    /// The receiver looks at every byte, and each says at which place of which stream it belongs.
    #[serde(default)]
    pub check: bool,
    /// Both ends keep the time of every record.
    #[serde(default)]
    pub blocks: bool,
    /// Into how many parts each interval is cut, whose bytes are told apart; 0 and 1 for none.
    #[serde(default)]
    pub parts: u16,
    /// Length of the intervals reported.
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// Socket options of the server's end.
    pub socket: SocketWish,
    /// Datagrams instead of TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<Box<UdpRequest>>,
    /// Probes beside the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyRequest>,
}

/// Who sends data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client, who dialled.
    Forward,
    /// The server.
    Reverse,
}

/// When the sender has sent enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// After this time; what is then still under way is not waited for.
    #[serde(with = "seconds")]
    TimeSeconds(Duration),
    /// After this many records, and the test ends when the receiver has them all.
    Records(u64),
    /// After this many bytes of all streams together; otherwise like records, the last of which may be shorter.
    Bytes(Bytes),
}

impl Load {
    /// What is to be sent of a counted load, with records of this length; `None` of a timed one.
    pub fn bytes(&self, record: Bytes) -> Option<u64> {
        match self {
            Load::TimeSeconds(_) => None,
            Load::Records(count) => Some(count.saturating_mul(record.0)),
            Load::Bytes(bytes) => Some(bytes.0),
        }
    }
}

fn default_read() -> Bytes {
    DEFAULT_READ
}

/// A forward test of ten seconds over one stream, nothing asked of the kernel.
impl Default for TestRequest {
    fn default() -> Self {
        TestRequest {
            direction: Direction::Forward,
            streams: 1,
            load: Load::TimeSeconds(Duration::from_secs(10)),
            record: DEFAULT_RECORD,
            read: DEFAULT_READ,
            modes: Modes::default(),
            data: Data::default(),
            check: false,
            blocks: false,
            parts: 0,
            interval: Duration::from_secs(1),
            socket: SocketWish::default(),
            udp: None,
            latency: None,
        }
    }
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
    /// A read of nothing would be the end of the stream.
    #[error("reads of {}: from 1 B to {} are possible", .0, LARGEST_RECORD)]
    Read(Bytes),
    /// Every stream has a buffer of its own.
    #[error("{0} streams with buffers of {1}: at most {LARGEST_BUFFERS} in all are possible")]
    Buffers(u16, Bytes),
    /// What was never copied cannot be looked at.
    #[error("payload cannot be checked where it is not copied")]
    CheckWithoutCopy,
    /// Each part wants a look of its own.
    #[error("intervals in {} parts: at most {MOST_PARTS}, of at least {} each, are possible", .0, show_duration(SHORTEST_INTERVAL))]
    Parts(u16),
    /// Nothing at all, or more than can be counted.
    #[error("a load of {0}: from 1 B to 9 EB are possible")]
    Amount(Bytes),
    /// No records at all, or more bytes than can be counted.
    #[error("{0} records of {1}: at least one and at most 9 EB are possible")]
    Count(u64, Bytes),
    /// A test that takes no time measures nothing.
    #[error("a test of no time measures nothing")]
    Time,
    /// Reports more often than that would be the load.
    #[error("interval of {}: at least {} are needed", show_duration(*.0), show_duration(SHORTEST_INTERVAL))]
    Interval(Duration),
    /// Each is kept until the test is over: streams, time, interval.
    #[error("{0} streams over {time} in intervals of {interval}: at most {MOST_SAMPLES} samples are possible", time = show_duration(*.1), interval = show_duration(*.2))]
    Samples(u16, Duration, Duration),
    /// TCP cannot announce it.
    #[error("receive window of {0}: from 2 KiB to {LARGEST_WINDOW} are possible")]
    Window(Bytes),
    /// A buffer of nothing, or beyond an int.
    #[error("socket buffer of {0}: from 1 B to 1 GiB are possible")]
    Buffer(Bytes),
    /// Below it there is no room for a header's options, beyond it no packet.
    #[error("MSS of {0}: from 88 B to 32767 B are possible")]
    Mss(Bytes),
    /// More values of an option than there can be streams.
    #[error("{0} values of one option: at most {MOST_STREAMS} are possible")]
    Values(usize),
    /// Nothing would ever be sent.
    #[error("a pace of {0}: at least 8 kb/s are needed")]
    Pace(BitRate),
    /// Too short for its head, or longer than IP carries.
    #[error("datagrams of {0} B: from {shortest} to {longest} B are possible", shortest = datagram::LENGTH, longest = datagram::LONGEST)]
    Datagram(u32),
    /// Nothing would ever leave.
    #[error("datagrams at {0}: at least 1 kbit/s is needed")]
    Rate(BitRate),
    /// Steps cannot be told apart on several streams.
    #[error("a ramp over {0} streams: it takes one")]
    RampStreams(u16),
    /// It would end before it began.
    #[error("a ramp from {0} to {1}: from 1 kbit/s upwards is possible")]
    Ramp(BitRate, BitRate),
    /// Too short to see a queue fill, or too long to wait for.
    #[error("ramp steps of {}: from 50 ms to 1 min are possible", show_duration(*.0))]
    Step(Duration),
    /// Probes so often would be the load.
    #[error("a probe every {}: from 5 ms to 10 s are possible", show_duration(*.0))]
    ProbePace(Duration),
    /// The name would not fit the socket option.
    #[error("'{0}' is not the name of a congestion control")]
    Congestion(String),
}

impl RequestError {
    /// What to ask for instead, where that can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            RequestError::Samples(streams, time, _) => {
                let least = (time.as_millis() * u128::from(*streams)).div_ceil(MOST_SAMPLES);
                Some(format!("use --interval {least}ms or more, a shorter --time, or fewer --streams"))
            }
            _ => None,
        }
    }
}

impl TestRequest {
    /// Whether the request can be served at all. The server asks this of every request before it does anything.
    pub fn check(&self) -> Result<(), RequestError> {
        if !(1..=MOST_STREAMS).contains(&self.streams) {
            return Err(RequestError::Streams(self.streams));
        }
        if self.record.0 == 0 || self.record > LARGEST_RECORD {
            return Err(RequestError::Record(self.record));
        }
        if self.read.0 == 0 || self.read > LARGEST_RECORD {
            return Err(RequestError::Read(self.read));
        }
        let buffer = self.record.max(self.read);
        if u64::from(self.streams) * buffer.0 > LARGEST_BUFFERS.0 {
            return Err(RequestError::Buffers(self.streams, buffer));
        }
        if self.check && (self.modes.near, self.modes.far) != (Mode::Copying, Mode::Copying) {
            return Err(RequestError::CheckWithoutCopy);
        }
        match self.load {
            Load::Bytes(bytes) if bytes.0 == 0 || bytes.0 > 1 << 63 => return Err(RequestError::Amount(bytes)),
            Load::TimeSeconds(time) if time.is_zero() => return Err(RequestError::Time),
            Load::Records(count) if count == 0 || count.checked_mul(self.record.0).is_none_or(|b| b > 1 << 63) => {
                return Err(RequestError::Count(count, self.record));
            }
            _ => {}
        }
        if self.interval < SHORTEST_INTERVAL {
            return Err(RequestError::Interval(self.interval));
        }
        match self.load {
            Load::TimeSeconds(time)
                if u128::from(self.streams) * (time.as_nanos() / self.interval.as_nanos()) > MOST_SAMPLES =>
            {
                return Err(RequestError::Samples(self.streams, time, self.interval));
            }
            _ => {}
        }
        if self.parts > MOST_PARTS || (self.parts > 1 && self.interval / self.parts.into() < SHORTEST_INTERVAL) {
            return Err(RequestError::Parts(self.parts));
        }
        if let Some(udp) = &self.udp {
            udp.check(self.streams)?;
        }
        match self.latency {
            Some(latency) if !(LEAST_PACE..=MOST_PACE).contains(&latency.pace) => {
                return Err(RequestError::ProbePace(latency.pace));
            }
            _ => {}
        }
        self.socket.check()
    }
}

impl TestRequest {
    /// How long the sender sends, where that is known beforehand: a ramp takes as long as it takes.
    pub fn time(&self) -> Option<Duration> {
        match self.load {
            Load::TimeSeconds(time) if !self.is_ramp() => Some(time),
            _ => None,
        }
    }

    /// Payload to be sent over all streams together, where that is known beforehand: not of a timed load or a ramp, nor
    /// of a count of datagrams whose length follows the path MTU.
    pub fn payload_bytes(&self) -> Option<u64> {
        let length = self.udp.as_ref().and_then(|udp| udp.datagram_bytes).map(u64::from);
        match (self.load, &self.udp) {
            (load, None) => load.bytes(self.record),
            (Load::TimeSeconds(_), _) => None,
            _ if self.is_ramp() => None,
            (Load::Records(count), Some(_)) => Some(count.saturating_mul(length?)),
            // Datagrams are whole, the last one too.
            (Load::Bytes(bytes), Some(_)) => {
                let length = length.unwrap_or(1).max(1);
                Some(bytes.0.div_ceil(length).saturating_mul(length))
            }
        }
    }

    /// Whether it looks for the rate where loss starts, whatever its load says.
    pub fn is_ramp(&self) -> bool {
        self.udp.as_ref().is_some_and(|udp| udp.ramp.is_some())
    }

    /// Whether the server must listen anew for this test's streams: the window scale it answers a SYN with follows the
    /// receive buffer and the clamp of the listening socket, and Multipath TCP wants a listener of its kind. The client
    /// then dials them only when it knows the port.
    pub fn apart(&self) -> bool {
        self.udp.is_none()
            && (self.socket.mptcp
                || self.socket.rcvbuf.is_some()
                || (self.direction == Direction::Forward && self.socket.window.is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::CongestionWish;

    fn request() -> TestRequest {
        TestRequest::default()
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
    fn payload_is_counted_in_what_is_sent() {
        let with = |load, udp: Option<UdpRequest>| TestRequest { load, udp: udp.map(Box::new), ..request() };
        let of = |bytes| Some(UdpRequest { datagram_bytes: bytes, ..UdpRequest::default() });
        let ramp = Some(UdpRequest { ramp: Some(Default::default()), ..UdpRequest::default() });
        let seconds = Load::TimeSeconds(Duration::from_secs(10));
        assert_eq!(with(Load::Records(3), None).payload_bytes(), Some(3 * (120 << 10)));
        assert_eq!(with(Load::Records(3), of(Some(400))).payload_bytes(), Some(1200));
        assert_eq!(with(Load::Records(3), of(None)).payload_bytes(), None);
        assert_eq!(with(Load::Bytes(Bytes(401)), of(Some(400))).payload_bytes(), Some(800));
        assert_eq!(with(Load::Bytes(Bytes(401)), of(None)).payload_bytes(), Some(401));
        assert_eq!(with(seconds, of(Some(400))).payload_bytes(), None);
        assert_eq!(with(seconds, of(None)).time(), Some(Duration::from_secs(10)));
        assert_eq!((with(seconds, ramp).time(), with(Load::Records(3), ramp).payload_bytes()), (None, None));
    }

    #[test]
    fn what_is_refused_for_its_samples_goes_as_its_hint_says() {
        let time = Load::TimeSeconds(Duration::from_secs(86_400));
        let request = TestRequest { streams: 16, load: time, ..request() };
        let error = request.check().unwrap_err();
        assert!(error.hint().unwrap().starts_with("use --interval 1383ms or more"), "{:?}", error.hint());
        assert_eq!(TestRequest { interval: Duration::from_millis(1383), ..request.clone() }.check(), Ok(()));
        assert_eq!(TestRequest { streams: 11, ..request }.check(), Ok(()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_it_costs_anything() {
        assert_eq!(request().check(), Ok(()));
        let cases: &[fn(&mut TestRequest)] = &[
            |r| r.streams = 0,
            |r| r.streams = 257,
            |r| r.record = Bytes(0),
            |r| r.record = Bytes(u64::MAX),
            |r| r.load = Load::Records(0),
            |r| r.load = Load::Records(u64::MAX),
            |r| r.load = Load::TimeSeconds(Duration::ZERO),
            |r| r.load = Load::Bytes(Bytes(0)),
            |r| r.load = Load::Bytes(Bytes(u64::MAX)),
            |r| r.read = Bytes(0),
            |r| r.read = Bytes(u64::MAX),
            |r| (r.streams, r.record) = (256, Bytes(2 << 20)),
            |r| (r.streams, r.read) = (5, LARGEST_RECORD),
            |r| r.parts = 1000,
            |r| (r.parts, r.interval) = (20, Duration::from_millis(100)),
            |r| (r.check, r.modes.far) = (true, Mode::NoCopy),
            |r| r.socket.mss = Some(Bytes(87)),
            |r| r.socket.pacing = vec![BitRate(0)],
            |r| r.socket.pacing = vec![BitRate(1_000_000); 257],
            |r| r.interval = Duration::from_millis(1),
            |r| {
                (r.streams, r.interval, r.load) =
                    (128, Duration::from_millis(10), Load::TimeSeconds(Duration::from_secs(100)))
            },
            |r| r.socket.window = Some(Bytes(1 << 30)),
            |r| r.socket.window = Some(Bytes(0)),
            |r| r.socket.sndbuf = Some(Bytes(0)),
            |r| r.socket.congestion = vec![CongestionWish::Asked("a name too long for it".into())],
        ];
        for (number, case) in cases.iter().enumerate() {
            let mut request = request();
            case(&mut request);
            assert!(request.check().is_err(), "case {number}");
        }
    }
}
