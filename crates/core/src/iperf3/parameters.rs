//! What a client asks of a server, and what of it can be served at all.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Code;
use super::auth::LONGEST_TOKEN;
use super::datagram::{self, Width};
use super::number::{count, integer, switch};
use crate::units::{BitRate, Bytes};

/// Most streams of a test in one direction.
pub const MOST_STREAMS: u16 = 128;
/// Longest test, and longest test without its warm-up.
pub const LONGEST: Duration = Duration::from_secs(86_400);
/// Longest warm-up.
pub const LONGEST_OMIT: Duration = Duration::from_secs(600);
/// Largest block of a TCP test.
pub const LARGEST_BLOCK: u64 = 1 << 20;
/// Largest socket buffer.
pub const LARGEST_BUFFER: u64 = 512 << 20;
/// Largest segment.
pub const LARGEST_MSS: u64 = 32 * 1024 - 1;
/// A datagram where none is said: Ethernet's 1500 bytes less headers.
const DEFAULT_DATAGRAM: u64 = 1460;
/// A block where none is said.
const DEFAULT_BLOCK: u64 = 128 * 1024;

/// What carries the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// Who sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Way {
    /// The client.
    #[default]
    Forward,
    /// The server (`-R`).
    Reverse,
    /// Both at once (`--bidir`).
    Both,
}

/// When the client ends the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// After this time, the warm-up not counted.
    Time(Duration),
    /// After so many bytes of all streams, in either direction.
    Bytes(u64),
    /// After so many blocks or datagrams.
    Blocks(u64),
    /// When it pleases (`-t 0`).
    Open,
}

/// What a client asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// What carries the load.
    pub protocol: Protocol,
    /// Who sends.
    pub way: Way,
    /// When it ends.
    pub end: End,
    /// Warm-up, which is sent and not counted.
    pub omit: Duration,
    /// Streams in each direction.
    pub streams: u16,
    /// Bytes of one write, or of a datagram.
    pub length: Bytes,
    /// Rate of each stream (`-b`).
    pub rate: Option<BitRate>,
    /// Blocks sent back to back at that rate.
    pub burst: Option<u32>,
    /// Rate of each stream that the kernel is asked to keep (`--fq-rate`).
    pub pacing: Option<BitRate>,
    /// Both socket buffers of both ends (`-w`).
    pub window: Option<Bytes>,
    /// Segment size (`-M`).
    pub mss: Option<u16>,
    /// No Nagle (`-N`).
    pub no_delay: bool,
    /// Multipath TCP.
    pub mptcp: bool,
    /// Type of service (`-S`).
    pub tos: Option<u8>,
    /// Congestion control (`-C`).
    pub congestion: Option<String>,
    /// Send without copying (`-Z`).
    pub zero_copy: bool,
    /// Receive without copying.
    pub skip_copy: bool,
    /// Width of datagrams' numbers.
    pub width: Width,
    /// A payload that repeats itself, as iperf 2 sends it.
    pub repeating: bool,
    /// The client wants to see what the server would print.
    pub server_output: bool,
    /// A name for the test.
    pub title: Option<String>,
    /// What the client calls its version.
    pub version: Option<String>,
    /// User, password and time, encrypted, in base64.
    pub token: Option<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            protocol: Protocol::Tcp,
            way: Way::Forward,
            end: End::Time(Duration::from_secs(10)),
            omit: Duration::ZERO,
            streams: 1,
            length: Bytes(DEFAULT_BLOCK),
            rate: None,
            burst: None,
            pacing: None,
            window: None,
            mss: None,
            no_delay: false,
            mptcp: false,
            tos: None,
            congestion: None,
            zero_copy: false,
            skip_copy: false,
            width: Width::Narrow,
            repeating: false,
            server_output: false,
            title: None,
            version: None,
            token: None,
        }
    }
}

/// Parameters that cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{key}': {what}")]
pub struct ParameterError {
    /// Which.
    pub key: &'static str,
    /// What is wrong.
    pub what: String,
    /// What iperf3 calls it.
    pub code: Code,
}

impl Parameters {
    /// Streams of a test that the server sends on, and those it receives on.
    pub fn server_streams(&self) -> (u16, u16) {
        match self.way {
            Way::Forward => (0, self.streams),
            Way::Reverse => (self.streams, 0),
            Way::Both => (self.streams, self.streams),
        }
    }

    /// How long the client means to load the path, warm-up and all; `None` where time does not end it.
    pub fn time(&self) -> Option<Duration> {
        match self.end {
            End::Time(time) => Some(time + self.omit),
            End::Bytes(_) | End::Blocks(_) | End::Open => None,
        }
    }

    /// Reads what a client sent. Whatever is above iperf3's own bounds is refused with iperf3's own number.
    pub fn read(value: &Value) -> Result<Parameters, ParameterError> {
        let read = Reader(value);
        let protocol = read.protocol()?;
        let (reverse, both) = (read.switch("reverse"), read.switch("bidirectional"));
        let time = read.within("time", 0, LONGEST.as_secs(), Code::DURATION)?.unwrap_or(0);
        let bytes = read.within("num", 0, u64::MAX, Code::PARAMETERS)?.unwrap_or(0);
        let blocks = read.within("blockcount", 0, u64::MAX, Code::PARAMETERS)?.unwrap_or(0);
        let streams = read.within("parallel", 1, MOST_STREAMS.into(), Code::STREAMS)?.unwrap_or(1);
        let omit = read.within("omit", 0, LONGEST_OMIT.as_secs(), Code::OMIT)?.unwrap_or(0);
        let burst = read.within("burst", 1, 1000, Code::BURST)?;
        let mss = read.within("MSS", 0, LARGEST_MSS, Code::MSS)?;
        let tos = read.within("TOS", 0, 255, Code::TOS)?;
        Ok(Parameters {
            protocol,
            way: match (reverse, both) {
                (_, true) => Way::Both,
                (true, _) => Way::Reverse,
                _ => Way::Forward,
            },
            end: match (bytes, blocks, time) {
                (1.., ..) => End::Bytes(bytes),
                (_, 1.., _) => End::Blocks(blocks),
                (.., 1..) => End::Time(Duration::from_secs(time)),
                _ => End::Open,
            },
            omit: Duration::from_secs(omit),
            streams: u16::try_from(streams).unwrap_or(1),
            length: read.length(protocol)?,
            rate: read.rate("bandwidth")?,
            burst: burst.and_then(|burst| u32::try_from(burst).ok()),
            pacing: read.rate("fqrate")?,
            window: read.within("window", 0, LARGEST_BUFFER, Code::BUFFER)?.filter(|&window| window > 0).map(Bytes),
            mss: mss.and_then(|mss| u16::try_from(mss).ok()).filter(|&mss| mss > 0),
            no_delay: read.switch("nodelay"),
            mptcp: read.switch("mptcp"),
            tos: tos.and_then(|tos| u8::try_from(tos).ok()).filter(|&tos| tos > 0),
            congestion: read.congestion()?,
            zero_copy: read.switch("zerocopy"),
            skip_copy: read.switch("skip_rx_copy"),
            width: if read.switch("udp_counters_64bit") { Width::Wide } else { Width::Narrow },
            repeating: read.switch("repeating_payload"),
            server_output: read.switch("get_server_output"),
            title: read.text("title"),
            version: read.text("client_version"),
            token: read.token()?,
        })
    }

    /// As a client sends them: with booleans where new servers want booleans, and numbers where they want numbers.
    pub fn write(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| drop(map.insert(key.to_owned(), value));
        put(if self.protocol == Protocol::Udp { "udp" } else { "tcp" }, Value::Bool(true));
        put("omit", self.omit.as_secs().into());
        let (time, bytes, blocks) = match self.end {
            End::Time(time) => (time.as_secs(), 0, 0),
            End::Bytes(bytes) => (0, bytes, 0),
            End::Blocks(blocks) => (0, 0, blocks),
            End::Open => (0, 0, 0),
        };
        put("time", time.into());
        put("num", bytes.into());
        put("blockcount", blocks.into());
        put("parallel", self.streams.into());
        put("len", self.length.0.into());
        put("pacing_timer", 1000.into());
        for (key, on) in [
            ("nodelay", self.no_delay),
            ("mptcp", self.mptcp),
            ("reverse", self.way == Way::Reverse),
            ("bidirectional", self.way == Way::Both),
        ] {
            if on {
                put(key, Value::Bool(true));
            }
        }
        for (key, on) in [
            ("zerocopy", self.zero_copy),
            ("skip_rx_copy", self.skip_copy),
            ("udp_counters_64bit", self.width == Width::Wide),
            ("repeating_payload", self.repeating),
            ("get_server_output", self.server_output),
        ] {
            if on {
                put(key, 1.into());
            }
        }
        for (key, number) in [
            ("bandwidth", self.rate.map(|rate| rate.0)),
            ("fqrate", self.pacing.map(|rate| rate.0)),
            ("burst", self.burst.map(u64::from)),
            ("window", self.window.map(|window| window.0)),
            ("MSS", self.mss.map(u64::from)),
            ("TOS", self.tos.map(u64::from)),
        ] {
            if let Some(number) = number {
                put(key, number.into());
            }
        }
        for (key, text) in [
            ("congestion", &self.congestion),
            ("title", &self.title),
            ("authtoken", &self.token),
            ("client_version", &self.version),
        ] {
            if let Some(text) = text {
                put(key, json!(text));
            }
        }
        Value::Object(map)
    }
}

/// A client's JSON.
struct Reader<'a>(&'a Value);

impl Reader<'_> {
    fn protocol(&self) -> Result<Protocol, ParameterError> {
        if self.switch("udp") {
            return Ok(Protocol::Udp);
        }
        if self.switch("sctp") {
            return Err(wrong("sctp", "only tcp and udp are served", Code::PROTOCOL));
        }
        // A stock server takes TCP where nothing is said.
        Ok(Protocol::Tcp)
    }

    fn switch(&self, key: &str) -> bool {
        switch(self.0.get(key))
    }

    fn within(&self, key: &'static str, least: u64, most: u64, code: Code) -> Result<Option<u64>, ParameterError> {
        let Some(value) = self.0.get(key) else { return Ok(None) };
        let number = integer(value).ok_or_else(|| wrong(key, "not a number", code))?;
        match u64::try_from(number) {
            Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(wrong(key, format!("{number} asked for, from {least} to {most} are possible"), code)),
        }
    }

    fn rate(&self, key: &'static str) -> Result<Option<BitRate>, ParameterError> {
        Ok(self.within(key, 0, u64::MAX, Code::RATE)?.filter(|&rate| rate > 0).map(BitRate))
    }

    fn length(&self, protocol: Protocol) -> Result<Bytes, ParameterError> {
        let (least, most, default, code) = match protocol {
            Protocol::Tcp => (1, LARGEST_BLOCK, DEFAULT_BLOCK, Code::BLOCK),
            Protocol::Udp => (datagram::SMALLEST as u64, datagram::LARGEST as u64, DEFAULT_DATAGRAM, Code::DATAGRAM),
        };
        // Zero leaves it to the server where datagrams are concerned.
        let zero = protocol == Protocol::Udp && self.0.get("len").and_then(count) == Some(0);
        let length = if zero { None } else { self.within("len", least, most, code)? };
        Ok(Bytes(length.unwrap_or(default)))
    }

    /// Text without what could upset a terminal.
    fn text(&self, key: &str) -> Option<String> {
        let text = self.0.get(key)?.as_str()?;
        Some(text.chars().filter(|c| !c.is_control()).collect())
    }

    fn congestion(&self) -> Result<Option<String>, ParameterError> {
        let Some(value) = self.0.get("congestion") else { return Ok(None) };
        // TCP_CA_NAME_MAX is 16 with the closing zero.
        match value.as_str() {
            Some(name) if (1..16).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()) => {
                Ok(Some(name.to_owned()))
            }
            _ => Err(wrong("congestion", "not the name of a congestion control", Code::CONGESTION)),
        }
    }

    fn token(&self) -> Result<Option<String>, ParameterError> {
        match self.0.get("authtoken").map(Value::as_str) {
            None => Ok(None),
            Some(Some(token)) if token.len() <= LONGEST_TOKEN => Ok(Some(token.to_owned())),
            Some(_) => Err(wrong("authtoken", "not a token", Code::AUTHENTICATION)),
        }
    }
}

fn wrong(key: &'static str, what: impl Into<String>, code: Code) -> ParameterError {
    ParameterError { key, what: what.into(), code }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Parameters, ParameterError> {
        Parameters::read(&value)
    }

    #[test]
    fn what_stock_clients_send_is_understood() {
        // 3.21, with -R.
        let new = json!({"tcp": true, "omit": 0, "time": 1, "num": 0, "blockcount": 0, "parallel": 1, "reverse": true,
            "len": 131072, "pacing_timer": 1000, "client_version": "3.21+"});
        let parameters = read(new).unwrap();
        assert_eq!((parameters.way, parameters.end), (Way::Reverse, End::Time(Duration::from_secs(1))));
        assert_eq!((parameters.server_streams(), parameters.time()), ((1, 0), Some(Duration::from_secs(1))));
        // 3.12, with -u --bidir -P 3 -k 10 -O 2 and numbers for switches.
        let old = json!({"udp": true, "omit": 2, "time": 0, "num": 0, "blockcount": 10, "parallel": 3,
            "bidirectional": true, "len": 1448, "bandwidth": 1048576, "udp_counters_64bit": 1, "TOS": 0});
        let parameters = read(old).unwrap();
        assert_eq!((parameters.protocol, parameters.end), (Protocol::Udp, End::Blocks(10)));
        assert_eq!((parameters.width, parameters.server_streams()), (Width::Wide, (3, 3)));
        assert_eq!((parameters.tos, parameters.time(), parameters.rate), (None, None, Some(BitRate(1 << 20))));
    }

    #[test]
    fn four_fields_are_enough_and_none_is_a_test_without_end() {
        let least = read(json!({"tcp": true, "time": 10, "parallel": 1, "len": 1000})).unwrap();
        assert_eq!(least, Parameters { length: Bytes(1000), ..Parameters::default() });
        assert_eq!(read(json!({})).unwrap().end, End::Open);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_iperf3s_number() {
        let cases = [
            (json!({"sctp": true}), Code::PROTOCOL),
            (json!({"parallel": 0}), Code::STREAMS),
            (json!({"parallel": 129}), Code::STREAMS),
            (json!({"parallel": "many"}), Code::STREAMS),
            (json!({"time": -1}), Code::DURATION),
            (json!({"time": 86401}), Code::DURATION),
            (json!({"omit": 601}), Code::OMIT),
            (json!({"num": -1}), Code::PARAMETERS),
            (json!({"len": 0}), Code::BLOCK),
            (json!({"len": 1 << 21}), Code::BLOCK),
            (json!({"udp": true, "len": 15}), Code::DATAGRAM),
            (json!({"udp": true, "len": 65508}), Code::DATAGRAM),
            (json!({"window": 1u64 << 40}), Code::BUFFER),
            (json!({"MSS": 65536}), Code::MSS),
            (json!({"burst": 0}), Code::BURST),
            (json!({"TOS": 256}), Code::TOS),
            (json!({"bandwidth": -5}), Code::RATE),
            (json!({"congestion": "a name too long for it"}), Code::CONGESTION),
            (json!({"authtoken": 7}), Code::AUTHENTICATION),
            (json!({"authtoken": "A".repeat(5000)}), Code::AUTHENTICATION),
        ];
        for (value, code) in cases {
            let error = read(value.clone()).unwrap_err();
            assert_eq!(error.code, code, "{value}: {error}");
        }
        assert_eq!(read(json!({"udp": true, "len": 0})).unwrap().length, Bytes(1460));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let all = Parameters {
            protocol: Protocol::Udp,
            way: Way::Both,
            end: End::Bytes(1 << 40),
            omit: Duration::from_secs(3),
            streams: 128,
            length: Bytes(1400),
            rate: Some(BitRate(10_000_000_000)),
            burst: Some(10),
            pacing: Some(BitRate(5)),
            window: Some(Bytes(1 << 20)),
            mss: Some(1400),
            no_delay: true,
            mptcp: true,
            tos: Some(0xb8),
            congestion: Some("cubic".into()),
            zero_copy: true,
            skip_copy: true,
            width: Width::Wide,
            repeating: true,
            server_output: true,
            title: Some("evening".into()),
            version: Some("lfn".into()),
            token: Some("QUJD".into()),
        };
        assert_eq!(read(all.write()).unwrap(), all);
        let plain = Parameters::default();
        assert_eq!(read(plain.write()).unwrap(), plain);
        assert_eq!(plain.write()["tcp"], true, "a boolean, as servers since 3.18 check");
    }
}
