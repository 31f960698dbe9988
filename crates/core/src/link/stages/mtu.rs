//! The path MTU: packets longer than the link carries are dropped, told of or not.
//!
//! A router that drops an IPv4 packet with DF, or any IPv6 packet, says so to its sender by ICMP (RFC 1191 §4, RFC 8201
//! §3); where the message is filtered there is a black hole (RFC 2923 §2.1), which only RFC 4821 finds. Nothing is
//! fragmented here, also where DF is not set. The message is written by whoever holds the bytes: the drop says which
//! MTU it is to name.

use std::fmt;
use std::str::FromStr;

use super::ranges::apart_as;
use crate::link::outbox::Outbox;
use crate::link::setting::{Parts, SettingError, count};
use crate::link::{DropCause, Event, LinkConfig, LinkError, Packet, Stage};
use crate::time::Instant;
use crate::units::QuantityError;

/// The longest IP packet that passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// Bytes of the IP packet, its header included; at least 68 (RFC 791 §3.2). IPv6 needs 1280 (RFC 8200 §5).
    pub mtu: u16,
    /// True if nobody is told.
    pub black_hole: bool,
}

const FORM: &str = "MTU or MTU:black-hole, such as 1400";

impl FromStr for PathMtu {
    type Err = SettingError;

    /// `1400`, `1400:black-hole`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let mut parts = Parts::all(text, FORM);
        let mtu = parts.next("the MTU", mtu)?;
        let black_hole = parts.flag("black-hole");
        parts.end()?;
        let mtu = PathMtu { mtu, black_hole };
        mtu.check()?;
        Ok(mtu)
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.mtu, if self.black_hole { ":black-hole" } else { "" })
    }
}

impl PathMtu {
    /// Refuses what no IP passes.
    pub fn check(&self) -> Result<(), LinkError> {
        if self.mtu < LEAST_MTU { Err(LinkError::MtuTooSmall(self.mtu)) } else { Ok(()) }
    }
}

/// Every IPv4 link carries so much (RFC 791 §3.2).
const LEAST_MTU: u16 = 68;

fn mtu(text: &str) -> Result<u16, QuantityError> {
    let too_large = |_| QuantityError::TooLarge { text: text.to_owned(), quantity: "path MTU", most: "65535" };
    count(text)?.try_into().map_err(too_large)
}

/// Drops what is too long.
pub(super) struct TooBig {
    limit: Option<PathMtu>,
    out: Outbox,
}

impl TooBig {
    pub(super) fn new(config: &LinkConfig) -> Self {
        TooBig { limit: config.path_mtu, out: Outbox::default() }
    }
}

impl Stage for TooBig {
    fn push(&mut self, packet: Packet, now: Instant) {
        let Some(limit) = self.limit else { return self.out.forward(packet, now) };
        let fits = |wire: u32| wire <= u32::from(limit.mtu) + u32::from(packet.link_header);
        let reply_mtu = (!limit.black_hole).then_some(limit.mtu);
        // The last virtual packet may be shorter than the others, and pass where they do not.
        let fates = [(fits(packet.wire), packet.count - 1), (fits(packet.last_wire), 1)];
        apart_as(packet, fates, |fits, packet| {
            self.out.push(match fits {
                true => Event::Forward { packet, due: now },
                false => Event::Drop { packet, cause: DropCause::TooBig, at: now, reply_mtu },
            });
        });
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        self.out.pop(now)
    }

    fn next(&self) -> Option<Instant> {
        self.out.next()
    }

    fn set(&mut self, config: &LinkConfig, _now: Instant) {
        self.limit = config.path_mtu;
    }
}
