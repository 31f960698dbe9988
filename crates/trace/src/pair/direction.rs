//! One direction of a connection in both captures: segments that wait for their counterpart, and the counts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_packet::{TcpFlags, TcpSegment};

use super::offset::signed_difference;
use super::samples::Samples;
use super::side::{CaptureSide, MATCH_TIME};

/// Maximum number of segments of one capture that wait for their counterpart.
const MAX_WAITING: usize = 50_000;
/// Maximum number of groups of losses that are kept.
const MAX_GROUPS: usize = 20;
/// Time by which the other capture must outlast a segment, so that the segment counts as lost.
const MIN_OUTLASTING: Duration = Duration::from_secs(1);
/// Segments whose arrival times are kept for the lateness of later ones.
const MAX_IN_ORDER: usize = 512;
/// Segments among which a second copy by the same capture is searched.
const RECENT: usize = 32;

/// Place of a waiting part: its first byte, and the number of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PieceKey {
    start: u64,
    number: u64,
}

/// Waiting part that matches a segment of the other capture.
#[derive(Clone, Copy, Debug)]
struct FoundPiece {
    key: PieceKey,
    piece: Piece,
}

/// Figures of the connection for payload without a counterpart.
#[derive(Clone, Copy, Debug)]
struct GiveUpContext {
    mss: u64,
    /// Highest byte that was acknowledged.
    acknowledged: u64,
    first: u64,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Direction {
    sides: [Side; 2],
    /// First and highest sequence number so far, both without wrapping.
    stream: Option<(u64, u64)>,
    /// Highest acknowledged sequence number, without wrapping.
    acknowledged: u64,
    mss: u32,
    pub(super) matched_bytes: u64,
    /// Time in the far capture minus time in the near one.
    pub(super) differences: Samples,
}

/// Segments of this direction in one capture.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Payload without a counterpart, by its first byte and the number of its segment.
    pieces: BTreeMap<PieceKey, Piece>,
    /// Segments with such payload, in order.
    waiting: VecDeque<WaitingSegment>,
    /// Segments without payload and without counterpart.
    controls: HashMap<ControlKey, VecDeque<Control>>,
    waiting_controls: VecDeque<(Instant, ControlKey)>,
    /// Number of the next segment.
    next: u64,
    /// Largest payload of a segment.
    longest: u64,
    recent: VecDeque<(u64, u32, u16, Option<u32>)>,
    /// Numbers of segments whose counterparts came in order, with the times of the counterparts; the last ones.
    in_order: VecDeque<(u64, Instant)>,
    /// Number of the first segment whose counterpart was found.
    first_matched: Option<u64>,
    last_lost: Option<u64>,
    group: u64,
    pub(super) counts: SideCounts,
}

/// Counts of one capture.
#[derive(Debug, Clone, Default)]
pub(super) struct SideCounts {
    pub(super) packets: u64,
    pub(super) payload: u64,
    /// Packets of one MSS that only this capture has, and that were sent again or never acknowledged.
    pub(super) lost: u64,
    pub(super) lost_bytes: u64,
    pub(super) lost_acknowledgements: u64,
    /// Packets of one MSS that only this capture has, and that arrived.
    pub(super) missed: u64,
    pub(super) groups: u64,
    pub(super) largest_group: u64,
    pub(super) losses: Vec<LostGroup>,
    /// Segments that come after a later segment of the other capture.
    pub(super) reordered: u64,
    pub(super) max_lateness: Duration,
}

/// A group of lost packets.
#[derive(Debug, Clone)]
pub(super) struct LostGroup {
    pub(super) at: Instant,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) packets: u64,
}

/// Payload of a segment that has no counterpart.
#[derive(Debug, Clone, Copy)]
struct Piece {
    end: u64,
    at: Instant,
    ip_id: Option<u16>,
    timestamp: Option<u32>,
    /// A later segment of the same capture has the same bytes.
    is_resent: bool,
}

#[derive(Debug, Clone, Copy)]
struct WaitingSegment {
    at: Instant,
    number: u64,
    start: u64,
    end: u64,
}

/// Header fields of a segment without payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ControlKey {
    flags: u16,
    sequence: u32,
    acknowledgement: u32,
    window: u16,
    timestamps: Option<(u32, u32)>,
    sack: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Control {
    at: Instant,
    number: u64,
}

/// Both captures of one packet.
#[derive(Clone, Copy)]
struct Counterparts {
    /// Capture whose segment was added last, with the time.
    side: CaptureSide,
    at: Instant,
    other_at: Instant,
    other_number: u64,
    number: u64,
}

impl Direction {
    /// Returns the counts of one capture.
    pub(super) fn counts(&self, side: CaptureSide) -> &SideCounts {
        &self.sides[side.index()].counts
    }

    /// Returns the payload of a full packet.
    pub(super) fn mss(&self) -> u64 {
        let longest = self.sides.iter().map(|side| side.longest).filter(|longest| *longest > 0).min();
        let longest = longest.unwrap_or(1);
        if self.mss > 0 { longest.min(u64::from(self.mss)) } else { longest }.max(1)
    }

    /// Records the acknowledgement of a segment of the other direction, and the MSS that its SYN permits.
    pub(super) fn acknowledge(&mut self, segment: &TcpSegment) {
        if let (true, Some(mss)) = (segment.flags.contains(TcpFlags::SYN), segment.options.mss) {
            let stamps = if segment.options.timestamps.is_some() { 12 } else { 0 };
            self.mss = u32::from(mss).saturating_sub(stamps);
        }
        if segment.flags.contains(TcpFlags::ACK) && self.stream.is_some() {
            let acknowledged = self.unwrapped(segment.acknowledgement);
            self.acknowledged = self.acknowledged.max(acknowledged);
        }
    }

    /// Adds a segment of one capture.
    pub(super) fn add(&mut self, side: CaptureSide, at: Instant, segment: &TcpSegment) {
        self.expire(side, at);
        let after_syn = segment.sequence.wrapping_add(u32::from(segment.flags.contains(TcpFlags::SYN)));
        if self.stream.is_none() {
            let first = (1 << 32) + u64::from(after_syn);
            self.stream = Some((first, first));
        }
        let start = self.unwrapped(after_syn);
        let end = start + u64::from(segment.payload);
        if let Some((_, highest)) = &mut self.stream {
            *highest = end.max(*highest);
        }
        let timestamp = segment.options.timestamps.map(|stamps| stamps.value);
        let own = &mut self.sides[side.index()];
        if own.is_second_copy(start, segment.payload, segment.ip_id, timestamp, segment.acknowledgement) {
            return;
        }
        own.counts.packets += 1;
        own.counts.payload += u64::from(segment.payload);
        let number = own.next;
        own.next += 1;
        if segment.payload == 0 {
            self.add_control(side, Control { at, number }, segment);
            return;
        }
        own.longest = own.longest.max(u64::from(segment.payload));
        own.mark_resent(start, end);
        let new = Piece { end, at, ip_id: segment.ip_id, timestamp, is_resent: false };
        self.match_payload(side, start, number, new);
    }

    /// Ends the direction. `last` has the time of the last segment of each capture.
    pub(super) fn finish(&mut self, last: [Option<Instant>; 2]) {
        for side in [CaptureSide::Near, CaptureSide::Far] {
            let end = last[side.other().index()].unwrap_or_default().before(MIN_OUTLASTING);
            self.expire_before(side, end);
        }
    }

    /// Returns the sequence number without wrapping, near the highest one.
    fn unwrapped(&self, sequence: u32) -> u64 {
        let (_, highest) = self.stream.unwrap_or_default();
        let ahead = sequence.wrapping_sub(highest as u32) as i32;
        highest.saturating_add_signed(ahead.into())
    }

    /// Matches the payload with that of the other capture. The rest waits.
    fn match_payload(&mut self, side: CaptureSide, start: u64, number: u64, new: Piece) {
        let mut at = start;
        let mut is_waiting = false;
        while at < new.end {
            let other = &mut self.sides[side.other().index()];
            let (until, found) = other.find(at, &new);
            match found {
                None => {
                    let own = &mut self.sides[side.index()];
                    own.pieces.insert(PieceKey { start: at, number }, Piece { end: until, ..new });
                    is_waiting = true;
                }
                Some(FoundPiece { key, piece }) => {
                    other.pieces.remove(&key);
                    if key.start < at {
                        other.pieces.insert(key, Piece { end: at, ..piece });
                    }
                    if until < piece.end {
                        other.pieces.insert(PieceKey { start: until, number: key.number }, piece);
                    }
                    self.matched_bytes += until - at;
                    self.record(Counterparts {
                        side,
                        at: new.at,
                        other_at: piece.at,
                        other_number: key.number,
                        number,
                    });
                }
            }
            at = until;
        }
        if is_waiting {
            let own = &mut self.sides[side.index()];
            own.waiting.push_back(WaitingSegment { at: new.at, number, start, end: new.end });
        }
    }

    fn add_control(&mut self, side: CaptureSide, control: Control, segment: &TcpSegment) {
        let key = ControlKey {
            flags: segment.flags.0,
            sequence: segment.sequence,
            acknowledgement: segment.acknowledgement,
            window: segment.window,
            timestamps: segment.options.timestamps.map(|stamps| (stamps.value, stamps.echo)),
            sack: segment.options.sack().first().map(|range| (range.start, range.end)),
        };
        let other = &mut self.sides[side.other().index()];
        if let Some(found) = other.take_control(&key) {
            let Control { at, number } = control;
            self.record(Counterparts { side, at, other_at: found.at, other_number: found.number, number });
            return;
        }
        let own = &mut self.sides[side.index()];
        own.controls.entry(key).or_default().push_back(control);
        own.waiting_controls.push_back((control.at, key));
    }

    /// Records the times and the order of a packet that both captures have.
    fn record(&mut self, found: Counterparts) {
        let Counterparts { side, at, other_at, other_number, number } = found;
        self.differences.add(match side {
            CaptureSide::Far => signed_difference(at, other_at),
            CaptureSide::Near => signed_difference(other_at, at),
        });
        self.sides[side.index()].first_matched.get_or_insert(number);
        let other = &mut self.sides[side.other().index()];
        other.first_matched.get_or_insert(other_number);
        match other.in_order.back() {
            Some((highest, _)) if other_number < *highest => {
                let after = other.in_order.partition_point(|(number, _)| *number <= other_number);
                let since = other.in_order.get(after).map_or(at, |(_, since)| *since);
                let counts = &mut self.sides[side.index()].counts;
                counts.reordered += 1;
                counts.max_lateness = counts.max_lateness.max(at.saturating_since(since));
            }
            // The rest of a super-packet does not begin a new time.
            Some((highest, _)) if other_number == *highest => {}
            _ => {
                if other.in_order.len() >= MAX_IN_ORDER {
                    other.in_order.pop_front();
                }
                other.in_order.push_back((other_number, at));
            }
        }
    }

    /// Gives up waiting segments that are too old, or too many.
    fn expire(&mut self, side: CaptureSide, now: Instant) {
        self.expire_before(side, now.before(MATCH_TIME));
        self.sides[side.index()].drop_matched();
        if self.sides[side.index()].waiting.len() >= MAX_WAITING {
            let oldest = self.sides[side.index()].waiting.get(MAX_WAITING / 10).map(|segment| segment.at);
            self.expire_before(side, oldest.unwrap_or(now));
        }
    }

    fn expire_before(&mut self, side: CaptureSide, end: Instant) {
        let (mss, acknowledged) = (self.mss(), self.acknowledged);
        let first = self.stream.map_or(0, |(first, _)| first);
        let own = &mut self.sides[side.index()];
        while let Some(segment) = own.waiting.front().filter(|segment| segment.at < end).copied() {
            own.waiting.pop_front();
            let keys: Vec<_> = own.pieces_of(&segment).collect();
            for key in keys {
                let Some(piece) = own.pieces.remove(&key) else { continue };
                own.give_up(key, &piece, &GiveUpContext { mss, acknowledged, first });
            }
        }
        while let Some((at, key)) = own.waiting_controls.front().filter(|(at, _)| *at < end).copied() {
            own.waiting_controls.pop_front();
            let is_waiting = own.controls.get(&key).and_then(VecDeque::front).is_some_and(|control| control.at == at);
            let Some(control) = is_waiting.then(|| own.take_control(&key)).flatten() else { continue };
            // Before the first common packet, one of the captures may not have begun.
            if own.first_matched.is_some_and(|number| control.number > number) {
                let is_control = key.flags & (TcpFlags::SYN.0 | TcpFlags::FIN.0 | TcpFlags::RST.0) != 0;
                *(if is_control { &mut own.counts.lost } else { &mut own.counts.lost_acknowledgements }) += 1;
            }
        }
    }
}

impl Side {
    /// Returns true if the same capture has the segment already. Only a segment with an IP identification shows this.
    fn is_second_copy(
        &mut self,
        start: u64,
        payload: u32,
        ip_id: Option<u16>,
        timestamp: Option<u32>,
        acknowledgement: u32,
    ) -> bool {
        let Some(ip_id) = ip_id.filter(|ip_id| *ip_id != 0) else { return false };
        let segment = (start, payload ^ acknowledgement.rotate_left(16), ip_id, timestamp);
        if self.recent.contains(&segment) {
            return true;
        }
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(segment);
        false
    }

    /// Returns the end of the next part from `at` on, and the payload that has the part; none if no payload has it.
    fn find(&self, at: u64, new: &Piece) -> (u64, Option<FoundPiece>) {
        let mut until = new.end;
        let mut best: Option<FoundPiece> = None;
        for (key, piece) in self.pieces.range(
            PieceKey { start: at.saturating_sub(self.longest), number: 0 }..PieceKey { start: new.end, number: 0 },
        ) {
            let is_other = piece.timestamp.is_some() && new.timestamp.is_some() && piece.timestamp != new.timestamp;
            if is_other || piece.end <= at {
                continue;
            }
            if key.start > at {
                until = until.min(key.start);
                continue;
            }
            // A transmission that was lost has no counterpart, so the later one is more likely.
            let rank = |key: &PieceKey, piece: &Piece| (piece.ip_id.is_some() && piece.ip_id == new.ip_id, key.number);
            if best.as_ref().is_none_or(|best| rank(key, piece) > rank(&best.key, &best.piece)) {
                best = Some(FoundPiece { key: *key, piece: *piece });
            }
        }
        match best {
            Some(found) => (new.end.min(found.piece.end), best),
            None => (until, None),
        }
    }

    /// Marks waiting payload that is sent again.
    fn mark_resent(&mut self, start: u64, end: u64) {
        let from = start.saturating_sub(self.longest);
        for (_, piece) in self.pieces.range_mut(PieceKey { start: from, number: 0 }..PieceKey { start: end, number: 0 })
        {
            piece.is_resent |= piece.end > start;
        }
    }

    /// Returns the waiting parts of a segment.
    fn pieces_of(&self, segment: &WaitingSegment) -> impl Iterator<Item = PieceKey> + use<'_> {
        let number = segment.number;
        let parts =
            self.pieces.range(PieceKey { start: segment.start, number: 0 }..PieceKey { start: segment.end, number: 0 });
        parts.map(|(key, _)| *key).filter(move |key| key.number == number)
    }

    /// Removes segments from the front of the queue that have found their counterparts.
    fn drop_matched(&mut self) {
        while let Some(segment) = self.waiting.front() {
            if self.pieces_of(segment).next().is_some() {
                break;
            }
            self.waiting.pop_front();
        }
        while let Some((at, key)) = self.waiting_controls.front() {
            if self.controls.get(key).and_then(VecDeque::front).is_some_and(|control| control.at <= *at) {
                break;
            }
            self.waiting_controls.pop_front();
        }
    }

    fn take_control(&mut self, key: &ControlKey) -> Option<Control> {
        let waiting = self.controls.get_mut(key)?;
        let control = waiting.pop_front();
        if waiting.is_empty() {
            self.controls.remove(key);
        }
        control
    }

    /// Counts payload that has no counterpart.
    fn give_up(&mut self, key: PieceKey, piece: &Piece, context: &GiveUpContext) {
        let GiveUpContext { mss, acknowledged, first } = *context;
        // Before the first common packet, one of the captures may not have begun.
        if self.first_matched.is_none_or(|number| key.number < number) {
            return;
        }
        let bytes = piece.end - key.start;
        let packets = bytes.div_ceil(mss);
        if !piece.is_resent && acknowledged >= piece.end {
            self.counts.missed += packets;
            return;
        }
        self.counts.lost += packets;
        self.counts.lost_bytes += bytes;
        let is_next = self.last_lost.is_some_and(|last| key.number <= last + 1);
        self.last_lost = Some(key.number);
        self.group = if is_next { self.group + packets } else { packets };
        self.counts.groups += u64::from(!is_next);
        self.counts.largest_group = self.counts.largest_group.max(self.group);
        let losses = &mut self.counts.losses;
        let is_listed = self.counts.groups == losses.len() as u64;
        if !is_next && losses.len() < MAX_GROUPS {
            losses.push(LostGroup { at: piece.at, offset: key.start.saturating_sub(first), bytes, packets });
        } else if let Some(last) = losses.last_mut().filter(|_| is_next && is_listed) {
            last.bytes += bytes;
            last.packets += packets;
        }
    }
}
