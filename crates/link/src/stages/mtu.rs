//! Path MTU: packets that are too long for the link are dropped, with or without a message to the sender.
//!
//! A router that drops an IPv4 packet with DF or any IPv6 packet sends an ICMP message to the sender (RFC 1191 §4, RFC
//! 8201 §3). A filtered message causes a black hole (RFC 2923 §2.1), which only RFC 4821 detects. The stage never
//! fragments, even without DF. The caller holds the bytes and writes the message; the drop event gives the MTU for it.

use std::fmt;
use std::str::FromStr;

use lfn_base::time::Instant;
use lfn_base::units::QuantityError;

use super::ranges::split_by_known_outcomes;
use crate::error::LinkError;
use crate::hop_context::HopContext;
use crate::key::{Key, key};
use crate::outbox::Outbox;
use crate::packet::{DropCause, LinkEvent, Packet};
use crate::setting::{Parts, SettingError, parse_count};
use crate::stage::{ImpairmentStage, Stage};
use crate::value::{Effects, impl_value};

pub(super) const KEY: Key = Key {
    words: &["black-hole", "none"],
    ..key!(
        Loss,
        "path-mtu",
        "BYTES",
        "1400",
        "Limit the length of IP packets: 1400, or 1400:black-hole to send no ICMP message",
        "Maximum IP packet that passes. The sender of a larger packet gets an ICMP error; with `1400:black-hole` it \
         gets none."
    )
};

/// Maximum length of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// Bytes of the IP packet including its header; at least 68 (RFC 791 §3.2). IPv6 needs 1280 (RFC 8200 §5).
    pub mtu: u16,
    /// Whether the sender gets no message.
    pub is_black_hole: bool,
}

const FORM: &str = "MTU or MTU:black-hole, for example 1400";

impl FromStr for PathMtu {
    type Err = SettingError;

    /// Reads `1400` or `1400:black-hole`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let mut parts = Parts::split(text, FORM);
        let mtu = parts.next("the MTU", parse_mtu)?;
        let black_hole = parts.take_flag("black-hole");
        parts.finish()?;
        let mtu = PathMtu { mtu, is_black_hole: black_hole };
        mtu.check()?;
        Ok(mtu)
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.mtu, if self.is_black_hole { ":black-hole" } else { "" })
    }
}

impl PathMtu {
    /// Refuses an MTU below the minimum of IP.
    pub fn check(&self) -> Result<(), LinkError> {
        if self.mtu < MIN_MTU { Err(LinkError::MtuTooSmall(self.mtu)) } else { Ok(()) }
    }
}

impl_value!(PathMtu, to_string);

impl Effects for PathMtu {
    fn check(&self) -> Result<(), LinkError> {
        PathMtu::check(self)
    }
}

/// Minimum of every IPv4 link (RFC 791 §3.2).
const MIN_MTU: u16 = 68;

fn parse_mtu(text: &str) -> Result<u16, QuantityError> {
    let too_large = |_| QuantityError::TooLarge { text: text.to_owned(), quantity: "path MTU", max: "65535" };
    parse_count(text)?.try_into().map_err(too_large)
}

/// Drops packets that exceed the path MTU.
pub(super) struct MtuStage {
    limit: Option<PathMtu>,
    out: Outbox,
}

impl Stage for MtuStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        let Some(limit) = self.limit else { return self.out.forward(packet, now) };
        let fits = |wire: u32| wire <= u32::from(limit.mtu) + u32::from(packet.link_header);
        let reply_mtu = (!limit.is_black_hole).then_some(limit.mtu);
        // The last virtual packet may be shorter than the others and pass when they do not.
        let outcomes = [(fits(packet.wire_len), packet.count - 1), (fits(packet.last_wire_len), 1)];
        split_by_known_outcomes(packet, outcomes, |fits, packet| {
            self.out.push(match fits {
                true => LinkEvent::Forward { packet, due: now },
                false => LinkEvent::Drop { packet, cause: DropCause::TooBig, at: now, reply_mtu },
            });
        });
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        self.out.pop(now)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.out.next_event_at()
    }
}

impl ImpairmentStage for MtuStage {
    type Settings = Option<PathMtu>;

    fn new(settings: Option<PathMtu>, _context: &HopContext) -> Self {
        MtuStage { limit: settings, out: Outbox::default() }
    }

    fn set(&mut self, settings: Option<PathMtu>, _context: &HopContext, _now: Instant) {
        self.limit = settings;
    }
}
