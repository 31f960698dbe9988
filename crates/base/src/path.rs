//! The figures of the path between two hosts.
//!
//! Every prediction, emulation and comparison of `lfn` starts from a [`PathProfile`]. The plan derives buffers from it,
//! the emulator builds its link from it, and a test compares its results with it. The profile has figures only: no
//! addresses and no way to measure. It is sent as JSON in reports and in the environment variable `LFN_PATH`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::framing::Framing;
use crate::queue_limit::{QueueLimit, parse_packets};
use crate::units::{BitRate, Bytes, QuantityError, Ratio, duration_argument, parse_duration};

/// The figures of a path: capacity, base RTT, MTU, framing, queue and loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PathProfile {
    /// Capacity of the bottleneck, counted at `framing.layer`.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: BitRate,
    /// Minimum round-trip time, without queueing.
    #[serde(rename = "rtt_seconds", with = "seconds")]
    pub base_rtt: Duration,
    /// IP MTU of the narrowest link, bytes.
    #[serde(rename = "mtu_bytes", default = "ethernet_mtu")]
    pub mtu: u32,
    /// Headers around each payload, and the layer at which `capacity` is counted.
    #[serde(default)]
    pub framing: Framing,
    /// Size of the bottleneck's queue, if known.
    #[serde(rename = "queue_bytes", default)]
    pub queue: Option<Bytes>,
    /// Share of packets lost at random, independent of the load.
    #[serde(default)]
    pub loss: Ratio,
}

impl PathProfile {
    /// Creates a path with lfn's defaults: MTU 1500, capacity counted with the Ethernet header, no loss, unknown queue.
    pub fn new(capacity: BitRate, base_rtt: Duration) -> Self {
        PathProfile {
            capacity,
            base_rtt,
            mtu: ethernet_mtu(),
            framing: Framing::default(),
            queue: None,
            loss: Ratio::default(),
        }
    }

    /// Returns capacity × base RTT: the bytes in flight that fill the path.
    pub fn bdp(&self) -> Bytes {
        self.capacity.times(self.base_rtt)
    }

    /// Returns the payload bytes of a full segment (1448 at MTU 1500, IPv4, timestamps); 0 if the headers fill the MTU.
    pub fn mss(&self) -> u32 {
        self.framing.payload(self.mtu)
    }

    /// Returns the maximum TCP goodput of the capacity: every packet is full, nothing is lost, and acknowledgements do
    /// not use this direction.
    pub fn payload_capacity(&self) -> BitRate {
        let wire = self.framing.wire_bytes_full(self.mtu).max(1);
        let rate = u128::from(self.capacity.0) * u128::from(self.mss()) / u128::from(wire);
        BitRate(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// Size of a queue in the unit that the user typed: bandwidth-delay products, bytes, packets, or time at the line rate.
///
/// Products and times use the capacity of the path. Where the rate of the link varies, this is its nominal rate: the
/// bytes stay fixed and the time varies, as in a device with a fixed memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueSize {
    /// `1bdp`, `0.5bdp` or `bdp`.
    Bdp(f64),
    Bytes(Bytes),
    Packets(u32),
    Time(Duration),
}

impl QueueSize {
    /// Returns the size in bytes on this path; saturates. A packet counts as a full packet.
    pub fn bytes_on(self, path: &PathProfile) -> Bytes {
        self.limit(path).max_bytes(Bytes(path.framing.wire_bytes_full(path.mtu)))
    }

    /// Returns the limit of a queue of this size on this path; saturates.
    pub fn limit(self, path: &PathProfile) -> QueueLimit {
        match self {
            QueueSize::Bdp(times) => QueueLimit::Bytes(Bytes((path.bdp().0 as f64 * times).round() as u64)),
            QueueSize::Bytes(bytes) => QueueLimit::Bytes(bytes),
            QueueSize::Packets(packets) => QueueLimit::Packets(packets),
            QueueSize::Time(time) => QueueLimit::Bytes(path.capacity.times(time)),
        }
    }
}

impl fmt::Display for QueueSize {
    /// Writes the form that [`from_str`](Self::from_str) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            QueueSize::Bdp(times) => f.pad(&format!("{times}bdp")),
            QueueSize::Bytes(bytes) => f.pad(&bytes.to_argument()),
            QueueSize::Packets(packets) => f.pad(&QueueLimit::Packets(packets).to_argument()),
            QueueSize::Time(time) => f.pad(&duration_argument(time)),
        }
    }
}

impl FromStr for QueueSize {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let lower = text.trim().to_ascii_lowercase();
        if let Some(number) = lower.strip_suffix("bdp") {
            return parse_multiple(text, number.trim()).map(QueueSize::Bdp);
        }
        if let Some(packets) = parse_packets(text) {
            return packets.map(QueueSize::Packets);
        }
        // A time needs a unit: a bare number is bytes, as for every buffer.
        let unit = lower.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c)).trim();
        if ["ns", "us", "µs", "ms", "s", "sec", "min"].contains(&unit) {
            return parse_duration(text).map(QueueSize::Time);
        }
        text.parse().map(QueueSize::Bytes)
    }
}

/// Parses the number before `bdp`; an empty text is 1.
fn parse_multiple(text: &str, number: &str) -> Result<f64, QuantityError> {
    const QUANTITY: &str = "queue";
    const MAX_MULTIPLE: f64 = 1e6;
    let text = text.to_owned();
    match if number.is_empty() { Ok(1.0) } else { number.parse::<f64>() } {
        Ok(times) if times < 0.0 => Err(QuantityError::Negative { text, quantity: QUANTITY }),
        Ok(times) if times > MAX_MULTIPLE => {
            Err(QuantityError::TooLarge { text, quantity: QUANTITY, max: "a million BDP" })
        }
        Ok(times) if times.is_finite() => Ok(times),
        _ => Err(QuantityError::NotANumber { text, quantity: QUANTITY, example: "1bdp, 9MB, 100p or 300ms" }),
    }
}

fn ethernet_mtu() -> u32 {
    1500
}

/// Serde form of a duration: seconds as a float, exact to the nanosecond up to 104 days, readable by every other tool.
/// This is a type and not a module, so that `with = "seconds"` can also supply the JSON Schema.
#[expect(non_camel_case_types, reason = "serde expects the path of a module here")]
pub enum seconds {}

/// Serde form of an optional duration.
#[expect(non_camel_case_types, reason = "serde expects the path of a module here")]
pub enum optional_seconds {}

impl seconds {
    /// Writes a duration as a number of seconds.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(value.as_secs_f64())
    }

    /// Reads a number of seconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        bounded_seconds(f64::deserialize(deserializer)?)
    }
}

impl optional_seconds {
    /// Writes a duration as a number of seconds, or null.
    pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|value| value.as_secs_f64()).serialize(serializer)
    }

    /// Reads a number of seconds, or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        seconds.map(bounded_seconds).transpose()
    }
}

/// Maximum of a duration that is read: 30,000 years. A sum of such durations does not overflow.
const MAX_SECONDS: f64 = 1e12;

fn bounded_seconds<E: Error>(seconds: f64) -> Result<Duration, E> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if seconds <= MAX_SECONDS => Ok(duration),
        Ok(_) => Err(E::custom(format_args!("{seconds} s is out of range"))),
        Err(error) => Err(E::custom(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn queue_sizes_are_parsed() {
        let path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(539));
        let ok = [
            ("1bdp", 9_095_625),
            ("bdp", 9_095_625),
            ("0.5 BDP", 4_547_813),
            ("9MB", 9_000_000),
            ("65536", 65_536),
            ("539ms", 9_095_625),
            ("0bdp", 0),
            ("100p", 151_400),
            ("1 packet", 1_514),
        ];
        for (text, bytes) in ok {
            let queue: QueueSize = text.parse().unwrap();
            assert_eq!(queue.bytes_on(&path), Bytes(bytes), "{text}");
            assert_eq!(queue.to_string().parse(), Ok(queue), "{text}");
        }
        assert_eq!("100packets".parse::<QueueSize>().unwrap().limit(&path), QueueLimit::Packets(100));
        for text in [
            "",
            "-1bdp",
            "xbdp",
            "nanbdp",
            "infbdp",
            "1e9bdp",
            "-5ms",
            "many",
            "9 parsecs",
            "1.5p",
            "-1p",
            "1e12p",
            "p",
        ] {
            assert!(text.parse::<QueueSize>().is_err(), "{text}");
        }
    }

    use crate::framing::{Layer, Tunnel};

    #[test]
    fn the_emulated_acts_path_carries_129_megabits() {
        let path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(539));
        assert_eq!(path.bdp(), Bytes(9_095_625));
        assert_eq!(path.mss(), 1448);
        // 135e6 × 1448 / 1514, as tbf counts.
        assert_eq!(path.payload_capacity(), BitRate(129_114_927));
    }

    #[test]
    fn a_profile_survives_json_exactly() {
        let mut path = PathProfile::new(BitRate(9_999_999_937), Duration::from_nanos(539_000_001));
        path.framing = Framing { layer: Layer::Ethernet, tunnel: Some(Tunnel::IpsecEsp), ..Framing::default() };
        path.queue = Some(Bytes(1));
        path.loss = Ratio::new(1e-4).unwrap();
        let text = serde_json::to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<PathProfile>(&text).unwrap(), path, "{text}");
        let minimal = r#"{"capacity_bits_per_second": 135000000, "rtt_seconds": 0.539}"#;
        let read: PathProfile = serde_json::from_str(minimal).unwrap();
        assert_eq!(read, PathProfile::new(BitRate(135_000_000), Duration::from_millis(539)));
        for rtt in ["-1", "1e300", "null"] {
            let text = minimal.replace("0.539", rtt);
            assert!(serde_json::from_str::<PathProfile>(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn headers_that_fill_the_mtu_leave_no_payload() {
        let mut path = PathProfile::new(BitRate(u64::MAX), Duration::MAX);
        path.mtu = 40;
        assert_eq!((path.mss(), path.payload_capacity()), (0, BitRate(0)));
        assert_eq!(path.bdp(), Bytes(u64::MAX));
    }
}
