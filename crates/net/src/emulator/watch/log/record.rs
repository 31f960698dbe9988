//! What the taps tell the log.

use std::time::Duration;

use lfn_core::link::segment::Endpoints;
use lfn_core::link::{Direction, DropCause, Event, Packet};
use lfn_core::time::Instant;

use crate::emulator::data_path::Unforeseen;

/// Bytes kept of each frame in a capture: all headers there may be, and the start of what they carry.
pub(super) const SNAP: usize = 256;
/// Places of one path at which a packet can be seen.
pub(super) const POINTS: usize = 3;

/// One thing to log.
pub(super) enum Record {
    /// What became of virtual packets.
    Fate(Box<Fate>),
    /// A frame, seen.
    Sight(Box<Sight>),
}

/// What became of a range of virtual packets.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    /// Counted from 0.
    pub(super) path: usize,
    pub(super) direction: Direction,
    /// The super-packet it is of.
    pub(super) arrival: Arrival,
    pub(super) what: What,
}

/// When and as what a super-packet came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Frames that came before it in this direction.
    pub(super) serial: u64,
    /// Virtual packets that the link was given before it in this direction.
    pub(super) packets_before: u64,
    pub(super) at: Instant,
    pub(super) endpoints: Option<Endpoints>,
}

/// What can become of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// The link did this, and it was `now` when it was done.
    Happened(Event, Instant),
    /// It was lost outside the model at this time.
    Lost(Packet, Unforeseen, Instant),
    /// The emulator told the sender what would pass, with a packet of its own, whose endpoints are the arrival's.
    Answered(Packet, Answer, Instant),
    /// So many virtual packets were in the link when the run ended.
    InFlight(u32),
}

/// A packet of the emulator's own to the sender of what was too big.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// IP bytes that would pass.
    pub(super) mtu: u16,
    /// Its own bytes, with the Ethernet header.
    pub(super) bytes: usize,
}

/// A frame as it was seen at one point of a path.
pub(super) struct Sight {
    pub(super) place: Place,
    /// True if it came from a side, false if it was sent to one.
    pub(super) inbound: bool,
    /// The same for the same frame in the same direction.
    pub(super) serial: u64,
    pub(super) direction: Direction,
    pub(super) at: Instant,
    /// What is to be said of it.
    pub(super) note: Note,
    /// Bytes of the whole frame.
    pub(super) length: usize,
    /// How many of them are in `bytes`.
    pub(super) kept: usize,
    pub(super) bytes: [u8; SNAP],
}

/// What is to be said of a frame that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Why it goes no further, and how many virtual packets it stands for.
    pub(super) gone: Option<(Gone, u32)>,
    /// It is the emulator's own, and says that so many bytes pass.
    pub(super) answer: Option<u16>,
    /// What the link did to it.
    pub(super) marked: bool,
    pub(super) damaged: bool,
    pub(super) is_copy: bool,
}

/// Why a frame goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// The link dropped it.
    Dropped(DropCause),
    /// The emulator did.
    Lost(Unforeseen),
}

/// A point of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Counted from 0.
    pub(super) path: usize,
    pub(super) point: Point,
}

/// Where on a path packets are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// Between the near side and the link.
    Near,
    /// Between the link and the far side.
    Far,
    /// Where the link puts what it drops.
    Dropped,
}

/// When the log began, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zero {
    pub(super) instant: Instant,
    /// Nanoseconds since 1970.
    pub(super) wall: u64,
}

impl Place {
    /// Counts through all places of all paths.
    pub(super) fn index(self) -> usize {
        self.path * POINTS + self.point as usize
    }
}

impl Point {
    pub(super) const ALL: [Point; POINTS] = [Point::Near, Point::Far, Point::Dropped];

    /// Where packets of a direction come in.
    pub(super) fn entrance(direction: Direction) -> Point {
        match direction {
            Direction::Forward => Point::Near,
            Direction::Return => Point::Far,
        }
    }

    /// Where packets of a direction go out.
    pub(super) fn exit(direction: Direction) -> Point {
        match direction {
            Direction::Forward => Point::Far,
            Direction::Return => Point::Near,
        }
    }
}

impl Zero {
    /// Nanoseconds since the log began; negative for what came before.
    pub(super) fn since(&self, at: Instant) -> i64 {
        let (later, earlier) = (nanos(at - self.instant), nanos(self.instant - at));
        later.saturating_sub(earlier)
    }

    /// Nanoseconds since 1970.
    pub(super) fn wall(&self, at: Instant) -> u64 {
        self.wall.saturating_add_signed(self.since(at))
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
