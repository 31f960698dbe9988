//! Conditions with a meaning, and the parameters of the model that they set.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::tcp_model::{Congestion, FlowParameters, Prediction, predict_steady};
use lfn_base::units::{BitRate, Bytes, Ratio};

/// Maximum receive window without window scaling, bytes (RFC 9293).
const UNSCALED_WINDOW: u64 = 65_535;

/// Maximum window scale (RFC 7323 §2.3).
const MAX_WINDOW_SCALE: u32 = 14;

/// Capacity of a path whose capacity is unknown: above every goodput, so that the capacity is never the limit.
const UNKNOWN_CAPACITY: BitRate = BitRate(1_000_000_000_000_000);

/// Ends of the names of conditions of one host: `kernel.from` is the kernel of the host that sends.
pub const SIDES: [&str; 2] = ["from", "to"];

/// Names of the conditions of a test.
pub mod names {
    /// Program that measured: `lfn`, `iperf3`, `nettest`.
    pub const TOOL: &str = "tool";
    /// Version of the program at each host.
    pub const VERSION: &str = "version";
    /// Arguments of the program.
    pub const ARGUMENTS: &str = "arguments";
    /// Release of the kernel of each host.
    pub const KERNEL: &str = "kernel";
    /// Window scale of the receiver: `none`, or 0 to 14.
    pub const WINDOW_SCALE: &str = "window_scale";
    /// Receive buffer of each stream at the receiver, bytes.
    pub const RECEIVE_BUFFER: &str = "receive_buffer";
    /// Send buffer of each stream at the sender, bytes.
    pub const SEND_BUFFER: &str = "send_buffer";
    /// Fixed receive window of each stream, bytes.
    pub const WINDOW: &str = "window";
    /// Congestion control of the sender.
    pub const CONGESTION: &str = "congestion";
    /// Path MTU of IP, bytes.
    pub const MTU: &str = "mtu";
    /// Payload of a full segment, bytes.
    pub const MSS: &str = "mss";
    /// Number of parallel streams.
    pub const STREAMS: &str = "streams";
    /// Protocol of the test: `tcp` or `udp`.
    pub const PROTOCOL: &str = "protocol";
    /// Maximum rate of each stream, bit/s.
    pub const PACING: &str = "pacing";
    /// Maximum rate of all streams together, bit/s.
    pub const RATE_LIMIT: &str = "rate_limit";
    /// Bytes of one write.
    pub const RECORD: &str = "record";
    /// Link rate of the interface of each host, bit/s.
    pub const INTERFACE_RATE: &str = "interface_rate";
    /// Prefix of the sysctls of each host: `sysctl.from.net.ipv4.tcp_rmem`.
    pub const SYSCTL: &str = "sysctl";
}

/// Reports whether the condition belongs to one host: its name ends with a side, or has a side after the first part.
pub fn is_sided(name: &str) -> bool {
    name.split('.').skip(1).take(1).any(|part| SIDES.contains(&part))
}

/// Figures of one direction and one day that the model knows. Unknown figures are `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conditions {
    pub base_rtt: Option<Duration>,
    pub loss: Option<Ratio>,
    pub capacity: Option<BitRate>,
    /// Window scale of the receiver. The outer `None`: unknown; the inner `None`: not offered.
    pub window_scale: Option<Option<u32>>,
    pub receive_buffer: Option<Bytes>,
    pub send_buffer: Option<Bytes>,
    pub window: Option<Bytes>,
    pub congestion: Option<Congestion>,
    pub mtu: Option<u32>,
    pub mss: Option<u32>,
    pub streams: Option<u32>,
    pub pacing: Option<BitRate>,
    /// Minimum of the rate limit of all streams and the link rates of both interfaces.
    pub rate_limit: Option<BitRate>,
    pub is_udp: bool,
}

impl Conditions {
    /// Reads the conditions of a log. A value that has another form than documented is unknown.
    pub fn of(values: &BTreeMap<String, String>) -> Self {
        let text = |name: &str| values.get(name).map(|value| value.trim());
        let number = |name: &str| text(name)?.parse::<u64>().ok().filter(|&number| number > 0);
        let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
        let sided = |side: &str| number(&format!("{}.{side}", names::INTERFACE_RATE));
        let rates = [number(names::RATE_LIMIT)].into_iter().chain(SIDES.map(sided)).flatten();
        let scale = text(names::WINDOW_SCALE).and_then(|scale| match scale {
            "none" => Some(None),
            scale => scale.parse().ok().filter(|&scale| scale <= MAX_WINDOW_SCALE).map(Some),
        });
        Conditions {
            base_rtt: None,
            loss: None,
            capacity: None,
            window_scale: scale,
            receive_buffer: number(names::RECEIVE_BUFFER).map(Bytes),
            send_buffer: number(names::SEND_BUFFER).map(Bytes),
            window: number(names::WINDOW).map(Bytes),
            congestion: text(names::CONGESTION).and_then(|name| name.parse().ok()),
            mtu: small(names::MTU),
            mss: small(names::MSS),
            streams: small(names::STREAMS),
            pacing: number(names::PACING).map(BitRate),
            rate_limit: rates.min().map(BitRate),
            is_udp: text(names::PROTOCOL) == Some("udp"),
        }
    }

    /// Returns the conditions with the values of `other` that `name` sets; `None` if the model has no such value.
    pub fn with(&self, name: &str, other: &Conditions) -> Option<Conditions> {
        let mut changed = self.clone();
        match name {
            names::WINDOW_SCALE => changed.window_scale = Some(other.window_scale?),
            names::RECEIVE_BUFFER => changed.receive_buffer = Some(other.receive_buffer?),
            names::SEND_BUFFER => changed.send_buffer = Some(other.send_buffer?),
            names::WINDOW => changed.window = Some(other.window?),
            names::CONGESTION => changed.congestion = Some(other.congestion?),
            names::MTU => changed.mtu = Some(other.mtu?),
            names::MSS => changed.mss = Some(other.mss?),
            // One stream is the default of every tool.
            names::STREAMS => changed.streams = Some(other.streams.unwrap_or(1)),
            names::PACING => changed.pacing = Some(other.pacing?),
            names::RATE_LIMIT => changed.rate_limit = Some(other.rate_limit?),
            name if is_sided(name) && name.starts_with(names::INTERFACE_RATE) => {
                changed.rate_limit = Some(other.rate_limit?);
            }
            _ => return None,
        }
        Some(changed)
    }

    /// Returns the maximum receive window that the window scale permits; `None` if the scale is unknown.
    pub fn scaled_window(&self) -> Option<Bytes> {
        self.window_scale.map(|scale| Bytes(UNSCALED_WINDOW << scale.unwrap_or(0).min(MAX_WINDOW_SCALE)))
    }

    /// Returns the limit of the receive window: the minimum of window scale, receive buffer and fixed window.
    pub fn receive_window(&self) -> Option<Bytes> {
        [self.scaled_window(), self.receive_buffer, self.window].into_iter().flatten().min()
    }

    /// Predicts the steady goodput; `None` without an RTT, for datagrams, and if no known value limits the goodput.
    pub fn predict(&self) -> Option<Prediction> {
        let base_rtt = self.base_rtt.filter(|rtt| !rtt.is_zero() && !self.is_udp)?;
        let capacity = [self.capacity, self.rate_limit].into_iter().flatten().min();
        let mut path = PathProfile::new(capacity.unwrap_or(UNKNOWN_CAPACITY), base_rtt);
        let headers = path.mtu.saturating_sub(path.mss());
        path.mtu = self.mss.map(|mss| mss.saturating_add(headers)).or(self.mtu).unwrap_or(path.mtu);
        path.loss = self.loss.unwrap_or_default();
        let flow = FlowParameters {
            window: self.receive_window(),
            send_buffer: self.send_buffer,
            pace: self.pacing,
            streams: self.streams.unwrap_or(1),
            congestion: self.congestion.unwrap_or_default(),
            ..FlowParameters::default()
        };
        let prediction = predict_steady(&path, &flow);
        let is_known = capacity.is_some() || prediction.limit != lfn_base::tcp_model::GoodputLimit::Capacity;
        is_known.then_some(prediction)
    }
}
