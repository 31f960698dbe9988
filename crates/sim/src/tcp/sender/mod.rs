//! The sending end: segments that may leave, lost segments, and timers.
//!
//! The sender combines the [`Scoreboard`], the congestion control and the RTT estimate. The caller of
//! [`TcpSender::send`] keeps the count of segments left to send, so that several streams can share one transfer.

mod acks;
mod timers;

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_link::{Ecn, Packet};

use super::TcpSettings;
use super::control::{CongestionControl, create_control};
use super::recovery::Recovery;
use super::rtt::RttEstimator;
use super::scoreboard::{Scoreboard, SendRecord};
use super::wire::{Reply, ReplyKind, SYN_OPTIONS, Segment, SegmentKind, flow};

/// The sending end of one stream.
pub struct TcpSender {
    settings: TcpSettings,
    stream: u32,
    connection: Connection,
    board: Scoreboard,
    control: Box<dyn CongestionControl + Send>,
    rtt: RttEstimator,
    state: State,
    /// Latest transmission that arrived, for RACK: its number, its last arrived segment, and its RTT.
    rack: Option<(u64, u64, Duration)>,
    reordering: Reordering,
    delivery: Delivery,
    timers: Timers,
    backoff: u32,
    /// A tail loss probe is in flight; the acknowledgement of its segment shows the result.
    probing: Option<TailProbe>,
    probe_due: bool,
    /// Sequence number and payload of the one segment that is shorter than the others.
    short: Option<(u64, u32)>,
    /// True if something other than the congestion window limited the sender at its last attempt to send.
    limited: bool,
    /// True if the window was filled since the last acknowledgement.
    full: bool,
    /// True if the next data segment carries CWR.
    reduced: bool,
    stats: SenderStats,
}

/// Statistics of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SenderStats {
    pub retransmitted: u64,
    pub timeouts: u64,
    /// Window reductions for loss, without timeouts.
    pub loss_events: u64,
    /// Window reductions for congestion marks.
    pub ecn_events: u64,
    /// Reductions that were undone.
    pub undone_reductions: u64,
    /// Time when the connection was established.
    pub opened: Option<Instant>,
    /// End of start-up: the window has found its size.
    pub started: Option<Instant>,
    /// Maximum congestion window, segments.
    pub max_window: f64,
}

impl SenderStats {
    /// Combines two statistics: sums, the earlier opening, the later end of start-up, and the larger window.
    pub(crate) fn and(self, other: SenderStats) -> SenderStats {
        SenderStats {
            retransmitted: self.retransmitted + other.retransmitted,
            timeouts: self.timeouts + other.timeouts,
            loss_events: self.loss_events + other.loss_events,
            ecn_events: self.ecn_events + other.ecn_events,
            undone_reductions: self.undone_reductions + other.undone_reductions,
            opened: self.opened.min(other.opened),
            started: self.started.zip(other.started).map(|(one, other)| one.max(other)),
            max_window: self.max_window.max(other.max_window),
        }
    }
}

/// Reason why a sender gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFailure {
    /// No answer to the SYN: Linux gives up after six retries (`tcp_syn_retries`).
    NoAnswer,
    /// Fifteen consecutive timeouts (`tcp_retries2`).
    TimedOut,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Connection {
    Closed,
    Opening { tries: u32, sent: Instant },
    Open,
    Ended(SendFailure),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Open,
    /// Reduces the window for a loss or a mark, until all segments before `until` are acknowledged.
    Reducing {
        until: u64,
        recovery: Option<Recovery>,
        lossy: bool,
    },
    Lost {
        until: u64,
    },
}

/// Counters of the delivery-rate estimator (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, Debug, Default)]
struct Delivery {
    count: u64,
    at: Instant,
    first_sent: Instant,
    transmissions: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timers {
    /// Retransmission timeout; while the connection opens, the SYN timeout.
    retransmission: Option<Instant>,
    probe: Option<Instant>,
    reordering: Option<Instant>,
    pace: Option<Instant>,
}

/// Reordering window of RACK (RFC 8985 §6.2, step 4).
#[derive(Clone, Copy, Debug)]
struct Reordering {
    is_seen: bool,
    /// Length of the window in quarters of the minimum RTT. Grows by one in each round trip with a spurious
    /// retransmission.
    quarters: u32,
    /// The length may grow again when this segment is acknowledged.
    round_end: u64,
    /// Number of recoveries after which the window returns to its initial length.
    recoveries_left: u32,
}

impl Reordering {
    const PERSISTENCE: u32 = 16;

    fn new() -> Self {
        Reordering { is_seen: false, quarters: 1, round_end: 0, recoveries_left: Self::PERSISTENCE }
    }

    /// Widens the window after a segment arrived twice.
    fn widen(&mut self, acknowledged: u64, next: u64) {
        if acknowledged >= self.round_end {
            self.quarters += 1;
            self.round_end = next;
            self.recoveries_left = Self::PERSISTENCE;
        }
    }

    fn on_recovery(&mut self) {
        self.recoveries_left = self.recoveries_left.saturating_sub(1);
        if self.recoveries_left == 0 {
            self.quarters = 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct TailProbe {
    /// Acknowledging this segment ends the probe.
    end: u64,
    /// True if the probe was a retransmission, so that silence about a duplicate means a loss.
    is_retransmission: bool,
}

const SYN_RETRIES: u32 = 6;

impl TcpSender {
    /// Creates a sender that opens its connection at the first [`send`](Self::send).
    pub fn new(stream: u32, settings: TcpSettings) -> Self {
        TcpSender {
            settings,
            stream,
            connection: Connection::Closed,
            board: Scoreboard::default(),
            control: create_control(&settings, stream),
            rtt: RttEstimator::default(),
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

    /// Returns the statistics so far.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    /// Returns why the sender gave up before everything was acknowledged, if it did.
    pub fn ended(&self) -> Option<SendFailure> {
        match self.connection {
            Connection::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// Returns true if all sent segments are acknowledged.
    pub fn is_idle(&self) -> bool {
        self.board.is_empty()
    }

    /// Handles a packet of acknowledgements.
    pub fn receive(&mut self, packet: &Packet, reply: &Reply, now: Instant) {
        match reply.kind {
            ReplyKind::SynAck => self.open(now),
            ReplyKind::Ack(ack) => self.acknowledged(&ack.at(packet.first + packet.count - 1), reply.echo, now),
        }
    }

    /// Returns the packet that leaves now. New data comes from the `left` segments that are to be sent; the last of
    /// them carries `last` bytes.
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

    /// Returns the next timer of the sender.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let Timers { retransmission, probe, reordering, pace } = self.timers;
        [retransmission, probe, reordering, pace].into_iter().flatten().min()
    }

    fn send_syn(&mut self, tries: u32, now: Instant) -> Option<(Packet, Segment)> {
        if tries > SYN_RETRIES {
            self.end(SendFailure::NoAnswer);
            return None;
        }
        self.connection = Connection::Opening { tries, sent: now };
        self.timers.retransmission = Some(now + self.rtt.timeout(tries));
        Some((
            self.packet(1, SYN_OPTIONS),
            Segment { stream: self.stream, kind: SegmentKind::Syn, sent: now, echo: Instant::ZERO, ip_id: 0 },
        ))
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

    fn end(&mut self, ended: SendFailure) {
        self.connection = Connection::Ended(ended);
        self.timers = Timers::default();
    }
}

/// Sending of data and probes.
impl TcpSender {
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
            return self.retransmit(room, now);
        }
        self.send_new(room, left, last, now)
    }

    /// Returns the segments for which the congestion window has room.
    fn room(&self) -> u64 {
        let window = match &self.state {
            State::Reducing { recovery: Some(recovery), .. } => recovery.window(),
            _ => self.control.window(),
        };
        // Every algorithm leaves room for one segment, also after BBR's own reductions.
        (window.max(1.0) as u64).saturating_sub(self.board.in_flight())
    }

    fn retransmit(&mut self, room: u64, now: Instant) -> Option<(Packet, Segment)> {
        let stamp = self.stamp(now);
        let head = self.board.acknowledged();
        let (start, end) = self.board.resend(room.min(u64::from(self.settings.range_segments)), stamp)?;
        self.stats.retransmitted += end - start;
        if start == head || self.timers.retransmission.is_none() {
            self.restart_timeout(now);
        }
        Some(self.build_packet(start, end - start, false, now))
    }

    /// Sends the next segment although the congestion window is full, or the last one again.
    fn send_probe(&mut self, left: &mut u64, last: u32, now: Instant) -> Option<(Packet, Segment)> {
        let is_retransmission = *left == 0 || self.receive_window_room() == 0;
        let start = if is_retransmission {
            let stamp = self.stamp(now);
            self.stats.retransmitted += 1;
            self.board.probe(stamp)?
        } else {
            self.take(1, left, last, now)
        };
        self.probing = Some(TailProbe { end: self.board.next(), is_retransmission });
        self.restart_timeout(now);
        Some(self.build_packet(start, 1, !is_retransmission, now))
    }

    /// Returns the segments for which the receive window has room.
    fn receive_window_room(&self) -> u64 {
        (self.board.acknowledged() + self.settings.window_segments()).saturating_sub(self.board.next())
    }

    fn send_new(&mut self, room: u64, left: &mut u64, last: u32, now: Instant) -> Option<(Packet, Segment)> {
        let receive_window_room = self.receive_window_room();
        if receive_window_room == 0 || *left == 0 {
            self.limited = true;
            return None;
        }
        let grain = u64::from(self.settings.range_segments);
        let wanted = grain.min(*left);
        // Short ranges cause more short ranges. Segments in flight soon make room for a whole range.
        if room.min(receive_window_room) < wanted && self.board.in_flight() >= 4 * grain {
            self.full |= room < wanted;
            return None;
        }
        let count = wanted.min(room).min(receive_window_room);
        let was_idle = self.board.is_empty();
        let start = self.take(count, left, last, now);
        if was_idle || self.timers.retransmission.is_none() {
            self.restart_timeout(now);
        }
        self.timers.probe = None;
        Some(self.build_packet(start, count, true, now))
    }

    /// Creates segments of new data; returns the first.
    fn take(&mut self, count: u64, left: &mut u64, last: u32, now: Instant) -> u64 {
        let stamp = self.stamp(now);
        let start = self.board.send(count, stamp);
        *left -= count;
        if *left == 0 {
            self.short = Some((start + count - 1, last));
        }
        start
    }

    fn stamp(&mut self, now: Instant) -> SendRecord {
        if self.board.in_flight() == 0 {
            (self.delivery.at, self.delivery.first_sent) = (now, now);
        }
        self.delivery.transmissions += 1;
        SendRecord {
            sent: now,
            order: self.delivery.transmissions,
            delivered: self.delivery.count,
            delivered_at: self.delivery.at,
            first_sent: self.delivery.first_sent,
            limited: std::mem::take(&mut self.limited),
        }
    }

    /// Builds the packet of `count` segments from `start`.
    fn build_packet(&mut self, start: u64, count: u64, is_new: bool, now: Instant) -> (Packet, Segment) {
        if let State::Reducing { recovery: Some(recovery), .. } = &mut self.state {
            recovery.sent(count);
        }
        if let Some(pace) = self.control.pace() {
            self.timers.pace = Some(now + Duration::from_secs_f64((count as f64 / pace).min(1e6)));
        }
        let payload = match self.short {
            Some((number, payload)) if number == start + count - 1 => payload,
            _ => self.settings.mss,
        };
        let mut packet = self.packet(count as u32, payload);
        // RFC 3168 §6.1.5: a retransmission is not ECN-capable.
        if self.settings.ecn && is_new {
            packet.ecn = Ecn::Capable;
        }
        let reduced = std::mem::take(&mut self.reduced);
        (
            packet,
            Segment {
                stream: self.stream,
                kind: SegmentKind::Data { first: start, reduced },
                sent: now,
                echo: Instant::ZERO,
                ip_id: 0,
            },
        )
    }

    fn packet(&self, count: u32, last: u32) -> Packet {
        let TcpSettings { mss, headers, .. } = self.settings;
        let full = if count == 1 { last } else { mss };
        Packet { flow: flow(self.stream), ..Packet::super_packet(0, count, full + headers, last + headers) }
    }
}
