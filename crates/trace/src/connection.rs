//! One connection: its two ends, its handshake, and the data of both directions.

use lfn_base::time::Instant;
use lfn_packet::{MptcpOption, TcpEndpoint, TcpFlags, TcpSegment, Timestamps};

use crate::copies::{Copies, Fingerprint};
use crate::flags::{PacketFlag, PacketFlags};
use crate::half::{AckPacket, DataPacket, Half, PathRtt};
use crate::limits::Limits;
use crate::report::{AnalysisOptions, Subflow};
use crate::round_trip::EndRtt;
use crate::sender_clock::SenderClock;
use crate::series::Series;

/// Data packets in sequence that do not fit the window, before another window scale is assumed.
const MIN_OVERFULL: u32 = 32;
/// Bytes that a packet after a gap acknowledges, relative to others, if the gap is lost acknowledgements.
const MIN_GAP_ADVANCE: f64 = 1.4;

/// Maximum time since 1970, nanoseconds: 146 years. Sums of later times would overflow.
const MAX_TIME: u64 = 1 << 62;
/// Maximum time by which a packet can stand in the capture too late, nanoseconds. A larger step is a change of the clock.
const MAX_STEP_BACK: u64 = 100_000_000;
/// Maximum duration of a connection, nanoseconds: two years.
const MAX_DURATION: u64 = 1 << 56;

/// State of one end of a connection.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) endpoint: TcpEndpoint,
    /// Data from this end.
    pub(crate) half: Half,
    /// Time from the capture point to this end and back.
    pub(crate) rtt: EndRtt,
    pub(crate) hello: Option<Hello>,
    /// Window scale that was inferred from the data towards this end.
    pub(crate) inferred_scale: u8,
    raw_window: u16,
    /// Data packets in sequence that did not fit the window.
    overfull: u32,
    pub(crate) packets: u64,
    pub(crate) pure_acks: u64,
    pub(crate) copies: u64,
    pub(crate) ecn: EcnCounts,
    pub(crate) ttl: Option<u8>,
    pub(crate) has_other_ttl: bool,
    pub(crate) ids: IdSequence,
    pub(crate) clock: SenderClock,
    pub(crate) has_fin: bool,
    pub(crate) last_at: u64,
}

/// ECN fields of the packets of one end.
#[derive(Debug, Default)]
pub(crate) struct EcnCounts {
    pub(crate) data: u64,
    pub(crate) capable: u64,
    pub(crate) marked: u64,
    pub(crate) echoes: u64,
}

/// Options of the SYN or SYN-ACK of an end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hello {
    pub(crate) at: u64,
    /// Time of the first SYN, if several were sent.
    pub(crate) first_at: u64,
    pub(crate) sequence: u32,
    pub(crate) flags: TcpFlags,
    pub(crate) ttl: u8,
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) has_timestamps: bool,
    /// The capture ends within the options.
    pub(crate) is_truncated: bool,
}

impl Hello {
    fn of(at: u64, first_at: u64, segment: &TcpSegment) -> Self {
        let options = &segment.options;
        Hello {
            at,
            first_at,
            sequence: segment.sequence,
            flags: segment.flags,
            ttl: segment.ttl,
            mss: options.mss,
            window_scale: options.window_scale,
            sack_permitted: options.sack_permitted,
            has_timestamps: options.timestamps.is_some(),
            is_truncated: options.is_truncated,
        }
    }
}

/// IP identifications of an end, which show missing packets if they count up.
#[derive(Debug, Default)]
pub(crate) struct IdSequence {
    last: Option<u16>,
    pub(crate) steps: u64,
    pub(crate) single_steps: u64,
    pub(crate) skipped: u64,
    gaps: u64,
    single_advance: u64,
    gap_advance: u64,
}

impl IdSequence {
    /// Adds a packet that acknowledges so many bytes more than the one before.
    fn add(&mut self, id: Option<u16>, advance: u64) {
        let Some(id) = id.filter(|id| *id != 0) else { return };
        if let Some(last) = self.last {
            let step = id.wrapping_sub(last);
            self.steps += 1;
            match step {
                1 => {
                    self.single_steps += 1;
                    self.single_advance += advance;
                }
                2..64 => {
                    self.skipped += u64::from(step) - 1;
                    self.gaps += 1;
                    self.gap_advance += advance;
                }
                _ => {}
            }
        }
        self.last = Some(id);
    }

    /// Returns true if the identifications count the packets of the connection.
    pub(crate) fn is_counter(&self) -> bool {
        self.steps >= 20 && self.single_steps * 10 >= self.steps * 5
    }

    /// Returns the acknowledgements that are missing: the packets after a gap acknowledge more than others. The gaps of a host
    /// that counts the packets of all its connections have no such effect.
    pub(crate) fn missing(&self) -> u64 {
        let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        let (single, gap) = (mean(self.single_advance, self.single_steps), mean(self.gap_advance, self.gaps));
        if self.is_counter() && gap >= MIN_GAP_ADVANCE * single { self.skipped } else { 0 }
    }
}

impl End {
    fn new(endpoint: TcpEndpoint, series: Option<Series>) -> Self {
        let mut half = Half::new();
        half.series = series.map(Box::new);
        End {
            endpoint,
            half,
            rtt: EndRtt::default(),
            hello: None,
            inferred_scale: 0,
            raw_window: 0,
            overfull: 0,
            packets: 0,
            pure_acks: 0,
            copies: 0,
            ecn: EcnCounts::default(),
            ttl: None,
            has_other_ttl: false,
            ids: IdSequence::default(),
            clock: SenderClock::default(),
            has_fin: false,
            last_at: 0,
        }
    }
}

/// State of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    /// The first end sent the first packet of the capture.
    pub(crate) ends: [End; 2],
    pub(crate) start: u64,
    pub(crate) last: u64,
    pub(crate) packets: u64,
    pub(crate) steps_back: u64,
    pub(crate) truncated_options: u64,
    /// End that opened the connection.
    pub(crate) client: Option<usize>,
    /// Time of the acknowledgement of the SYN-ACK.
    pub(crate) established: Option<u64>,
    pub(crate) is_reset: bool,
    copies: Copies,
    /// Place in a connection of MPTCP.
    pub(crate) mptcp: Option<Subflow>,
    pub(crate) has_accurate_ecn: bool,
    pub(crate) too_big: u64,
    pub(crate) reported_mtu: Option<u32>,
}

impl ConnectionState {
    pub(crate) fn new(start: Instant, segment: &TcpSegment, options: &AnalysisOptions) -> Self {
        let end = |endpoint| End::new(endpoint, options.new_series(start));
        let at = start.as_nanos().min(MAX_TIME);
        ConnectionState {
            ends: [segment.source, segment.destination].map(end),
            start: at,
            last: at,
            packets: 0,
            steps_back: 0,
            truncated_options: 0,
            client: None,
            established: None,
            is_reset: false,
            copies: Copies::default(),
            mptcp: None,
            has_accurate_ecn: false,
            too_big: 0,
            reported_mtu: None,
        }
    }

    /// Returns true if the segment opens another connection with the same addresses and ports.
    pub(crate) fn is_replaced_by(&self, segment: &TcpSegment) -> bool {
        if !segment.flags.contains(TcpFlags::SYN) || segment.flags.contains(TcpFlags::ACK) {
            return false;
        }
        let end = &self.ends[self.number_of(segment)];
        match end.hello {
            Some(hello) => hello.sequence != segment.sequence,
            None => self.packets > 0,
        }
    }

    /// Returns true if both ends have closed, or one has reset.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_reset || self.ends.iter().all(|end| end.has_fin)
    }

    /// Counts a message that a segment was too big.
    pub(crate) fn add_too_big(&mut self, mtu: u32) {
        self.too_big += 1;
        if mtu > 0 {
            self.reported_mtu = Some(self.reported_mtu.map_or(mtu, |least| least.min(mtu)));
        }
    }

    fn number_of(&self, segment: &TcpSegment) -> usize {
        usize::from(segment.source != self.ends[0].endpoint)
    }

    /// Returns the RTTs for the data from one end.
    pub(crate) fn path_rtt(&self, sender: usize) -> PathRtt {
        let (own, other) = (&self.ends[sender].rtt, &self.ends[1 - sender].rtt);
        let sender_min = own.min.unwrap_or(0);
        PathRtt {
            receiver_min: other.min.unwrap_or(0),
            receiver_last: other.settled().max(other.min.unwrap_or(0)),
            sender_min,
            sender_last: own.last.or(own.min).unwrap_or(0),
        }
    }

    /// Sets the limits of the lists. Longer lists become shorter with their next entries.
    pub(crate) fn limit(&mut self, limits: Limits) {
        for end in &mut self.ends {
            end.half.limits = limits;
        }
    }

    /// Sets the limits of the lists, and shortens the lists at once.
    pub(crate) fn shrink_to(&mut self, limits: Limits) {
        for end in &mut self.ends {
            end.half.shrink_to(limits);
        }
    }

    /// Returns the bytes of memory that the state takes.
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        let lists = self.ends.iter().map(|end| end.half.heap_bytes() + end.rtt.heap_bytes());
        size_of::<Self>() + lists.sum::<usize>()
    }

    /// Adds a segment of this connection.
    pub(crate) fn add(&mut self, at: Instant, segment: &TcpSegment) -> PacketFlags {
        let captured_at = at.as_nanos().min(self.start + MAX_DURATION);
        let step_back = self.last.saturating_sub(captured_at);
        self.steps_back += u64::from(step_back > 1_000_000);
        let captured_at = if step_back > MAX_STEP_BACK { self.last } else { captured_at };
        let at = captured_at.max(self.last);
        let number = self.number_of(segment);
        let mut flags = PacketFlags::default();
        self.packets += 1;
        self.truncated_options += u64::from(segment.options.is_truncated);
        if self.copies.is_copy(&Fingerprint::of(at, number, segment)) {
            self.ends[number].copies += 1;
            flags.insert(PacketFlag::CapturedTwice);
            return flags;
        }
        self.last = at;
        self.count(number, at, segment);
        if segment.flags.contains(TcpFlags::SYN) {
            self.hello(number, at, segment);
        } else if self.established.is_none() && segment.flags.contains(TcpFlags::ACK) && Some(number) == self.client {
            self.establish(number, at);
        }
        if let Some(MptcpOption::Capable { .. }) = segment.options.mptcp
            && !segment.flags.contains(TcpFlags::SYN)
        {
            self.client.get_or_insert(number);
        }
        if let Some(timestamps) = segment.options.timestamps {
            self.note_timestamps(number, captured_at, segment, timestamps);
        }
        if segment.flags.contains(TcpFlags::RST) {
            self.is_reset = true;
            return flags;
        }
        if segment.flags.contains(TcpFlags::ACK) {
            flags = merge(flags, self.acknowledge(number, at, segment));
        }
        if segment.payload > 0 && !segment.flags.contains(TcpFlags::SYN) {
            flags = merge(flags, self.data(number, at, captured_at, segment));
        }
        self.ends[number].has_fin |= segment.flags.contains(TcpFlags::FIN);
        flags
    }

    fn count(&mut self, number: usize, at: u64, segment: &TcpSegment) {
        let end = &mut self.ends[number];
        end.packets += 1;
        end.last_at = at;
        let is_plain = segment.flags.0 & (TcpFlags::SYN.0 | TcpFlags::RST.0) == 0;
        if is_plain {
            match end.ttl {
                None => end.ttl = Some(segment.ttl),
                Some(ttl) => end.has_other_ttl |= ttl != segment.ttl,
            }
        }
        if segment.payload > 0 {
            end.ecn.data += 1;
            end.ecn.capable += u64::from(segment.ecn != 0);
            end.ecn.marked += u64::from(segment.ecn == 3);
        } else if is_plain && !segment.flags.contains(TcpFlags::FIN) {
            end.pure_acks += 1;
        }
        if is_plain && !self.has_accurate_ecn {
            end.ecn.echoes += u64::from(segment.flags.contains(TcpFlags::ECE));
        }
    }

    fn hello(&mut self, number: usize, at: u64, segment: &TcpSegment) {
        let is_answer = segment.flags.contains(TcpFlags::ACK);
        let first_at = self.ends[number].hello.map_or(at, |hello| hello.first_at);
        let sequence = segment.sequence;
        let hello = Hello::of(at, first_at, segment);
        let is_first = self.ends[number].hello.is_none();
        self.ends[number].hello = Some(hello);
        self.ends[number].half.start_at(sequence.wrapping_add(1));
        if !is_answer {
            self.client.get_or_insert(number);
            return;
        }
        self.client.get_or_insert(1 - number);
        let other = self.ends[1 - number].hello;
        if let Some(syn) = other.filter(|syn| is_first && syn.at == syn.first_at) {
            self.ends[number].rtt.add_handshake(at.saturating_sub(syn.at));
        }
        let bits = |flags: TcpFlags| flags.0 & (TcpFlags::AE.0 | TcpFlags::CWR.0 | TcpFlags::ECE.0);
        let answer = bits(segment.flags);
        let offered = other.is_some_and(|syn| bits(syn.flags) == bits(TcpFlags(0x1c0)));
        self.has_accurate_ecn = offered && answer != 0 && answer != TcpFlags::ECE.0;
    }

    fn establish(&mut self, number: usize, at: u64) {
        let Some(answer) = self.ends[1 - number].hello else { return };
        if answer.at == answer.first_at {
            self.ends[number].rtt.add_handshake(at.saturating_sub(answer.at));
        }
        self.established = Some(at);
    }

    fn note_timestamps(&mut self, number: usize, at: u64, segment: &TcpSegment, timestamps: Timestamps) {
        let Timestamps { value, echo } = timestamps;
        let other = &mut self.ends[1 - number];
        other.rtt.sent_timestamp(value, at, other.half.limits.timestamps);
        if segment.flags.contains(TcpFlags::SYN) {
            return;
        }
        let rtt = self.path_rtt(number);
        self.ends[number].clock.add(value, at, rtt.base() / 4);
        if segment.payload == 0 {
            return;
        }
        let end = &mut self.ends[number];
        // After a pause, the echo shows the time of the application, and not of the path.
        end.half.advance(at, &rtt);
        let is_busy = end.half.is_in_round();
        if let Some(time) = end.rtt.echoed_timestamp(echo, at) {
            if is_busy {
                end.rtt.add(time);
            } else {
                end.rtt.add_bound(time);
            }
        }
    }

    fn acknowledge(&mut self, number: usize, at: u64, segment: &TcpSegment) -> PacketFlags {
        let is_hello = segment.flags.contains(TcpFlags::SYN);
        let scale = if is_hello { Some(0) } else { self.window_scale(number) };
        let scale = scale.unwrap_or(self.ends[number].inferred_scale);
        let is_control = is_hello || segment.flags.contains(TcpFlags::FIN);
        let packet = AckPacket {
            at,
            acknowledgement: segment.acknowledgement,
            window: u64::from(segment.window) << scale,
            is_window_known: true,
            payload: segment.payload,
            sack: segment.options.sack(),
            is_control,
        };
        self.ends[number].raw_window = segment.window;
        let rtt = self.path_rtt(1 - number);
        let [first, second] = &mut self.ends;
        let (own, other) = if number == 0 { (first, second) } else { (second, first) };
        let before = other.half.acknowledged_payload;
        let flags = other.half.acknowledge(&packet, &rtt, |sample, is_prompt| {
            if is_prompt {
                own.rtt.add_prompt(sample);
            } else {
                own.rtt.add(sample);
            }
        });
        own.ids.add(segment.ip_id, other.half.acknowledged_payload - before);
        flags
    }

    fn data(&mut self, number: usize, at: u64, captured_at: u64, segment: &TcpSegment) -> PacketFlags {
        if self.ends[number].half.counts.mss_limit.is_none()
            && let Some(hello) = self.ends[1 - number].hello
        {
            self.ends[number].half.counts.mss_limit = hello.mss.map(u32::from).filter(|mss| *mss >= 88);
        }
        let packet = DataPacket {
            at,
            captured_at,
            sequence: segment.sequence,
            payload: segment.payload,
            timestamp: segment.options.timestamps.map(|timestamps| timestamps.value),
            ip_id: segment.ip_id,
            is_pushed: segment.flags.contains(TcpFlags::PSH),
        };
        let rtt = self.path_rtt(number);
        let flags = self.ends[number].half.data(&packet, &rtt);
        self.infer_scale(number);
        flags
    }

    /// Returns the scale of the windows that an end advertises, if the handshake shows it.
    pub(crate) fn window_scale(&self, number: usize) -> Option<u8> {
        let known = |number: usize| self.ends[number].hello.filter(|hello| !hello.is_truncated);
        let own = known(number)?.window_scale;
        let other = match known(1 - number) {
            Some(hello) => hello.window_scale,
            // Without the other SYN, an end that offers a scale is believed.
            None => own,
        };
        Some(own.filter(|_| other.is_some()).unwrap_or(0).min(14))
    }

    /// Increases the inferred scale of the receiver until its window holds the data in flight.
    fn infer_scale(&mut self, sender: usize) {
        let receiver = 1 - sender;
        if self.window_scale(receiver).is_some() || self.ends[receiver].raw_window == 0 {
            return;
        }
        let mss = u64::from(self.ends[sender].half.counts.mss);
        let (in_flight, window) = self.ends[sender].half.flight_and_window();
        if window == u64::MAX || self.ends[receiver].pure_acks == 0 {
            return;
        }
        // A single estimate can be too high. A window that is too small for the data is so each time.
        if window + mss >= in_flight {
            self.ends[receiver].overfull = 0;
            return;
        }
        self.ends[receiver].overfull += 1;
        if self.ends[receiver].overfull < MIN_OVERFULL {
            return;
        }
        self.ends[receiver].overfull = 0;
        let mut factor = 1;
        while window * factor + mss < in_flight && self.ends[receiver].inferred_scale < 14 {
            self.ends[receiver].inferred_scale += 1;
            factor *= 2;
        }
        if factor > 1 {
            self.ends[sender].half.forget_full_windows(factor);
        }
    }
}

fn merge(mut flags: PacketFlags, other: PacketFlags) -> PacketFlags {
    for (flag, _) in other.iter() {
        flags.insert(flag);
    }
    flags
}
