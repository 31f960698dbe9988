//! The client's request for a test, and its limits.

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

use super::error::RequestError;
use super::limits::{
    DEFAULT_READ, DEFAULT_RECORD, MAX_BUFFERS, MAX_PARTS, MAX_PROBE_INTERVAL, MAX_RECORD, MAX_SAMPLES, MAX_STREAMS,
    MIN_INTERVAL, MIN_PROBE_INTERVAL,
};
use super::socket::SocketRequest;
use super::udp::UdpRequest;
use super::work::{Mode, Modes, PayloadData};
use crate::latency::LatencyRequest;

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
    /// Each stream sends one record, and waits until the receiver has all of it and answers. Then it sends the next one.
    #[serde(default)]
    pub lockstep: bool,
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
            lockstep: false,
            slices_per_interval: 0,
            interval: Duration::from_secs(1),
            socket: SocketRequest::default(),
            udp: None,
            latency: None,
        }
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
            || (self.slices_per_interval > 1 && self.interval / u32::from(self.slices_per_interval) < MIN_INTERVAL)
        {
            return Err(RequestError::Parts(self.slices_per_interval));
        }
        if let Some(udp) = &self.udp {
            if self.lockstep {
                return Err(RequestError::LockstepDatagrams);
            }
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
    use lfn_base::congestion_request::CongestionRequest;
    use lfn_base::units::BitRate;

    use super::*;

    fn request() -> TestRequest {
        TestRequest::default()
    }

    #[test]
    fn request_round_trips_through_json() {
        let mut request = request();
        request.load = TestLoad::Records(100);
        request.socket.window = Some(Bytes(4_547_813));
        request.lockstep = true;
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<TestRequest>(&text).unwrap(), request, "{text}");
        // A request of an earlier version asks for no lock-step.
        let earlier = text.replace(r#""lockstep":true,"#, "");
        assert_eq!(serde_json::from_str::<TestRequest>(&earlier).unwrap(), TestRequest { lockstep: false, ..request });
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
        assert_eq!(
            (with(seconds, ramp.clone()).time(), with(TestLoad::Records(3), ramp).payload_bytes()),
            (None, None)
        );
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
            |r| (r.lockstep, r.udp) = (true, Some(Box::default())),
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
