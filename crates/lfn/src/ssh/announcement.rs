//! The line in which a far end that ssh started says where it listens, and what lets its one client in.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use lfn_core::session::{Fingerprint, Ticket, Token};
use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// Its version; one with another speaks otherwise.
const SCHEMA: &str = "lfn.stdio/1";

/// The line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    schema: String,
    /// Where it listens, on every address of its host.
    #[serde(default)]
    pub port: u16,
    #[serde(default)]
    token: Option<Token>,
    #[serde(default)]
    fingerprint: Option<Fingerprint>,
    /// By which addresses it may be reached.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

impl Announcement {
    /// Of a server with that ticket.
    pub fn new(ticket: &Ticket, addresses: Vec<IpAddr>) -> Self {
        Announcement {
            schema: SCHEMA.to_owned(),
            port: ticket.port,
            token: Some(ticket.token),
            fingerprint: Some(ticket.fingerprint),
            addresses,
        }
    }

    /// The line, if it is one of those, of whatever version.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let read: Announcement = serde_json::from_slice(line).ok()?;
        read.schema.starts_with("lfn.stdio/").then_some(read)
    }

    /// Itself, if this version of lfn understands it.
    pub(super) fn check(self, host: &str) -> Result<Self, Failure> {
        if self.schema == SCHEMA && self.port != 0 && self.token.is_some() && self.fingerprint.is_some() {
            return Ok(self);
        }
        Err(Failure::msg(format!("{host}: lfn there speaks {}, this one {SCHEMA}", self.schema))
            .hint("use the same version of lfn at both ends: lfn --version"))
    }

    /// The ticket to dial it with as `host`.
    pub(super) fn ticket(&self, host: String) -> Ticket {
        let token = self.token.unwrap_or(Token::from_bytes([0; 16]));
        let fingerprint = self.fingerprint.unwrap_or(Fingerprint([0; 32]));
        Ticket { host, port: self.port, token, fingerprint }
    }
}

/// Ports to listen on, one after the other until one is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Whichever the kernel gives.
    pub const ANY: Ports = Ports { first: 0, last: 0 };

    /// Each of them.
    pub fn iter(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no port and no range of ports, such as 7400-7409");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse().ok().filter(|port| *port != 0).ok_or_else(wrong);
        let ports = Ports { first: port(first)?, last: port(last)? };
        if ports.first <= ports.last { Ok(ports) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_line_leads_to_its_ticket_and_others_are_passed_over() {
        let ticket = Ticket {
            host: "far".into(),
            port: 7400,
            token: Token::from_bytes([7; 16]),
            fingerprint: Fingerprint([9; 32]),
        };
        let line = serde_json::to_vec(&Announcement::new(&ticket, vec![])).unwrap();
        assert_eq!(Announcement::read(&line).unwrap().check("far").unwrap().ticket("far".into()), ticket);
        for other in ["", "Welcome!", "{}", "{\"schema\":\"lfn.serve/1\"}", "\u{fffd}", "[1]"] {
            assert_eq!(Announcement::read(other.as_bytes()), None, "{other}");
        }
        let newer = Announcement::read(b"{\"schema\":\"lfn.stdio/2\",\"socket\":1}").unwrap();
        assert!(newer.check("far").is_err());
        let empty = Announcement::read(b"{\"schema\":\"lfn.stdio/1\",\"port\":1}").unwrap();
        assert!(empty.check("far").is_err());
    }

    #[test]
    fn ports_are_one_or_a_range() {
        for (text, shown) in [("7400", "7400-7400"), ("1-65535", "1-65535")] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), shown);
        }
        for text in ["", "0", "5-4", "1-", "-1", "1-2-3", "65536", "a"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }
}
