//! Factors of a sweep: the settings of a test that it varies.

use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

/// A setting that a sweep varies. Its name is the flag of `lfn test`, where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum Factor {
    /// Fixed receive window of the receiving end, bytes.
    #[serde(rename = "window")]
    Window,
    /// Fixed receive window of the server, bytes.
    #[serde(rename = "far-window")]
    FarWindow,
    /// Window scale (RFC 7323), 0 to 14: limits the window to 65,535 · 2^scale.
    #[serde(rename = "window-scale")]
    WindowScale,
    /// Send buffer of both ends, bytes.
    #[serde(rename = "sndbuf")]
    SendBuffer,
    /// Receive buffer of both ends, bytes.
    #[serde(rename = "rcvbuf")]
    ReceiveBuffer,
    /// Bytes of one write.
    #[serde(rename = "length")]
    Record,
    /// Number of records of a test.
    #[serde(rename = "count")]
    Count,
    /// Number of parallel streams.
    #[serde(rename = "streams")]
    Streams,
    /// Congestion control of the sender.
    #[serde(rename = "congestion")]
    Congestion,
    /// Maximum rate of each stream, bits per second.
    #[serde(rename = "pacing")]
    Pacing,
    /// TCP maximum segment size, bytes.
    #[serde(rename = "mss")]
    Mss,
    /// Direction of the data: `forward` or `reverse`.
    #[serde(rename = "direction")]
    Direction,
}

/// Unit of a factor's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes with a unit, such as 9MB.
    Bytes,
    /// Bits per second with a unit, such as 100mbit.
    Rate,
    /// An integer without a unit.
    Number,
    /// A name without spaces.
    Name,
}

/// Value of a factor: bytes, bits per second or a count as an integer, or a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Value {
    /// Bytes, bits per second, or a count.
    Number(u64),
    /// Congestion control or direction.
    Name(String),
}

/// A factor with one value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Level {
    /// Setting of the test.
    pub factor: Factor,
    /// Value of the setting: bytes, bits per second, a count or a name.
    pub value: Value,
}

/// Maximum window scale (RFC 7323, section 2.3).
pub const MAX_WINDOW_SCALE: u64 = 14;

impl Factor {
    /// All factors, in the order of columns.
    pub const ALL: [Factor; 12] = [
        Factor::Window,
        Factor::FarWindow,
        Factor::WindowScale,
        Factor::SendBuffer,
        Factor::ReceiveBuffer,
        Factor::Record,
        Factor::Count,
        Factor::Streams,
        Factor::Congestion,
        Factor::Pacing,
        Factor::Mss,
        Factor::Direction,
    ];

    /// Returns the flag without its dashes, which is also the key of a settings file.
    pub fn name(self) -> &'static str {
        match self {
            Factor::Window => "window",
            Factor::FarWindow => "far-window",
            Factor::WindowScale => "window-scale",
            Factor::SendBuffer => "sndbuf",
            Factor::ReceiveBuffer => "rcvbuf",
            Factor::Record => "length",
            Factor::Count => "count",
            Factor::Streams => "streams",
            Factor::Congestion => "congestion",
            Factor::Pacing => "pacing",
            Factor::Mss => "mss",
            Factor::Direction => "direction",
        }
    }

    /// Returns the factor of a flag or a key.
    pub fn of_name(name: &str) -> Option<Factor> {
        Factor::ALL.into_iter().find(|factor| factor.name() == name)
    }

    /// Returns the unit of the values.
    pub fn unit(self) -> Unit {
        match self {
            Factor::Window
            | Factor::FarWindow
            | Factor::SendBuffer
            | Factor::ReceiveBuffer
            | Factor::Record
            | Factor::Mss => Unit::Bytes,
            Factor::Pacing => Unit::Rate,
            Factor::WindowScale | Factor::Count | Factor::Streams => Unit::Number,
            Factor::Congestion | Factor::Direction => Unit::Name,
        }
    }

    /// Returns valid values for a hint.
    pub fn example(self) -> &'static str {
        match self {
            Factor::Window | Factor::FarWindow | Factor::SendBuffer | Factor::ReceiveBuffer => "1MB..16MB:x2",
            Factor::WindowScale => "4..9:+1",
            Factor::Record => "64KiB,1MB",
            Factor::Count => "10..1000:x10",
            Factor::Streams => "1,4,16",
            Factor::Congestion => "cubic,bbr",
            Factor::Pacing => "50mbit,100mbit",
            Factor::Mss => "536,1400",
            Factor::Direction => "forward,reverse",
        }
    }

    /// Returns a value with its unit for a column of this factor: `9.096 MB`.
    pub fn show(self, value: &Value) -> String {
        match (self.unit(), value) {
            (_, Value::Name(name)) => name.clone(),
            (_, Value::Number(bytes)) if self == Factor::Mss => format!("{bytes} B"),
            (Unit::Bytes, Value::Number(bytes)) => Bytes(*bytes).to_string(),
            (Unit::Rate, Value::Number(rate)) => BitRate(*rate).to_string(),
            (_, Value::Number(number)) => number.to_string(),
        }
    }
}

impl Level {
    /// Returns the level in words, for a sentence: `9.1 MB`, `scale 8`, `4 streams`.
    pub fn phrase(&self) -> String {
        match (self.factor.unit(), &self.value) {
            (Unit::Bytes, Value::Number(bytes)) if self.factor != Factor::Mss => self.phrase_of(short_bytes(*bytes)),
            _ => self.exact_phrase(),
        }
    }

    /// Returns the level in words with four digits: `9.096 MB`.
    pub fn exact_phrase(&self) -> String {
        self.phrase_of(self.factor.show(&self.value))
    }

    fn phrase_of(&self, value: String) -> String {
        match self.factor {
            Factor::Window | Factor::Congestion | Factor::Direction => value,
            Factor::FarWindow => format!("far window {value}"),
            Factor::WindowScale => format!("scale {value}"),
            Factor::SendBuffer => format!("send buffer {value}"),
            Factor::ReceiveBuffer => format!("receive buffer {value}"),
            Factor::Record => format!("records of {value}"),
            Factor::Count if value == "1" => "1 record".to_owned(),
            Factor::Count => format!("{value} records"),
            Factor::Streams if value == "1" => "1 stream".to_owned(),
            Factor::Streams => format!("{value} streams"),
            Factor::Pacing => format!("pacing {value}"),
            Factor::Mss => format!("MSS {value}"),
        }
    }
}

/// Returns bytes with two digits at least: `9.1 MB`, `64 KiB`, `4.5 MB`.
fn short_bytes(bytes: u64) -> String {
    const UNITS: [(f64, &str); 3] = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let exact = Bytes(bytes).to_string();
    if exact.ends_with("iB") || bytes < 1000 {
        return exact;
    }
    let (size, unit) = UNITS.into_iter().find(|(size, _)| bytes as f64 >= *size).unwrap_or((1.0, "B"));
    let value = format!("{:.1}", bytes as f64 / size);
    format!("{} {unit}", value.strip_suffix(".0").unwrap_or(&value))
}

/// Returns the levels of a point in words: `9.1 MB and scale 8`.
pub fn phrases(levels: &[Level]) -> String {
    enumerate(&levels.iter().map(Level::phrase).collect::<Vec<_>>())
}

/// Joins words with commas and "and".
pub(crate) fn enumerate(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_factors_are_those_of_their_json() {
        for factor in Factor::ALL {
            assert_eq!(serde_json::to_value(factor).unwrap(), factor.name());
            assert_eq!(Factor::of_name(factor.name()), Some(factor));
        }
    }

    #[test]
    fn a_point_reads_as_a_phrase() {
        let levels = [(Factor::Window, 9_095_625), (Factor::WindowScale, 8), (Factor::Streams, 1)]
            .map(|(factor, number)| Level { factor, value: Value::Number(number) });
        assert_eq!(phrases(&levels), "9.1 MB, scale 8 and 1 stream");
        assert_eq!(phrases(&levels[..2]), "9.1 MB and scale 8");
    }
}
