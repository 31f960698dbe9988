//! Records that the taps send to the log writer.

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_link::{DropCause, LinkDirection, LinkEvent, Packet};
use lfn_packet::Endpoints;

use crate::data_path::UnmodelledDrop;

/// Bytes kept of each captured frame: all possible headers, and the start of the payload.
pub(super) const SNAP_LENGTH: usize = 256;
/// Number of points of one path at which a packet can be captured.
pub(super) const TAP_POINTS: usize = 3;

/// A record of the packet log.
pub(super) enum Record {
    Outcome(Box<PacketOutcome>),
    Frame(Box<CapturedFrame>),
}

/// Outcome of a range of virtual packets.
#[derive(Clone, Debug)]
pub(super) struct PacketOutcome {
    /// Number of the path, from 0.
    pub(super) path: usize,
    pub(super) direction: LinkDirection,
    pub(super) arrival: FrameArrival,
    pub(super) kind: OutcomeKind,
}

/// Arrival of a super-packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameArrival {
    /// Frames that arrived before this one in this direction.
    pub(super) serial: u64,
    /// Virtual packets that entered the link before this frame in this direction.
    pub(super) packets_before: u64,
    pub(super) at: Instant,
    pub(super) endpoints: Option<Endpoints>,
}

/// Possible outcomes of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutcomeKind {
    /// An event of the link, and the time when it was handled.
    LinkEvent(LinkEvent, Instant),
    /// Lost outside the model at this time.
    UnmodelledDrop(Packet, UnmodelledDrop, Instant),
    /// The emulator sent an ICMP "too big" packet to the sender. The endpoints of the arrival are those of the ICMP
    /// packet.
    IcmpReply(Packet, IcmpReply, Instant),
    /// Number of virtual packets in the link at the end of the run.
    InFlight(u32),
}

/// An ICMP packet that the emulator sent to the sender of a packet that was too big.
#[derive(Clone, Copy, Debug)]
pub(super) struct IcmpReply {
    /// Size of the largest IP packet that would pass.
    pub(super) mtu: u16,
    /// Size of the ICMP packet, with the Ethernet header.
    pub(super) bytes: usize,
}

/// A frame as it was captured at one point of a path.
pub(super) struct CapturedFrame {
    pub(super) capture_point: CapturePoint,
    /// True if the frame came from a side, false if it was sent to a side.
    pub(super) is_inbound: bool,
    /// The same for the same frame in the same direction.
    pub(super) serial: u64,
    pub(super) direction: LinkDirection,
    pub(super) at: Instant,
    pub(super) note: FrameNote,
    /// Bytes of the whole frame.
    pub(super) length: usize,
    /// Number of these bytes that are in `bytes`.
    pub(super) captured: usize,
    pub(super) bytes: [u8; SNAP_LENGTH],
}

/// Annotations of a captured frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FrameNote {
    /// Reason of the drop, and the number of virtual packets in the frame.
    pub(super) drop: Option<(DropReason, u32)>,
    /// Set for an ICMP packet of the emulator: the MTU that the packet reports, in bytes.
    pub(super) reply_mtu: Option<u16>,
    pub(super) is_marked: bool,
    pub(super) is_corrupted: bool,
    pub(super) is_copy: bool,
}

/// Reason why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropReason {
    Link(DropCause),
    Emulator(UnmodelledDrop),
}

/// A capture point of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CapturePoint {
    /// Number of the path, from 0.
    pub(super) path: usize,
    pub(super) point: TapPoint,
}

/// Position on a path where packets are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TapPoint {
    /// Between the near side and the link.
    Near,
    /// Between the link and the far side.
    Far,
    /// A separate interface for packets that the link drops.
    Dropped,
}

/// Start of the log on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogStart {
    pub(super) instant: Instant,
    /// In nanoseconds since 1970.
    pub(super) wall: u64,
}

impl CapturePoint {
    /// Returns the number of this point among all points of all paths.
    pub(super) fn index(self) -> usize {
        self.path * TAP_POINTS + self.point as usize
    }
}

impl TapPoint {
    pub(super) const ALL: [TapPoint; TAP_POINTS] = [TapPoint::Near, TapPoint::Far, TapPoint::Dropped];

    /// Returns the extension of a capture file of this point.
    pub(super) fn extension(self) -> &'static str {
        match self {
            TapPoint::Near => "near.pcapng",
            TapPoint::Far => "far.pcapng",
            TapPoint::Dropped => "dropped.pcapng",
        }
    }

    /// Returns the point where packets of a direction enter the link.
    pub(super) fn entrance(direction: LinkDirection) -> TapPoint {
        match direction {
            LinkDirection::Forward => TapPoint::Near,
            LinkDirection::Return => TapPoint::Far,
        }
    }

    /// Returns the point where packets of a direction leave the link.
    pub(super) fn exit(direction: LinkDirection) -> TapPoint {
        match direction {
            LinkDirection::Forward => TapPoint::Far,
            LinkDirection::Return => TapPoint::Near,
        }
    }
}

impl LogStart {
    /// Returns nanoseconds since the start of the log, negative for an earlier time.
    pub(super) fn since(&self, at: Instant) -> i64 {
        let (later, earlier) = (nanos(at - self.instant), nanos(self.instant - at));
        later.saturating_sub(earlier)
    }

    /// Returns nanoseconds since 1970.
    pub(super) fn wall(&self, at: Instant) -> u64 {
        self.wall.saturating_add_signed(self.since(at))
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
