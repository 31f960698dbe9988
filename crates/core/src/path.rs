//! A path and its figures: what is known of the way between two hosts before anything is sent.
//!
//! Everything `lfn` predicts, emulates or compares with starts from a [`PathProfile`]: the plan derives buffers from
//! it, the emulator builds its link from it, a test prints its results beside it. It holds figures only, no addresses
//! and no way to measure; it travels as JSON in reports and in the environment variable `LFN_PATH`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::framing::Framing;
use crate::link::{QueueLimit, packets};
use crate::units::{BitRate, Bytes, QuantityError, Ratio, parse_duration, typed_duration};

/// The figures of a path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PathProfile {
    /// What the bottleneck can carry, counted at `framing.layer`.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: BitRate,
    /// The least round-trip time, without queueing.
    #[serde(rename = "rtt_seconds", with = "seconds")]
    pub base_rtt: Duration,
    /// IP MTU of the narrowest link, bytes.
    #[serde(rename = "mtu_bytes", default = "ethernet_mtu")]
    pub mtu: u32,
    /// Headers around each payload, and the layer of `capacity`.
    #[serde(default)]
    pub framing: Framing,
    /// Room of the bottleneck's queue, if known.
    #[serde(rename = "queue_bytes", default)]
    pub queue: Option<Bytes>,
    /// Share of packets lost at random, whatever the load.
    #[serde(default)]
    pub loss: Ratio,
}

impl PathProfile {
    /// A path as lfn emulates it: MTU 1500, capacity counted with the Ethernet header, no loss, queue not known.
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

    /// Capacity × base RTT: the bytes in flight that fill the path.
    pub fn bdp(&self) -> Bytes {
        self.capacity.times(self.base_rtt)
    }

    /// Payload bytes of a full segment (1448 at MTU 1500, IPv4, timestamps); 0 if the headers fill the MTU.
    pub fn mss(&self) -> u32 {
        self.framing.payload(self.mtu)
    }

    /// The most TCP goodput the capacity allows: every packet full, nothing lost, acknowledgements elsewhere.
    pub fn payload_capacity(&self) -> BitRate {
        let wire = self.framing.wire_bytes_full(self.mtu).max(1);
        let rate = u128::from(self.capacity.0) * u128::from(self.mss()) / u128::from(wire);
        BitRate(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// Room in a queue as it is typed: in bandwidth-delay products, in bytes, in packets, or in time at the line rate.
///
/// Products and times are taken at the path's capacity. Where the rate of the line varies that is its nominal rate: the
/// room stays what it is, and the time it stands for varies, as in a device with so much memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueSize {
    /// `1bdp`, `0.5bdp`, `bdp`.
    Bdp(f64),
    /// `9MB`, `65536`.
    Bytes(Bytes),
    /// `100p`, `100packets`.
    Packets(u32),
    /// `300ms`.
    Time(Duration),
}

impl QueueSize {
    /// The same in bytes, on this path; packets are taken to be full ones. Saturates.
    pub fn on(self, path: &PathProfile) -> Bytes {
        self.limit(path).most_bytes(Bytes(path.framing.wire_bytes_full(path.mtu)))
    }

    /// What a queue is limited to by this, on this path; saturates.
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
    /// What [`from_str`](Self::from_str) reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            QueueSize::Bdp(times) => f.pad(&format!("{times}bdp")),
            QueueSize::Bytes(bytes) => f.pad(&bytes.typed()),
            QueueSize::Packets(packets) => f.pad(&QueueLimit::Packets(packets).typed()),
            QueueSize::Time(time) => f.pad(&typed_duration(time)),
        }
    }
}

impl FromStr for QueueSize {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let lower = text.trim().to_ascii_lowercase();
        if let Some(number) = lower.strip_suffix("bdp") {
            return multiple(text, number.trim()).map(QueueSize::Bdp);
        }
        if let Some(packets) = packets(text) {
            return packets.map(QueueSize::Packets);
        }
        // Only a unit of time makes it one: a bare number is bytes, as for every buffer.
        let unit = lower.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.".contains(c)).trim();
        if ["ns", "us", "µs", "ms", "s", "sec", "min"].contains(&unit) {
            return parse_duration(text).map(QueueSize::Time);
        }
        text.parse().map(QueueSize::Bytes)
    }
}

/// The number before `bdp`; none means one.
fn multiple(text: &str, number: &str) -> Result<f64, QuantityError> {
    const QUANTITY: &str = "queue";
    const MOST: f64 = 1e6;
    let text = text.to_owned();
    match if number.is_empty() { Ok(1.0) } else { number.parse::<f64>() } {
        Ok(times) if times < 0.0 => Err(QuantityError::Negative { text, quantity: QUANTITY }),
        Ok(times) if times > MOST => Err(QuantityError::TooLarge { text, quantity: QUANTITY, most: "a million BDP" }),
        Ok(times) if times.is_finite() => Ok(times),
        _ => Err(QuantityError::NotANumber { text, quantity: QUANTITY, example: "1bdp, 9MB, 100p or 300ms" }),
    }
}

fn ethernet_mtu() -> u32 {
    1500
}

/// Serde form of a duration: seconds as a float, exact to the nanosecond up to 104 days, and what every other tool can
/// read. A type and not a module, so that what `with = "seconds"` names can tell its JSON Schema too.
#[expect(non_camel_case_types, reason = "stands where serde takes the path of a module")]
pub(crate) enum seconds {}

/// The same of a duration that may be absent.
#[expect(non_camel_case_types, reason = "stands where serde takes the path of a module")]
pub(crate) enum optional_seconds {}

impl seconds {
    pub(crate) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(value.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl optional_seconds {
    pub(crate) fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|value| value.as_secs_f64()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        seconds.map(|seconds| Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_queue_is_read_as_typed() {
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
            assert_eq!(queue.on(&path), Bytes(bytes), "{text}");
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
        let least = r#"{"capacity_bits_per_second": 135000000, "rtt_seconds": 0.539}"#;
        let read: PathProfile = serde_json::from_str(least).unwrap();
        assert_eq!(read, PathProfile::new(BitRate(135_000_000), Duration::from_millis(539)));
        for rtt in ["-1", "1e300", "null"] {
            let text = least.replace("0.539", rtt);
            assert!(serde_json::from_str::<PathProfile>(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn headers_that_fill_the_mtu_leave_nothing() {
        let mut path = PathProfile::new(BitRate(u64::MAX), Duration::MAX);
        path.mtu = 40;
        assert_eq!((path.mss(), path.payload_capacity()), (0, BitRate(0)));
        assert_eq!(path.bdp(), Bytes(u64::MAX));
    }
}
