//! DSCP mark of packets (RFC 2474), by name or number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A differentiated services code point, 0 to 63: the upper six bits of the IPv4 TOS byte or the IPv6 traffic class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "schema"), schemars(extend("maximum" = 63)))]
pub struct Dscp(u8);

/// A text that is no code point.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a DSCP: expected 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA or LE")]
pub struct DscpError(String);

impl Dscp {
    /// Returns the code point with this number, or `None` above 63.
    pub fn new(number: u8) -> Option<Self> {
        (number < 64).then_some(Dscp(number))
    }

    /// Returns the TOS byte, with both ECN bits zero.
    pub fn tos(self) -> u8 {
        self.0 << 2
    }

    /// Extracts the code point from a TOS byte.
    pub fn of_tos(tos: u8) -> Self {
        Dscp(tos >> 2)
    }

    /// Returns the registered name, if there is one.
    fn name(self) -> Option<String> {
        Some(match self.0 {
            46 => "EF".into(),
            44 => "VA".into(),
            1 => "LE".into(),
            n if n % 8 == 0 => format!("CS{}", n / 8),
            n if n % 2 == 0 && (1..=4).contains(&(n / 8)) && n % 8 < 8 => format!("AF{}{}", n / 8, n % 8 / 2),
            _ => return None,
        })
    }
}

impl TryFrom<u8> for Dscp {
    type Error = DscpError;

    fn try_from(number: u8) -> Result<Self, DscpError> {
        Dscp::new(number).ok_or_else(|| DscpError(number.to_string()))
    }
}

impl From<Dscp> for u8 {
    fn from(dscp: Dscp) -> u8 {
        dscp.0
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name}"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Dscp {
    type Err = DscpError;

    fn from_str(text: &str) -> Result<Self, DscpError> {
        let wanted = text.trim();
        let number = match wanted.strip_prefix("0x") {
            Some(hex) => u8::from_str_radix(hex, 16).ok(),
            None => wanted.parse().ok(),
        };
        let named = || (0..64).map(Dscp).find(|dscp| dscp.name().is_some_and(|name| name.eq_ignore_ascii_case(wanted)));
        number.map_or_else(named, Dscp::new).ok_or_else(|| DscpError(wanted.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_the_registry() {
        // RFC 2474 (CS), 2597 (AF), 3246 (EF), 5865 (VA), 8622 (LE).
        for (name, number) in
            [("CS0", 0), ("LE", 1), ("CS1", 8), ("AF11", 10), ("AF23", 22), ("AF43", 38), ("EF", 46), ("CS7", 56)]
        {
            let dscp: Dscp = name.parse().unwrap();
            assert_eq!((u8::from(dscp), dscp.to_string().as_str()), (number, name));
            assert_eq!(dscp.tos(), number << 2);
            assert_eq!(Dscp::of_tos(dscp.tos() | 3), dscp, "ECN is no part of it");
        }
        assert_eq!("ef".parse::<Dscp>().unwrap(), "0x2e".parse().unwrap());
        assert_eq!(Dscp(45).to_string(), "45");
    }

    #[test]
    fn code_points_round_trip_through_text() {
        for number in 0..64 {
            let dscp = Dscp(number);
            assert_eq!(dscp.to_string().parse(), Ok(dscp));
        }
        for wrong in ["64", "-1", "AF44", "AF10", "CS8", "", "best"] {
            assert!(wrong.parse::<Dscp>().is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<Dscp>("64").is_err());
    }
}
