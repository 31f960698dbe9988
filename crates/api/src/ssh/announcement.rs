//! The first line that a server started over ssh prints: its port, its token and its addresses.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use lfn_session::{Fingerprint, Ticket, Token};
use serde::{Deserialize, Serialize};

use super::error::SshError;

const SCHEMA: &str = "lfn.stdio/1";

/// Message with which a server started over ssh announces itself, one JSON object on one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Announcement {
    /// Name and version of the schema.
    schema: String,
    /// Port that the server listens on.
    #[serde(default)]
    pub port: u16,
    /// Token of the only client.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    #[serde(default)]
    token: Option<Token>,
    /// Fingerprint of the server's key.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    #[serde(default)]
    fingerprint: Option<Fingerprint>,
    /// Addresses at which the client may reach the server.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

impl Announcement {
    /// Creates the announcement of a server with this ticket.
    pub fn new(ticket: &Ticket, addresses: Vec<IpAddr>) -> Self {
        Announcement {
            schema: SCHEMA.to_owned(),
            port: ticket.port,
            token: Some(ticket.token),
            fingerprint: Some(ticket.fingerprint),
            addresses,
        }
    }

    /// Parses the line. Returns `None` for any other line. Accepts every version.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let read: Announcement = serde_json::from_slice(line).ok()?;
        read.schema.starts_with("lfn.stdio/").then_some(read)
    }

    /// Returns the announcement, or an error if its version differs from the version of this binary.
    pub(super) fn check_version(self, host: &str) -> Result<Self, SshError> {
        if self.schema == SCHEMA && self.port != 0 && self.token.is_some() && self.fingerprint.is_some() {
            return Ok(self);
        }
        Err(SshError::OtherVersion { host: host.to_owned(), theirs: self.schema, ours: SCHEMA })
    }

    /// Returns the ticket with which the client dials the server as `host`.
    pub(super) fn ticket(&self, host: String) -> Ticket {
        let token = self.token.unwrap_or(Token::from_bytes([0; 16]));
        let fingerprint = self.fingerprint.unwrap_or(Fingerprint([0; 32]));
        Ticket { host, port: self.port, token, fingerprint }
    }
}

/// Range of ports to listen on. The server tries them in order until one is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Any free port, chosen by the kernel.
    pub const ANY: PortRange = PortRange { first: 0, last: 0 };

    /// Iterates over the ports.
    pub fn iter(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is not a port or a range of ports such as 7400-7409");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse().ok().filter(|port| *port != 0).ok_or_else(wrong);
        let ports = PortRange { first: port(first)?, last: port(last)? };
        if ports.first <= ports.last { Ok(ports) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn announcement_is_found_among_other_lines() {
        let ticket = Ticket {
            host: "far".into(),
            port: 7400,
            token: Token::from_bytes([7; 16]),
            fingerprint: Fingerprint([9; 32]),
        };
        let line = serde_json::to_vec(&Announcement::new(&ticket, vec![])).unwrap();
        assert_eq!(Announcement::parse(&line).unwrap().check_version("far").unwrap().ticket("far".into()), ticket);
        for other in ["", "Welcome!", "{}", "{\"schema\":\"lfn.serve/1\"}", "\u{fffd}", "[1]"] {
            assert_eq!(Announcement::parse(other.as_bytes()), None, "{other}");
        }
        let newer = Announcement::parse(b"{\"schema\":\"lfn.stdio/2\",\"socket\":1}").unwrap();
        assert!(newer.check_version("far").is_err());
        let empty = Announcement::parse(b"{\"schema\":\"lfn.stdio/1\",\"port\":1}").unwrap();
        assert!(empty.check_version("far").is_err());
    }

    #[test]
    fn port_range_accepts_one_port_or_a_range() {
        for (text, shown) in [("7400", "7400-7400"), ("1-65535", "1-65535")] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), shown);
        }
        for text in ["", "0", "5-4", "1-", "-1", "1-2-3", "65536", "a"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }
}
