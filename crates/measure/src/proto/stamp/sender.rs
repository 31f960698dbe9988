//! The STAMP sender: sent packets, and the figures of each direction from the answers.
//!
//! Only a gap in the numbers shows whether a reflector counts packets itself. So after the last packet the sender sends
//! a query with a much higher number ([`StampSender::numbering_query`]). A counting reflector answers with the number
//! of packets it has seen, so that even the last losses are assigned to a direction. A copying reflector answers with
//! the query's number. An answer is accepted only if it repeats the number and the timestamp of a sent packet, because
//! anyone on the network can send answers.

use core::net::SocketAddr;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::packet::{ErrorEstimate, ReflectorPacket, SenderPacket, Timestamp, TimestampFormat};
use super::report::{DelayDistribution, OneWay, ReflectorNumbering, StampReport};

/// Distance of a query's number. To a reflector it looks like lost packets.
const QUERY_OFFSET: u32 = 1 << 16;
/// TTL of test packets (RFC 8762 §4.3: 255 by default).
pub const TTL: u8 = 255;

/// The sender's end of one session.
#[derive(Debug)]
pub struct StampSender {
    session: u16,
    estimate: ErrorEstimate,
    one_clock: bool,
    sent: Vec<Timestamp>,
    /// Timestamps of the queries by their numbers.
    queries: HashMap<u32, Timestamp>,
    answers: Vec<Answer>,
    is_answered: Vec<bool>,
    duplicates: u64,
    /// Reflector numbers in the answers. There are more numbers than answers if packets were duplicated on the forward
    /// path.
    numbers_seen: HashSet<u32>,
    nonsense: u64,
    /// Number of a query, and the reflector's number in its answer.
    query_answer: Option<(u32, u32)>,
}

/// An accepted answer; the list is in order of arrival.
#[derive(Clone, Copy, Debug)]
struct Answer {
    sequence: u32,
    reflector: u32,
    rtt: i64,
    reflector_delay: i64,
    /// Differences of two clocks; `None` if their formats differ.
    forward: Option<i64>,
    back: Option<i64>,
    ttl: u8,
    estimate: ErrorEstimate,
}

impl StampSender {
    /// Creates a session with this identifier and a clock with the accuracy `estimate`.
    pub fn new(session: u16, estimate: ErrorEstimate) -> Self {
        StampSender {
            session,
            estimate,
            one_clock: false,
            sent: Vec::new(),
            queries: HashMap::new(),
            answers: Vec::new(),
            is_answered: Vec::new(),
            duplicates: 0,
            numbers_seen: HashSet::new(),
            nonsense: 0,
            query_answer: None,
        }
    }

    /// Records that both ends use the same clock, so that one-way delays are known in any case.
    pub fn share_clock(&mut self) {
        self.one_clock = true;
    }

    /// Returns the next packet of the session, sent at `now`.
    pub fn packet(&mut self, now: Timestamp) -> SenderPacket {
        let sequence = self.sent.len() as u32;
        self.sent.push(now);
        self.is_answered.push(false);
        SenderPacket { sequence, sent: now, estimate: self.estimate, session: self.session }
    }

    /// Returns the number of sent packets.
    pub fn sent_count(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Returns the number of answered packets.
    pub fn answered_count(&self) -> u64 {
        self.answers.len() as u64
    }

    /// Returns whether all packets were answered.
    pub fn all_answered(&self) -> bool {
        self.answers.len() == self.sent.len()
    }

    /// Returns the query for the reflector's numbering, to be sent after the last packet.
    pub fn numbering_query(&mut self, now: Timestamp) -> SenderPacket {
        let sequence = self.sent.len() as u32 + QUERY_OFFSET + self.queries.len() as u32;
        self.queries.insert(sequence, now);
        SenderPacket { sequence, sent: now, estimate: self.estimate, session: self.session }
    }

    /// Returns whether a query was answered.
    pub fn is_numbering_known(&self) -> bool {
        self.query_answer.is_some()
    }

    /// Counts a datagram that is not an answer.
    pub fn record_invalid(&mut self) {
        self.nonsense += 1;
    }

    /// Handles an answer that arrived at `now`.
    pub fn record_answer(&mut self, packet: &ReflectorPacket, now: Timestamp) {
        let sequence = packet.sender.sequence;
        if self.queries.get(&sequence) == Some(&packet.sender.sent) {
            self.query_answer.get_or_insert((sequence, packet.sequence));
            return;
        }
        let index = sequence as usize;
        match self.sent.get(index) {
            Some(sent) if *sent == packet.sender.sent => {}
            _ => return self.nonsense += 1,
        }
        let Some(answer) = answer(packet, now) else { return self.nonsense += 1 };
        // The limit bounds the memory against a reflector that answers without end.
        if self.numbers_seen.len() <= 2 * self.sent.len() {
            self.numbers_seen.insert(packet.sequence);
        }
        if std::mem::replace(&mut self.is_answered[index], true) {
            self.duplicates += 1;
        } else {
            self.answers.push(answer);
        }
    }

    /// Returns the figures of the session.
    pub fn report(
        &self,
        reflector: SocketAddr,
        packet_bytes: u32,
        interval: Duration,
        authenticated: bool,
    ) -> StampReport {
        let (sent, answered) = (self.sent.len() as u64, self.answers.len() as u64);
        let numbers = self.numbers();
        let lost = sent - answered;
        let lost_forward = self.lost_forward(numbers, lost);
        let in_order = |number: fn(&Answer) -> u32| count_overtaken(self.answers.iter().map(number));
        let counted = numbers == ReflectorNumbering::Counted;
        StampReport {
            reflector,
            packet_bytes,
            interval,
            authenticated,
            sent,
            answered,
            lost,
            lost_forward,
            lost_back: lost_forward.map(|forward| lost - forward),
            sequence_numbers: numbers,
            duplicates: self.duplicates,
            reordered: in_order(|answer| answer.sequence),
            reordered_forward: counted.then(|| self.reordered_forward()),
            reordered_back: counted.then(|| in_order(|answer| answer.reflector)),
            unmatched: self.nonsense,
            rtt: self.distribution(|answer| Some(answer.rtt)),
            reflector_delay: self.distribution(|answer| Some(answer.reflector_delay)),
            forward_variation: self.variation(|answer| answer.forward),
            back_variation: self.variation(|answer| answer.back),
            one_way: self.one_way(),
            // A reflector that does not know the TTL also sends 255 (RFC 8762 §4.3).
            forward_hops: self.answers.iter().map(|answer| TTL - answer.ttl).filter(|&hops| hops > 0).min(),
        }
    }

    fn numbers(&self) -> ReflectorNumbering {
        match self.query_answer {
            Some((query, answer)) if query == answer => ReflectorNumbering::Copied,
            Some(_) => ReflectorNumbering::Counted,
            None if self.answers.iter().any(|answer| answer.reflector != answer.sequence) => {
                ReflectorNumbering::Counted
            }
            None => ReflectorNumbering::Unknown,
        }
    }

    /// Returns the packets that never reached the reflector.
    fn lost_forward(&self, numbers: ReflectorNumbering, lost: u64) -> Option<u64> {
        match (numbers, self.query_answer) {
            _ if lost == 0 => Some(0),
            // The reflector's number in the answer to a query is the number of packets it reflected before.
            (ReflectorNumbering::Counted, Some((_, before))) => {
                // The reflector counts packets twice that were duplicated on the forward path.
                let doubled = (self.numbers_seen.len() as u64).saturating_sub(self.answers.len() as u64);
                let seen = u64::from(before).saturating_sub(doubled);
                Some((self.sent.len() as u64).saturating_sub(seen).min(lost))
            }
            // Without an answer to a query: the packets missing before the last answer.
            (ReflectorNumbering::Counted, None) => {
                let last = self.answers.iter().max_by_key(|answer| answer.sequence)?;
                Some(u64::from(last.sequence.saturating_sub(last.reflector)).min(lost))
            }
            _ => None,
        }
    }

    fn reordered_forward(&self) -> u64 {
        let mut by_reflector: Vec<&Answer> = self.answers.iter().collect();
        by_reflector.sort_by_key(|answer| answer.reflector);
        count_overtaken(by_reflector.into_iter().map(|answer| answer.sequence))
    }

    fn distribution(&self, figure: impl Fn(&Answer) -> Option<i64>) -> Option<DelayDistribution> {
        DelayDistribution::of(self.answers.iter().filter_map(figure).collect())
    }

    fn variation(&self, figure: impl Fn(&Answer) -> Option<i64>) -> Option<DelayDistribution> {
        let delays: Vec<i64> = self.answers.iter().filter_map(figure).collect();
        let shortest = *delays.iter().min()?;
        DelayDistribution::of(delays.into_iter().map(|delay| delay.saturating_sub(shortest)).collect())
    }

    fn one_way(&self) -> Option<OneWay> {
        let last = self.answers.last()?.estimate;
        let all = self.answers.iter().all(|answer| answer.estimate.is_synchronised());
        let error = match (self.one_clock, all && self.estimate.is_synchronised()) {
            (true, _) => Duration::ZERO,
            (false, true) => self.estimate.error()? + last.error()?,
            (false, false) => return None,
        };
        Some(OneWay {
            forward: self.distribution(|answer| answer.forward)?,
            back: self.distribution(|answer| answer.back)?,
            error_seconds: error.into(),
        })
    }
}

/// Counts numbers after a larger one (RFC 4737 §3.3).
fn count_overtaken(numbers: impl Iterator<Item = u32>) -> u64 {
    let mut next = 0u32;
    let mut late = 0;
    for number in numbers {
        if number >= next {
            next = number.saturating_add(1);
        } else {
            late += 1;
        }
    }
    late
}

/// Evaluates an answer; `None` if its timestamps are impossible, because the time at the reflector exceeds the round
/// trip.
fn answer(packet: &ReflectorPacket, now: Timestamp) -> Option<Answer> {
    let theirs = packet.estimate.format();
    let away = now.nanos_since(packet.sender.sent, TimestampFormat::Ntp);
    let reflector_delay = packet.sent.nanos_since(packet.received, theirs);
    if !(0..=away).contains(&reflector_delay) {
        return None;
    }
    let same = theirs == TimestampFormat::Ntp;
    Some(Answer {
        sequence: packet.sender.sequence,
        reflector: packet.sequence,
        rtt: away - reflector_delay,
        reflector_delay,
        forward: same.then(|| packet.received.nanos_since(packet.sender.sent, theirs)),
        back: same.then(|| now.nanos_since(packet.sent, theirs)),
        ttl: packet.sender_ttl,
        estimate: packet.estimate,
    })
}
