//! The sending end: what may leave, what was lost, and which timers run.
//!
//! It joins the [`Scoreboard`], the congestion control and the estimate of the round trip. Data comes from outside: the
//! caller of [`Sender::send`] holds the count of segments left, so that several streams can share one transfer.

mod answers;
mod timers;

use std::time::Duration;

use super::Settings;
use super::control::{Control, control};
use super::repair::Repair;
use super::rtt::RoundTrip;
use super::scoreboard::{Scoreboard, Stamp};
use super::wire::{Reply, ReplyKind, SYN_OPTIONS, Segment, SegmentKind, flow};
use crate::link::{Ecn, Packet};
use crate::time::Instant;

/// One stream's sending end.
pub struct Sender {
    settings: Settings,
    stream: u32,
    connection: Connection,
    board: Scoreboard,
    control: Box<dyn Control + Send>,
    rtt: RoundTrip,
    state: State,
    /// The latest transmission that arrived, as RACK has it: its number, how far it came, and its round trip.
    rack: Option<(u64, u64, Duration)>,
    reordering: Reordering,
    delivery: Delivery,
    timers: Timers,
    /// Timeouts in a row.
    backoff: u32,
    /// A tail loss probe is out: acknowledgement of what it ends tells what became of it.
    probing: Option<Probing>,
    probe_due: bool,
    /// The sequence number of the one segment shorter than the others, and its payload.
    short: Option<(u64, u32)>,
    /// Something else than the congestion window held the sender back when it last wanted to send.
    limited: bool,
    /// The window was filled since the last acknowledgement.
    full: bool,
    /// The next data carries CWR.
    reduced: bool,
    stats: SenderStats,
}

/// What a sender did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SenderStats {
    /// Segments sent again.
    pub retransmitted: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Reductions of the window for loss, timeouts not counted.
    pub loss_events: u64,
    /// Reductions of the window for marks of congestion.
    pub ecn_events: u64,
    /// Reductions that were taken back.
    pub undone: u64,
    /// When the connection was open.
    pub opened: Option<Instant>,
    /// When start-up was over: the window has found its size.
    pub started: Option<Instant>,
    /// The largest congestion window, segments.
    pub most_window: f64,
}

impl SenderStats {
    /// Of both: sums, the earliest opening, the latest end of start-up, and the larger window.
    pub(in crate::sim) fn and(self, other: SenderStats) -> SenderStats {
        SenderStats {
            retransmitted: self.retransmitted + other.retransmitted,
            timeouts: self.timeouts + other.timeouts,
            loss_events: self.loss_events + other.loss_events,
            ecn_events: self.ecn_events + other.ecn_events,
            undone: self.undone + other.undone,
            opened: self.opened.min(other.opened),
            started: self.started.zip(other.started).map(|(one, other)| one.max(other)),
            most_window: self.most_window.max(other.most_window),
        }
    }
}

/// How a sender stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nobody answered the opening: Linux gives up after six repeats (`tcp_syn_retries`).
    NoAnswer,
    /// Fifteen timeouts in a row (`tcp_retries2`).
    TimedOut,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Connection {
    Closed,
    Opening { tries: u32, sent: Instant },
    Open,
    Ended(Ended),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Open,
    /// Coming down for a loss or a mark, until all before `until` is acknowledged.
    Reducing {
        until: u64,
        repair: Option<Repair>,
        lossy: bool,
    },
    /// After a timeout.
    Lost {
        until: u64,
    },
}

/// The delivery-rate estimator's counters (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, Default)]
struct Delivery {
    count: u64,
    at: Instant,
    first_sent: Instant,
    transmissions: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timers {
    /// Timeout, or what takes its place.
    retransmission: Option<Instant>,
    probe: Option<Instant>,
    reordering: Option<Instant>,
    pace: Option<Instant>,
}

/// How patient to be with what was overtaken (RFC 8985 §6.2, step 4).
#[derive(Clone, Copy, Debug)]
struct Reordering {
    seen: bool,
    /// In quarters of the least round trip: grows by one in each round trip in which something was sent again for nothing.
    quarters: u32,
    /// When this is acknowledged it may grow again.
    round_end: u64,
    /// Repairs for which it stays as it is.
    stays: u32,
}

impl Reordering {
    const STAYS: u32 = 16;

    fn new() -> Self {
        Reordering { seen: false, quarters: 1, round_end: 0, stays: Self::STAYS }
    }

    /// Something arrived that had arrived before.
    fn was_impatient(&mut self, acknowledged: u64, next: u64) {
        if acknowledged >= self.round_end {
            self.quarters += 1;
            self.round_end = next;
            self.stays = Self::STAYS;
        }
    }

    fn repaired(&mut self) {
        self.stays = self.stays.saturating_sub(1);
        if self.stays == 0 {
            self.quarters = 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Probing {
    /// Acknowledging this ends it.
    end: u64,
    /// It sent something again, so that silence about a duplicate means a loss.
    again: bool,
}

const SYN_RETRIES: u32 = 6;

impl Sender {
    /// One that opens its connection at the first [`send`](Self::send).
    pub fn new(stream: u32, settings: Settings) -> Self {
        Sender {
            settings,
            stream,
            connection: Connection::Closed,
            board: Scoreboard::default(),
            control: control(&settings, stream),
            rtt: RoundTrip::default(),
            state: State::Open,
            rack: None,
            reordering: Reordering::new(),
            delivery: Delivery::default(),
            timers: Timers::default(),
            backoff: 0,
            probing: None,
            probe_due: false,
            short: None,
            limited: false,
            full: false,
            reduced: false,
            stats: SenderStats::default(),
        }
    }

    /// What it did so far.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    /// Why it stopped before everything was acknowledged, if it did.
    pub fn ended(&self) -> Option<Ended> {
        match self.connection {
            Connection::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// True if all it ever sent is acknowledged.
    pub fn is_idle(&self) -> bool {
        self.board.is_empty()
    }

    /// Takes a packet of answers.
    pub fn receive(&mut self, packet: &Packet, reply: &Reply, now: Instant) {
        match reply.kind {
            ReplyKind::SynAck => self.open(now),
            ReplyKind::Ack(ack) => self.acknowledged(&ack.at(packet.first + packet.count - 1), reply.echo, now),
        }
    }

    /// What leaves now; new data is taken from the `left` segments that are to be sent, the last of which carries
    /// `last` bytes.
    pub fn send(&mut self, left: &mut u64, last: u32, now: Instant) -> Option<(Packet, Segment)> {
        match self.connection {
            Connection::Open => {
                self.run_timers(now);
                let sent = self.send_data(left, last, now);
                if sent.is_none() {
                    self.arm_probe(*left, now);
                }
                sent
            }
            Connection::Closed => self.send_syn(0, now),
            Connection::Opening { tries, .. } if self.timers.retransmission.is_some_and(|at| at <= now) => {
                self.send_syn(tries + 1, now)
            }
            _ => None,
        }
    }

    /// When it next wants to send though nothing comes.
    pub fn wake(&self) -> Option<Instant> {
        let Timers { retransmission, probe, reordering, pace } = self.timers;
        [retransmission, probe, reordering, pace].into_iter().flatten().min()
    }

    fn send_syn(&mut self, tries: u32, now: Instant) -> Option<(Packet, Segment)> {
        if tries > SYN_RETRIES {
            self.end(Ended::NoAnswer);
            return None;
        }
        self.connection = Connection::Opening { tries, sent: now };
        self.timers.retransmission = Some(now + self.rtt.timeout(tries));
        Some((self.packet(1, SYN_OPTIONS), Segment { stream: self.stream, kind: SegmentKind::Syn, sent: now }))
    }

    fn open(&mut self, now: Instant) {
        let Connection::Opening { tries, sent } = self.connection else { return };
        if tries == 0 {
            self.rtt.sample(now.saturating_since(sent));
        }
        self.connection = Connection::Open;
        self.timers = Timers::default();
        self.delivery.at = now;
        self.delivery.first_sent = now;
        self.stats.opened = Some(now);
    }

    fn end(&mut self, ended: Ended) {
        self.connection = Connection::Ended(ended);
        self.timers = Timers::default();
    }
}

/// Sending.
impl Sender {
    fn send_data(&mut self, left: &mut u64, last: u32, now: Instant) -> Option<(Packet, Segment)> {
        if self.timers.pace.is_some_and(|at| at > now) {
            return None;
        }
        self.timers.pace = None;
        if std::mem::take(&mut self.probe_due) {
            return self.send_probe(left, last, now);
        }
        let room = self.room();
        if room == 0 {
            self.full = true;
            return None;
        }
        if self.board.has_lost() {
            return self.send_again(room, now);
        }
        self.send_new(room, left, last, now)
    }

    /// Segments that the congestion window has room for.
    fn room(&self) -> u64 {
        let window = match &self.state {
            State::Reducing { repair: Some(repair), .. } => repair.window(),
            _ => self.control.window(),
        };
        // Also BBR's own reductions leave room for one.
        (window.max(1.0) as u64).saturating_sub(self.board.flying())
    }

    fn send_again(&mut self, room: u64, now: Instant) -> Option<(Packet, Segment)> {
        let stamp = self.stamp(now);
        let head = self.board.acknowledged();
        let (start, end) = self.board.resend(room.min(u64::from(self.settings.grain)), stamp)?;
        self.stats.retransmitted += end - start;
        if start == head || self.timers.retransmission.is_none() {
            self.restart_timeout(now);
        }
        Some(self.leave(start, end - start, false, now))
    }

    /// The next segment though the congestion window is full, or else the last once more.
    fn send_probe(&mut self, left: &mut u64, last: u32, now: Instant) -> Option<(Packet, Segment)> {
        let again = *left == 0 || self.offered() == 0;
        let start = if again {
            let stamp = self.stamp(now);
            self.stats.retransmitted += 1;
            self.board.probe(stamp)?
        } else {
            self.take(1, left, last, now)
        };
        self.probing = Some(Probing { end: self.board.next(), again });
        self.restart_timeout(now);
        Some(self.leave(start, 1, !again, now))
    }

    /// Segments that the receive window has room for.
    fn offered(&self) -> u64 {
        (self.board.acknowledged() + self.settings.window_segments()).saturating_sub(self.board.next())
    }

    fn send_new(&mut self, room: u64, left: &mut u64, last: u32, now: Instant) -> Option<(Packet, Segment)> {
        let offered = self.offered();
        if offered == 0 || *left == 0 {
            self.limited = true;
            return None;
        }
        let grain = u64::from(self.settings.grain);
        let wanted = grain.min(*left);
        // Short ranges breed short ranges: what is on its way will soon make room for a whole one.
        if room.min(offered) < wanted && self.board.flying() >= 4 * grain {
            self.full |= room < wanted;
            return None;
        }
        let count = wanted.min(room).min(offered);
        let was_idle = self.board.is_empty();
        let start = self.take(count, left, last, now);
        if was_idle || self.timers.retransmission.is_none() {
            self.restart_timeout(now);
        }
        self.timers.probe = None;
        Some(self.leave(start, count, true, now))
    }

    /// Makes segments of new data; gives the first.
    fn take(&mut self, count: u64, left: &mut u64, last: u32, now: Instant) -> u64 {
        let stamp = self.stamp(now);
        let start = self.board.send(count, stamp);
        *left -= count;
        if *left == 0 {
            self.short = Some((start + count - 1, last));
        }
        start
    }

    fn stamp(&mut self, now: Instant) -> Stamp {
        if self.board.flying() == 0 {
            (self.delivery.at, self.delivery.first_sent) = (now, now);
        }
        self.delivery.transmissions += 1;
        Stamp {
            sent: now,
            order: self.delivery.transmissions,
            delivered: self.delivery.count,
            delivered_at: self.delivery.at,
            first_sent: self.delivery.first_sent,
            limited: std::mem::take(&mut self.limited),
        }
    }

    /// Segments `start` and on, `count` of them, go out.
    fn leave(&mut self, start: u64, count: u64, is_new: bool, now: Instant) -> (Packet, Segment) {
        if let State::Reducing { repair: Some(repair), .. } = &mut self.state {
            repair.sent(count);
        }
        if let Some(pace) = self.control.pace() {
            self.timers.pace = Some(now + Duration::from_secs_f64((count as f64 / pace).min(1e6)));
        }
        let payload = match self.short {
            Some((number, payload)) if number == start + count - 1 => payload,
            _ => self.settings.mss,
        };
        let mut packet = self.packet(count as u32, payload);
        // RFC 3168 §6.1.5: what is sent again is not ECN-capable.
        if self.settings.ecn && is_new {
            packet.ecn = Ecn::Capable;
        }
        let reduced = std::mem::take(&mut self.reduced);
        (packet, Segment { stream: self.stream, kind: SegmentKind::Data { first: start, reduced }, sent: now })
    }

    fn packet(&self, count: u32, last: u32) -> Packet {
        let Settings { mss, headers, .. } = self.settings;
        let full = if count == 1 { last } else { mss };
        Packet { flow: flow(self.stream), ..Packet::several(0, count, full + headers, last + headers) }
    }
}
