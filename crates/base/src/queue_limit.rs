//! Limit of a queue in bytes or packets, with its text form. A [`QueueLimit`] is the value of a
//! [`QueueSize`](crate::path::QueueSize) on a given path.

use std::fmt;
use std::str::FromStr;

use crate::units::{Bytes, QuantityError};

/// Maximum length of a queue. The packet on the line counts until its last bit is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// Bytes with the overhead of the line's layer. The maximum wait is the time to send these bytes.
    Bytes(Bytes),
    /// Packets of any length.
    Packets(u32),
}

impl QueueLimit {
    /// Returns the maximum bytes for packets of at most `largest` bytes.
    pub fn max_bytes(self, largest: Bytes) -> Bytes {
        match self {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => Bytes(u64::from(packets).saturating_mul(largest.0)),
        }
    }

    /// Returns the exact text without spaces, such as `64KiB` or `100p`. Parsing the text returns the same limit.
    pub fn to_argument(self) -> String {
        match self {
            QueueLimit::Bytes(bytes) => bytes.to_argument(),
            QueueLimit::Packets(packets) => format!("{packets}p"),
        }
    }
}

impl FromStr for QueueLimit {
    type Err = QuantityError;

    /// Reads `30kB`, `65536`, `100p` or `100packets`.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match parse_packets(text) {
            Some(packets) => packets.map(QueueLimit::Packets),
            None => text.parse().map(QueueLimit::Bytes),
        }
    }
}

/// Reads the number before `p` or `packets`; `None` if the text has no such unit.
pub(crate) fn parse_packets(text: &str) -> Option<Result<u32, QuantityError>> {
    let lower = text.trim().to_ascii_lowercase();
    let number = ["packets", "packet", "p"].iter().find_map(|unit| lower.strip_suffix(unit))?;
    Some(parse_whole(number, text, "number of packets", "100p"))
}

/// Reads a whole number. Errors name the `quantity`, and give the `example`.
pub fn parse_whole(
    number: &str,
    text: &str,
    quantity: &'static str,
    example: &'static str,
) -> Result<u32, QuantityError> {
    let number = number.trim();
    let text = text.to_owned();
    number.parse().map_err(|_| match number.parse::<f64>() {
        Ok(value) if value < 0.0 => QuantityError::Negative { text, quantity },
        Ok(value) if value > f64::from(u32::MAX) => QuantityError::TooLarge { text, quantity, max: "4,294,967,295" },
        _ => QuantityError::NotANumber { text, quantity, example },
    })
}

impl From<Bytes> for QueueLimit {
    fn from(bytes: Bytes) -> Self {
        QueueLimit::Bytes(bytes)
    }
}

impl fmt::Display for QueueLimit {
    /// Writes `9.096 MB` or `100 packets`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Bytes(bytes) => bytes.fmt(f),
            QueueLimit::Packets(1) => f.pad("1 packet"),
            QueueLimit::Packets(packets) => f.pad(&format!("{packets} packets")),
        }
    }
}
