//! The sender: which packets went out, and what their answers say of the path in each direction.
//!
//! Whether the reflector's numbers are its own count shows only when a number was left out: after the last packet the
//! sender asks once more with a number far ahead ([`Sender::question`]). A reflector that counts answers with how many it
//! has seen, so that even what was lost last is assigned to its direction; one that copies answers with that number.
//! Answers come from the network: none is believed that does not repeat the number and the stamp of a packet that was
//! sent.

use core::net::SocketAddr;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::packet::{ErrorEstimate, Format, ReflectorPacket, SenderPacket, Timestamp};
use super::report::{Distribution, Numbers, OneWay, StampReport};

/// How far ahead the question's number is. To a reflector it looks like so many packets lost.
const AHEAD: u32 = 1 << 16;
/// TTL that test packets are sent with (RFC 8762 §4.3: 255, unless told otherwise).
pub const TTL: u8 = 255;

/// The sender's end of one session.
#[derive(Debug)]
pub struct Sender {
    session: u16,
    estimate: ErrorEstimate,
    one_clock: bool,
    sent: Vec<Timestamp>,
    /// Stamps of the questions by their numbers.
    questions: HashMap<u32, Timestamp>,
    answers: Vec<Answer>,
    is_answered: Vec<bool>,
    duplicates: u64,
    /// The reflector's numbers that were seen: more than answers where packets were doubled on their way there.
    numbers_seen: HashSet<u32>,
    nonsense: u64,
    /// What the reflector answered to a question: its number for one that had this number.
    told: Option<(u32, u32)>,
}

/// An answer that was believed, in the order of arrival.
#[derive(Clone, Copy, Debug)]
struct Answer {
    sequence: u32,
    reflector: u32,
    rtt: i64,
    held: i64,
    /// Differences of two clocks; `None` where their formats differ.
    forward: Option<i64>,
    back: Option<i64>,
    ttl: u8,
    estimate: ErrorEstimate,
}

impl Sender {
    /// For a session of this identifier, by a clock as good as `estimate`.
    pub fn new(session: u16, estimate: ErrorEstimate) -> Self {
        Sender {
            session,
            estimate,
            one_clock: false,
            sent: Vec::new(),
            questions: HashMap::new(),
            answers: Vec::new(),
            is_answered: Vec::new(),
            duplicates: 0,
            numbers_seen: HashSet::new(),
            nonsense: 0,
            told: None,
        }
    }

    /// Both ends read the same clock: one-way delays are known, whatever else is said of it.
    pub fn share_clock(&mut self) {
        self.one_clock = true;
    }

    /// The next packet of the session, sent at `now`.
    pub fn packet(&mut self, now: Timestamp) -> SenderPacket {
        let sequence = self.sent.len() as u32;
        self.sent.push(now);
        self.is_answered.push(false);
        SenderPacket { sequence, sent: now, estimate: self.estimate, session: self.session }
    }

    /// How many were sent.
    pub fn count(&self) -> u64 {
        self.sent.len() as u64
    }

    /// How many were answered.
    pub fn answers(&self) -> u64 {
        self.answers.len() as u64
    }

    /// Whether all were answered.
    pub fn has_all(&self) -> bool {
        self.answers.len() == self.sent.len()
    }

    /// The packet that asks, after the last one, what the reflector's numbers are.
    pub fn question(&mut self, now: Timestamp) -> SenderPacket {
        let sequence = self.sent.len() as u32 + AHEAD + self.questions.len() as u32;
        self.questions.insert(sequence, now);
        SenderPacket { sequence, sent: now, estimate: self.estimate, session: self.session }
    }

    /// Whether a question was answered.
    pub fn is_told(&self) -> bool {
        self.told.is_some()
    }

    /// A datagram that was no answer at all.
    pub fn unreadable(&mut self) {
        self.nonsense += 1;
    }

    /// Takes an answer that came at `now`.
    pub fn answered(&mut self, packet: &ReflectorPacket, now: Timestamp) {
        let sequence = packet.sender.sequence;
        if self.questions.get(&sequence) == Some(&packet.sender.sent) {
            self.told.get_or_insert((sequence, packet.sequence));
            return;
        }
        let index = sequence as usize;
        match self.sent.get(index) {
            Some(sent) if *sent == packet.sender.sent => {}
            _ => return self.nonsense += 1,
        }
        let Some(answer) = answer(packet, now) else { return self.nonsense += 1 };
        // A reflector that answers without end makes this no larger.
        if self.numbers_seen.len() <= 2 * self.sent.len() {
            self.numbers_seen.insert(packet.sequence);
        }
        if std::mem::replace(&mut self.is_answered[index], true) {
            self.duplicates += 1;
        } else {
            self.answers.push(answer);
        }
    }

    /// What the session came to.
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
        let in_order = |number: fn(&Answer) -> u32| overtaken(self.answers.iter().map(number));
        let counted = numbers == Numbers::Counted;
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
            numbers,
            duplicates: self.duplicates,
            reordered: in_order(|answer| answer.sequence),
            reordered_forward: counted.then(|| self.reordered_forward()),
            reordered_back: counted.then(|| in_order(|answer| answer.reflector)),
            nonsense: self.nonsense,
            rtt: self.distribution(|answer| Some(answer.rtt)),
            held: self.distribution(|answer| Some(answer.held)),
            forward_variation: self.variation(|answer| answer.forward),
            back_variation: self.variation(|answer| answer.back),
            one_way: self.one_way(),
            // 255 is also what a reflector says that cannot tell (RFC 8762 §4.3).
            forward_hops: self.answers.iter().map(|answer| TTL - answer.ttl).filter(|&hops| hops > 0).min(),
        }
    }

    fn numbers(&self) -> Numbers {
        match self.told {
            Some((asked, answered)) if asked == answered => Numbers::Copied,
            Some(_) => Numbers::Counted,
            None if self.answers.iter().any(|answer| answer.reflector != answer.sequence) => Numbers::Counted,
            None => Numbers::Unknown,
        }
    }

    /// Packets that the reflector never counted.
    fn lost_forward(&self, numbers: Numbers, lost: u64) -> Option<u64> {
        match (numbers, self.told) {
            _ if lost == 0 => Some(0),
            // Its number for a question is how many packets of the session it reflected before.
            (Numbers::Counted, Some((_, before))) => {
                // Packets that were doubled on the way there are counted twice.
                let doubled = (self.numbers_seen.len() as u64).saturating_sub(self.answers.len() as u64);
                let seen = u64::from(before).saturating_sub(doubled);
                Some((self.sent.len() as u64).saturating_sub(seen).min(lost))
            }
            // Without the last word: what is missing before the last answer.
            (Numbers::Counted, None) => {
                let last = self.answers.iter().max_by_key(|answer| answer.sequence)?;
                Some(u64::from(last.sequence.saturating_sub(last.reflector)).min(lost))
            }
            _ => None,
        }
    }

    fn reordered_forward(&self) -> u64 {
        let mut by_reflector: Vec<&Answer> = self.answers.iter().collect();
        by_reflector.sort_by_key(|answer| answer.reflector);
        overtaken(by_reflector.into_iter().map(|answer| answer.sequence))
    }

    fn distribution(&self, figure: impl Fn(&Answer) -> Option<i64>) -> Option<Distribution> {
        Distribution::of(self.answers.iter().filter_map(figure).collect())
    }

    fn variation(&self, figure: impl Fn(&Answer) -> Option<i64>) -> Option<Distribution> {
        let delays: Vec<i64> = self.answers.iter().filter_map(figure).collect();
        let least = *delays.iter().min()?;
        Distribution::of(delays.into_iter().map(|delay| delay.saturating_sub(least)).collect())
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

/// Numbers that come after a larger one (RFC 4737 §3.3).
fn overtaken(numbers: impl Iterator<Item = u32>) -> u64 {
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

/// What an answer says; `None` if its stamps cannot be: the reflector held the packet for longer than it was away.
fn answer(packet: &ReflectorPacket, now: Timestamp) -> Option<Answer> {
    let theirs = packet.estimate.format();
    let away = now.nanos_since(packet.sender.sent, Format::Ntp);
    let held = packet.sent.nanos_since(packet.received, theirs);
    if !(0..=away).contains(&held) {
        return None;
    }
    let same = theirs == Format::Ntp;
    Some(Answer {
        sequence: packet.sender.sequence,
        reflector: packet.sequence,
        rtt: away - held,
        held,
        forward: same.then(|| packet.received.nanos_since(packet.sender.sent, theirs)),
        back: same.then(|| now.nanos_since(packet.sent, theirs)),
        ttl: packet.sender_ttl,
        estimate: packet.estimate,
    })
}
