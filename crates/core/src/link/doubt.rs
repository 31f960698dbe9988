//! Settings that a link can do and nobody is likely to mean: to be said before it runs.

use super::LinkConfig;
use crate::units::{Bytes, Ratio};

/// What is odd about the settings of one hop. What contradicts itself is a [`LinkError`](super::LinkError).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkDoubt {
    /// Most likely a percent sign is missing: 1 is the whole.
    #[error("a loss of 100 % lets nothing through (1% is the hundredth part, 1 is the whole)")]
    AllLost,
    /// Full packets are all dropped; TCP gets no further than its handshake. Give at least one packet.
    #[error("a {what} with a burst of {} passes no packet of {}", .burst.exact(), .packet.exact())]
    BurstBelowPacket {
        /// Policer or shaper.
        what: &'static str,
        /// Its burst.
        burst: Bytes,
        /// The longest packet that gets so far.
        packet: Bytes,
    },
    /// Nothing can wait. Give it room for more, or set a policer.
    #[error("a shaper that holds {} has no room for a packet of {}: it only drops", .limit.exact(), .packet.exact())]
    NoRoomToWait {
        /// Most it holds back.
        limit: Bytes,
        /// The longest packet that gets so far.
        packet: Bytes,
    },
    /// Nothing is ever too big. Give less than the MTU of the interfaces.
    #[error("a path MTU of {path_mtu} has no effect: no longer packets come than {mtu} bytes")]
    MtuWithoutEffect {
        /// What was set.
        path_mtu: u16,
        /// The MTU of the interfaces.
        mtu: u64,
    },
    /// IPv6 needs 1280 (RFC 8200 §5): its senders do not go lower, whatever they are told.
    #[error("a path MTU of {0} is below 1280 bytes, which IPv6 needs")]
    MtuBelowIpv6(u16),
}

/// Bytes of the Ethernet header.
const HEADER: u64 = 14;

impl LinkConfig {
    /// What to ask back about.
    pub fn doubts(&self) -> Vec<LinkDoubt> {
        let mut doubts = Vec::new();
        if self.loss.mean() == Ratio::ALL {
            doubts.push(LinkDoubt::AllLost);
        }
        let mut packet = self.largest_packet;
        if let Some(path_mtu) = self.path_mtu.map(|limit| limit.mtu) {
            let mtu = packet.0.saturating_sub(HEADER);
            if u64::from(path_mtu) >= mtu {
                doubts.push(LinkDoubt::MtuWithoutEffect { path_mtu, mtu });
            } else if path_mtu < 1280 {
                doubts.push(LinkDoubt::MtuBelowIpv6(path_mtu));
            }
            packet = packet.min(Bytes(u64::from(path_mtu) + HEADER));
        }
        let policer = self.policer.map(|policer| ("policer", policer.burst));
        let shaper = self.shaper.map(|shaper| ("shaper", shaper.burst));
        let small = policer.into_iter().chain(shaper).filter(|(_, burst)| *burst < packet);
        doubts.extend(small.map(|(what, burst)| LinkDoubt::BurstBelowPacket { what, burst, packet }));
        if let Some(limit) = self.shaper.map(|shaper| shaper.limit).filter(|limit| *limit < packet) {
            doubts.push(LinkDoubt::NoRoomToWait { limit, packet });
        }
        doubts
    }
}
