//! Packet log as JSON lines, schema `lfn.emulate.log/2` (`doc/reference/emulate-output.md`). Each object describes a
//! range of virtual packets with the same outcome.
//!
//! The encoder writes JSON without serde, because no value needs escaping and because times need nine decimals. A float
//! of seconds since 1970 has only six.

use std::fmt::{self, Display};
use std::io::Write;

use lfn_base::time::Instant;
use lfn_link::{DropCause, LinkDirection, LinkEvent, Packet};

use super::encode::Encode;
use super::record::{LogStart, OutcomeKind, PacketOutcome, Record};
use crate::data_path::UnmodelledDrop;

/// Encoder of packet outcomes.
pub(super) struct JsonLinesEncoder {
    start: LogStart,
    seed: u64,
}

impl JsonLinesEncoder {
    pub(super) fn new(start: LogStart, seed: u64) -> Self {
        JsonLinesEncoder { start, seed }
    }

    fn since(&self, at: Instant) -> Seconds {
        Seconds(i128::from(self.start.since(at)))
    }

    fn write_event(&self, object: &mut JsonObject, event: &LinkEvent, now: Instant) {
        match *event {
            LinkEvent::Forward { packet, due } => {
                object.range(&packet);
                object.number("due_seconds", self.since(due));
                object.number("left_seconds", self.since(now));
                object.number("lateness_seconds", Seconds((now - due).as_nanos() as i128));
                object.changes(&packet);
            }
            LinkEvent::Drop { packet, cause, at, reply_mtu } => {
                object.range(&packet);
                object.word("cause", key(cause));
                object.number("at_seconds", self.since(at));
                object.changes(&packet);
                if let Some(mtu) = reply_mtu {
                    object.number("reply_mtu_bytes", mtu);
                }
            }
            LinkEvent::Duplicate { packet, at } => {
                object.range(&packet);
                object.number("at_seconds", self.since(at));
            }
        }
    }
}

impl Encode for JsonLinesEncoder {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let mut object = JsonObject::begin(out);
        object.word("schema", "lfn.emulate.log/2");
        object.number("start_unix_seconds", Seconds(i128::from(self.start.wall)));
        object.number("seed", self.seed);
        object.end();
    }

    fn accepts(&self, record: &Record) -> bool {
        matches!(record, Record::Outcome(_))
    }

    fn record(&mut self, record: &Record, out: &mut Vec<u8>) {
        let Record::Outcome(outcome) = record else { return };
        let PacketOutcome { path, direction, arrival, kind } = &**outcome;
        let mut object = JsonObject::begin(out);
        object.word("outcome", outcome_name(kind));
        // The same number as in `lfn emulate set --path`.
        object.number("path", path + 1);
        object.word("direction", direction_name(*direction));
        object.number("id", arrival.serial);
        object.number("packets_before", arrival.packets_before);
        object.number("arrived_seconds", self.since(arrival.at));
        object.number("arrived_unix_seconds", Seconds(i128::from(self.start.wall(arrival.at))));
        if let Some(endpoints) = arrival.endpoints {
            object.word("protocol", endpoints.protocol_name());
            object.word("from", endpoints.sender());
            object.word("to", endpoints.receiver());
        }
        match kind {
            OutcomeKind::LinkEvent(event, now) => self.write_event(&mut object, event, *now),
            OutcomeKind::UnmodelledDrop(packet, why, now) => {
                object.range(packet);
                object.word("cause", drop_reason(*why));
                object.number("at_seconds", self.since(*now));
            }
            OutcomeKind::IcmpReply(packet, reply, now) => {
                object.number("first", packet.first);
                object.number("count", packet.count);
                object.number("bytes", reply.bytes);
                object.word("cause", key(DropCause::TooBig));
                object.number("at_seconds", self.since(*now));
                object.number("reply_mtu_bytes", reply.mtu);
            }
            OutcomeKind::InFlight(left) => object.number("count", left),
        }
        object.end();
    }

    fn end(&mut self, written: u64, missed: &[u64], out: &mut Vec<u8>) {
        let mut object = JsonObject::begin(out);
        object.number("end", true);
        object.number("written", written);
        object.number("missed", missed.iter().sum::<u64>());
        object.end();
    }
}

fn outcome_name(kind: &OutcomeKind) -> &'static str {
    match kind {
        OutcomeKind::LinkEvent(LinkEvent::Forward { .. }, _) => "forward",
        OutcomeKind::LinkEvent(LinkEvent::Drop { .. }, _) => "drop",
        OutcomeKind::LinkEvent(LinkEvent::Duplicate { .. }, _) => "duplicate",
        OutcomeKind::UnmodelledDrop(..) => "lost",
        OutcomeKind::IcmpReply(..) => "icmp_reply",
        OutcomeKind::InFlight(_) => "in_flight",
    }
}

/// Key of a direction in the accuracy report.
fn direction_name(direction: LinkDirection) -> &'static str {
    match direction {
        LinkDirection::Forward => "near_to_far",
        LinkDirection::Return => "far_to_near",
    }
}

/// Key of a drop in the accuracy report.
fn drop_reason(why: UnmodelledDrop) -> &'static str {
    match why {
        UnmodelledDrop::RingFull => "ring_full",
        UnmodelledDrop::SendFailed => "send_failed",
    }
}

/// Returns the JSON key of a drop cause, as in the accuracy report.
fn key(cause: DropCause) -> Underscored {
    Underscored(cause.name())
}

struct Underscored(&'static str);

impl Display for Underscored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.split(' ').enumerate().try_for_each(|(at, word)| write!(f, "{}{word}", if at > 0 { "_" } else { "" }))
    }
}

/// Nanoseconds that are written as seconds.
struct Seconds(i128);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
    }
}

/// One JSON object on one line. Writing to a vector cannot fail.
struct JsonObject<'a> {
    out: &'a mut Vec<u8>,
    separator: char,
}

impl<'a> JsonObject<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        JsonObject { out, separator: '{' }
    }

    fn number(&mut self, key: &str, value: impl Display) {
        let _ = write!(self.out, "{}\"{key}\":{value}", self.separator);
        self.separator = ',';
    }

    fn word(&mut self, key: &str, value: impl Display) {
        let _ = write!(self.out, "{}\"{key}\":\"{value}\"", self.separator);
        self.separator = ',';
    }

    fn range(&mut self, packet: &Packet) {
        self.number("first", packet.first);
        self.number("count", packet.count);
        self.number("bytes", packet.bytes());
    }

    /// Writes the queueing delay, and the changes that apply.
    fn changes(&mut self, packet: &Packet) {
        self.number("queue_delay_seconds", Seconds(packet.queue_delay.as_nanos() as i128));
        if packet.changes.is_marked {
            self.number("marked", true);
        }
        if let Some(corruption) = packet.changes.corruption {
            self.word("corrupted", if corruption.is_hidden { "hidden" } else { "visible" });
        }
        if packet.changes.is_copy {
            self.number("copy", true);
        }
    }

    fn end(self) {
        self.out.extend_from_slice(b"}\n");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_packet::{Changes, Corruption};

    use super::*;
    use crate::watch::log::record::FrameArrival;

    fn lines(kinds: &[OutcomeKind]) -> Vec<serde_json::Value> {
        let start = LogStart { instant: Instant::from_nanos(5_000_000_000), wall: 1_795_000_000_123_456_789 };
        let (mut encoder, mut out) = (JsonLinesEncoder::new(start, u64::MAX), Vec::new());
        encoder.begin(&mut out);
        let arrival =
            FrameArrival { serial: 3, packets_before: 40, at: Instant::from_nanos(4_999_999_999), endpoints: None };
        for kind in kinds {
            let outcome = PacketOutcome { path: 0, direction: LinkDirection::Return, arrival, kind: *kind };
            encoder.record(&Record::Outcome(Box::new(outcome)), &mut out);
        }
        encoder.end(kinds.len() as u64, &[1, 0, 2], &mut out);
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn every_line_is_an_object_with_its_outcome() {
        let mut packet = Packet::super_packet(9, 10, 1514, 100);
        packet.queue_delay = Duration::from_micros(5);
        packet.changes =
            Changes { is_marked: true, corruption: Some(Corruption { random: 1, is_hidden: true }), is_copy: true };
        let (due, now) = (Instant::from_nanos(5_100_000_000), Instant::from_nanos(5_100_000_070));
        let lines = lines(&[
            OutcomeKind::LinkEvent(LinkEvent::Forward { packet, due }, now),
            OutcomeKind::LinkEvent(
                LinkEvent::Drop {
                    packet: Packet::single(9, 60),
                    cause: DropCause::TooBig,
                    at: due,
                    reply_mtu: Some(1400),
                },
                now,
            ),
            OutcomeKind::UnmodelledDrop(packet, UnmodelledDrop::RingFull, now),
            OutcomeKind::InFlight(7),
        ]);
        assert_eq!(lines[0]["schema"], "lfn.emulate.log/2");
        assert_eq!(lines[0]["seed"], u64::MAX);
        let forward = &lines[1];
        assert_eq!(
            (forward["outcome"].as_str(), forward["direction"].as_str()),
            (Some("forward"), Some("far_to_near"))
        );
        assert_eq!(
            (forward["id"].as_u64(), forward["count"].as_u64(), forward["bytes"].as_u64()),
            (Some(3), Some(10), Some(13_726))
        );
        assert_eq!((forward["arrived_seconds"].as_f64(), forward["due_seconds"].as_f64()), (Some(-1e-9), Some(0.1)));
        assert_eq!(
            (forward["lateness_seconds"].as_f64(), forward["queue_delay_seconds"].as_f64()),
            (Some(7e-8), Some(5e-6))
        );
        assert_eq!(
            (&forward["marked"], &forward["corrupted"], &forward["copy"]),
            (&true.into(), &"hidden".into(), &true.into())
        );
        assert_eq!(
            (&lines[2]["cause"], &lines[2]["marked"], lines[2]["reply_mtu_bytes"].as_u64()),
            (&"too_big".into(), &serde_json::Value::Null, Some(1400))
        );
        assert_eq!((lines[3]["cause"].as_str(), lines[4]["count"].as_u64()), (Some("ring_full"), Some(7)));
        assert_eq!(
            (lines[5]["end"].as_bool(), lines[5]["written"].as_u64(), lines[5]["missed"].as_u64()),
            (Some(true), Some(4), Some(3))
        );
    }

    #[test]
    fn causes_have_the_keys_of_the_accuracy_report() {
        for cause in DropCause::ALL {
            assert_eq!(serde_json::to_string(&cause).unwrap(), format!("\"{}\"", key(cause)));
        }
    }

    #[test]
    fn unix_times_keep_their_nanoseconds() {
        assert_eq!(Seconds(1_795_000_000_123_456_789).to_string(), "1795000000.123456789");
        assert_eq!((Seconds(-1).to_string(), Seconds(0).to_string()), ("-0.000000001".into(), "0.000000000".into()));
    }
}
