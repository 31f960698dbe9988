//! Parameters that a client requests, and their limits.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_results::iperf3_report::LoadProtocol;
use serde_json::{Map, Value, json};

use super::ErrorCode;
use super::auth::MAX_TOKEN;
use super::datagram::{self, CounterWidth};
use super::number::{count, integer, switch};

/// Maximum streams of a test in one direction.
pub const MAX_STREAMS: u16 = 128;
/// Maximum duration of a test without its warm-up.
pub const MAX_DURATION: Duration = Duration::from_secs(86_400);
/// Maximum duration of the warm-up.
pub const MAX_OMIT: Duration = Duration::from_secs(600);
/// Maximum block of a TCP test.
pub const MAX_BLOCK: u64 = 1 << 20;
/// Maximum socket buffer of iperf3.
pub const MAX_BUFFER: u64 = 512 << 20;
/// Maximum segment size of iperf3.
pub const MAX_MSS: u64 = 32 * 1024 - 1;
/// Default datagram: Ethernet's 1500 bytes minus headers.
const DEFAULT_DATAGRAM: u64 = 1460;
/// Default block of a TCP test.
const DEFAULT_BLOCK: u64 = 128 * 1024;

/// Direction of the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoadDirection {
    #[default]
    Forward,
    /// The server sends (`-R`).
    Reverse,
    /// Both ends send at the same time (`--bidir`).
    Both,
}

/// Condition for the end of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestEnd {
    /// After this time, without the warm-up.
    Time(Duration),
    /// After this many bytes of all streams, in either direction.
    Bytes(u64),
    /// After this many blocks or datagrams.
    Blocks(u64),
    /// When the client ends it (`-t 0`).
    Unlimited,
}

/// Parameters of a test, as a client requests them.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    pub protocol: LoadProtocol,
    pub direction: LoadDirection,
    pub end: TestEnd,
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
    /// Kernel pacing rate of each stream (`--fq-rate`).
    pub pacing: Option<BitRate>,
    /// Both socket buffers of both ends (`-w`).
    pub window: Option<Bytes>,
    /// Segment size option (`-M`).
    pub mss: Option<u16>,
    /// Disables Nagle's algorithm (`-N`).
    pub no_delay: bool,
    pub mptcp: bool,
    /// Type of service (`-S`).
    pub tos: Option<u8>,
    /// Congestion control option (`-C`).
    pub congestion: Option<String>,
    /// Sends without copying (`-Z`).
    pub zero_copy: bool,
    pub skip_copy: bool,
    /// Width of datagram numbers.
    pub width: CounterWidth,
    /// A repeating payload, as in iperf 2.
    pub repeating: bool,
    /// True if the client requests the output that the server would print.
    pub server_output: bool,
    /// Title of the test.
    pub title: Option<String>,
    /// Version text of the client.
    pub version: Option<String>,
    /// User, password and time, encrypted, in base64.
    pub token: Option<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            protocol: LoadProtocol::Tcp,
            direction: LoadDirection::Forward,
            end: TestEnd::Time(Duration::from_secs(10)),
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
            width: CounterWidth::Narrow,
            repeating: false,
            server_output: false,
            title: None,
            version: None,
            token: None,
        }
    }
}

/// Error: an invalid or unsupported parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{key}': {reason}")]
pub struct ParameterError {
    /// JSON key of the parameter.
    pub key: &'static str,
    pub reason: String,
    /// iperf3's number for the error.
    pub code: ErrorCode,
}

impl Parameters {
    /// Returns the number of streams on which the server sends, and on which it receives.
    pub fn server_streams(&self) -> (u16, u16) {
        match self.direction {
            LoadDirection::Forward => (0, self.streams),
            LoadDirection::Reverse => (self.streams, 0),
            LoadDirection::Both => (self.streams, self.streams),
        }
    }

    /// Returns the planned duration of the load with warm-up; `None` if time does not end the test.
    pub fn time(&self) -> Option<Duration> {
        match self.end {
            TestEnd::Time(time) => Some(time + self.omit),
            TestEnd::Bytes(_) | TestEnd::Blocks(_) | TestEnd::Unlimited => None,
        }
    }

    /// Reads a client's parameters. A value above iperf3's own limits is an error with iperf3's own number.
    pub fn read(value: &Value) -> Result<Parameters, ParameterError> {
        let read = ParameterReader(value);
        let protocol = read.protocol()?;
        let (reverse, both) = (read.switch("reverse"), read.switch("bidirectional"));
        let time = read.number_within("time", 0, MAX_DURATION.as_secs(), ErrorCode::DURATION)?.unwrap_or(0);
        let bytes = read.number_within("num", 0, u64::MAX, ErrorCode::PARAMETERS)?.unwrap_or(0);
        let blocks = read.number_within("blockcount", 0, u64::MAX, ErrorCode::PARAMETERS)?.unwrap_or(0);
        let streams = read.number_within("parallel", 1, MAX_STREAMS.into(), ErrorCode::STREAMS)?.unwrap_or(1);
        let omit = read.number_within("omit", 0, MAX_OMIT.as_secs(), ErrorCode::OMIT)?.unwrap_or(0);
        let burst = read.number_within("burst", 1, 1000, ErrorCode::BURST)?;
        let mss = read.number_within("MSS", 0, MAX_MSS, ErrorCode::MSS)?;
        let tos = read.number_within("TOS", 0, 255, ErrorCode::TOS)?;
        Ok(Parameters {
            protocol,
            direction: match (reverse, both) {
                (_, true) => LoadDirection::Both,
                (true, _) => LoadDirection::Reverse,
                _ => LoadDirection::Forward,
            },
            end: match (bytes, blocks, time) {
                (1.., ..) => TestEnd::Bytes(bytes),
                (_, 1.., _) => TestEnd::Blocks(blocks),
                (.., 1..) => TestEnd::Time(Duration::from_secs(time)),
                _ => TestEnd::Unlimited,
            },
            omit: Duration::from_secs(omit),
            streams: u16::try_from(streams).unwrap_or(1),
            length: read.length(protocol)?,
            rate: read.rate("bandwidth")?,
            burst: burst.and_then(|burst| u32::try_from(burst).ok()),
            pacing: read.rate("fqrate")?,
            window: read
                .number_within("window", 0, MAX_BUFFER, ErrorCode::BUFFER)?
                .filter(|&window| window > 0)
                .map(Bytes),
            mss: mss.and_then(|mss| u16::try_from(mss).ok()).filter(|&mss| mss > 0),
            no_delay: read.switch("nodelay"),
            mptcp: read.switch("mptcp"),
            tos: tos.and_then(|tos| u8::try_from(tos).ok()).filter(|&tos| tos > 0),
            congestion: read.congestion()?,
            zero_copy: read.switch("zerocopy"),
            skip_copy: read.switch("skip_rx_copy"),
            width: if read.switch("udp_counters_64bit") { CounterWidth::Wide } else { CounterWidth::Narrow },
            repeating: read.switch("repeating_payload"),
            server_output: read.switch("get_server_output"),
            title: read.text("title"),
            version: read.text("client_version"),
            token: read.token()?,
        })
    }

    /// Writes the parameters as a client sends them, with booleans and numbers where new servers require them.
    pub fn write(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| drop(map.insert(key.to_owned(), value));
        put(if self.protocol == LoadProtocol::Udp { "udp" } else { "tcp" }, Value::Bool(true));
        put("omit", self.omit.as_secs().into());
        let (time, bytes, blocks) = match self.end {
            TestEnd::Time(time) => (time.as_secs(), 0, 0),
            TestEnd::Bytes(bytes) => (0, bytes, 0),
            TestEnd::Blocks(blocks) => (0, 0, blocks),
            TestEnd::Unlimited => (0, 0, 0),
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
            ("reverse", self.direction == LoadDirection::Reverse),
            ("bidirectional", self.direction == LoadDirection::Both),
        ] {
            if on {
                put(key, Value::Bool(true));
            }
        }
        for (key, on) in [
            ("zerocopy", self.zero_copy),
            ("skip_rx_copy", self.skip_copy),
            ("udp_counters_64bit", self.width == CounterWidth::Wide),
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

/// Reads fields of a client's JSON.
struct ParameterReader<'a>(&'a Value);

impl ParameterReader<'_> {
    fn protocol(&self) -> Result<LoadProtocol, ParameterError> {
        if self.switch("udp") {
            return Ok(LoadProtocol::Udp);
        }
        if self.switch("sctp") {
            return Err(invalid("sctp", "only tcp and udp are served", ErrorCode::PROTOCOL));
        }
        // A stock server uses TCP by default.
        Ok(LoadProtocol::Tcp)
    }

    fn switch(&self, key: &str) -> bool {
        switch(self.0.get(key))
    }

    fn number_within(
        &self,
        key: &'static str,
        min: u64,
        max: u64,
        code: ErrorCode,
    ) -> Result<Option<u64>, ParameterError> {
        let Some(value) = self.0.get(key) else { return Ok(None) };
        let number = integer(value).ok_or_else(|| invalid(key, "not a number", code))?;
        match u64::try_from(number) {
            Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
            _ => Err(invalid(key, format!("{number} requested, but it must be from {min} to {max}"), code)),
        }
    }

    fn rate(&self, key: &'static str) -> Result<Option<BitRate>, ParameterError> {
        Ok(self.number_within(key, 0, u64::MAX, ErrorCode::RATE)?.filter(|&rate| rate > 0).map(BitRate))
    }

    fn length(&self, protocol: LoadProtocol) -> Result<Bytes, ParameterError> {
        let (min, max, default, code) = match protocol {
            LoadProtocol::Tcp => (1, MAX_BLOCK, DEFAULT_BLOCK, ErrorCode::BLOCK),
            LoadProtocol::Udp => {
                (datagram::MIN_LENGTH as u64, datagram::MAX_LENGTH as u64, DEFAULT_DATAGRAM, ErrorCode::DATAGRAM)
            }
        };
        // For datagrams, zero means that the server chooses.
        let zero = protocol == LoadProtocol::Udp && self.0.get("len").and_then(count) == Some(0);
        let length = if zero { None } else { self.number_within("len", min, max, code)? };
        Ok(Bytes(length.unwrap_or(default)))
    }

    /// Reads a text without control characters, which could disturb a terminal.
    fn text(&self, key: &str) -> Option<String> {
        let text = self.0.get(key)?.as_str()?;
        Some(text.chars().filter(|c| !c.is_control()).collect())
    }

    fn congestion(&self) -> Result<Option<String>, ParameterError> {
        let Some(value) = self.0.get("congestion") else { return Ok(None) };
        // TCP_CA_NAME_MAX is 16 with the final zero.
        match value.as_str() {
            Some(name) if (1..16).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()) => {
                Ok(Some(name.to_owned()))
            }
            _ => Err(invalid("congestion", "not the name of a congestion control", ErrorCode::CONGESTION)),
        }
    }

    fn token(&self) -> Result<Option<String>, ParameterError> {
        match self.0.get("authtoken").map(Value::as_str) {
            None => Ok(None),
            Some(Some(token)) if token.len() <= MAX_TOKEN => Ok(Some(token.to_owned())),
            Some(_) => Err(invalid("authtoken", "not a token", ErrorCode::AUTHENTICATION)),
        }
    }
}

fn invalid(key: &'static str, what: impl Into<String>, code: ErrorCode) -> ParameterError {
    ParameterError { key, reason: what.into(), code }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Parameters, ParameterError> {
        Parameters::read(&value)
    }

    #[test]
    fn stock_client_parameters_are_read() {
        // 3.21, with -R.
        let new = json!({"tcp": true, "omit": 0, "time": 1, "num": 0, "blockcount": 0, "parallel": 1, "reverse": true,
            "len": 131072, "pacing_timer": 1000, "client_version": "3.21+"});
        let parameters = read(new).unwrap();
        assert_eq!(
            (parameters.direction, parameters.end),
            (LoadDirection::Reverse, TestEnd::Time(Duration::from_secs(1)))
        );
        assert_eq!((parameters.server_streams(), parameters.time()), ((1, 0), Some(Duration::from_secs(1))));
        // 3.12, with -u --bidir -P 3 -k 10 -O 2 and numbers for booleans.
        let old = json!({"udp": true, "omit": 2, "time": 0, "num": 0, "blockcount": 10, "parallel": 3,
            "bidirectional": true, "len": 1448, "bandwidth": 1048576, "udp_counters_64bit": 1, "TOS": 0});
        let parameters = read(old).unwrap();
        assert_eq!((parameters.protocol, parameters.end), (LoadProtocol::Udp, TestEnd::Blocks(10)));
        assert_eq!((parameters.width, parameters.server_streams()), (CounterWidth::Wide, (3, 3)));
        assert_eq!((parameters.tos, parameters.time(), parameters.rate), (None, None, Some(BitRate(1 << 20))));
    }

    #[test]
    fn empty_parameters_are_an_unlimited_test() {
        let min = read(json!({"tcp": true, "time": 10, "parallel": 1, "len": 1000})).unwrap();
        assert_eq!(min, Parameters { length: Bytes(1000), ..Parameters::default() });
        assert_eq!(read(json!({})).unwrap().end, TestEnd::Unlimited);
    }

    #[test]
    fn values_out_of_bounds_have_iperf3s_error_number() {
        let cases = [
            (json!({"sctp": true}), ErrorCode::PROTOCOL),
            (json!({"parallel": 0}), ErrorCode::STREAMS),
            (json!({"parallel": 129}), ErrorCode::STREAMS),
            (json!({"parallel": "many"}), ErrorCode::STREAMS),
            (json!({"time": -1}), ErrorCode::DURATION),
            (json!({"time": 86401}), ErrorCode::DURATION),
            (json!({"omit": 601}), ErrorCode::OMIT),
            (json!({"num": -1}), ErrorCode::PARAMETERS),
            (json!({"len": 0}), ErrorCode::BLOCK),
            (json!({"len": 1 << 21}), ErrorCode::BLOCK),
            (json!({"udp": true, "len": 15}), ErrorCode::DATAGRAM),
            (json!({"udp": true, "len": 65508}), ErrorCode::DATAGRAM),
            (json!({"window": 1u64 << 40}), ErrorCode::BUFFER),
            (json!({"MSS": 65536}), ErrorCode::MSS),
            (json!({"burst": 0}), ErrorCode::BURST),
            (json!({"TOS": 256}), ErrorCode::TOS),
            (json!({"bandwidth": -5}), ErrorCode::RATE),
            (json!({"congestion": "a name too long for it"}), ErrorCode::CONGESTION),
            (json!({"authtoken": 7}), ErrorCode::AUTHENTICATION),
            (json!({"authtoken": "A".repeat(5000)}), ErrorCode::AUTHENTICATION),
        ];
        for (value, code) in cases {
            let error = read(value.clone()).unwrap_err();
            assert_eq!(error.code, code, "{value}: {error}");
        }
        assert_eq!(read(json!({"udp": true, "len": 0})).unwrap().length, Bytes(1460));
    }

    #[test]
    fn written_values_are_read_back() {
        let all = Parameters {
            protocol: LoadProtocol::Udp,
            direction: LoadDirection::Both,
            end: TestEnd::Bytes(1 << 40),
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
            width: CounterWidth::Wide,
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
