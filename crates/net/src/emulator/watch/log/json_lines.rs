//! The log as JSON lines, schema `lfn.emulate.log/1` (`doc/emulate-output.md`): one object for each range of virtual
//! packets that met the same fate.
//!
//! Written by hand because nothing in it needs escaping and because times are to have nine decimals: a float since 1970
//! has six.

use std::fmt::{self, Display};
use std::io::Write;

use lfn_core::link::{Direction, DropCause, Event, Packet};
use lfn_core::time::Instant;

use super::Encode;
use super::record::{Fate, Record, What, Zero};
use crate::emulator::data_path::Unforeseen;

/// Writes fates.
pub(super) struct JsonLines {
    zero: Zero,
    seed: u64,
}

impl JsonLines {
    pub(super) fn new(zero: Zero, seed: u64) -> Self {
        JsonLines { zero, seed }
    }

    fn since(&self, at: Instant) -> Seconds {
        Seconds(i128::from(self.zero.since(at)))
    }

    fn what_happened(&self, line: &mut Line, event: &Event, now: Instant) {
        match *event {
            Event::Forward { packet, due } => {
                line.range(&packet);
                line.number("due_seconds", self.since(due));
                line.number("left_seconds", self.since(now));
                line.number("lateness_seconds", Seconds((now - due).as_nanos() as i128));
                line.changes(&packet);
            }
            Event::Drop { packet, cause, at, reply_mtu } => {
                line.range(&packet);
                line.word("cause", key(cause));
                line.number("at_seconds", self.since(at));
                line.changes(&packet);
                if let Some(mtu) = reply_mtu {
                    line.number("reply_mtu_bytes", mtu);
                }
            }
            Event::Duplicate { packet, at } => {
                line.range(&packet);
                line.number("at_seconds", self.since(at));
            }
        }
    }
}

impl Encode for JsonLines {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let mut line = Line::begin(out);
        line.word("schema", "lfn.emulate.log/1");
        line.number("start_unix_seconds", Seconds(i128::from(self.zero.wall)));
        line.number("seed", self.seed);
        line.end();
    }

    fn record(&mut self, record: &Record, out: &mut Vec<u8>) {
        let Record::Fate(told) = record else { return };
        let Fate { path, direction, arrival, what } = &**told;
        let mut line = Line::begin(out);
        line.word("fate", fate(what));
        // As `lfn emulate set --path` counts.
        line.number("path", path + 1);
        line.word("direction", name(*direction));
        line.number("id", arrival.serial);
        line.number("packets_before", arrival.packets_before);
        line.number("arrived_seconds", self.since(arrival.at));
        line.number("arrived_unix_seconds", Seconds(i128::from(self.zero.wall(arrival.at))));
        if let Some(endpoints) = arrival.endpoints {
            line.word("protocol", endpoints.protocol_name());
            line.word("from", endpoints.sender());
            line.word("to", endpoints.receiver());
        }
        match what {
            What::Happened(event, now) => self.what_happened(&mut line, event, *now),
            What::Lost(packet, why, now) => {
                line.range(packet);
                line.word("cause", reason(*why));
                line.number("at_seconds", self.since(*now));
            }
            What::Answered(packet, answer, now) => {
                line.number("first", packet.first);
                line.number("count", packet.count);
                line.number("bytes", answer.bytes);
                line.word("cause", key(DropCause::TooBig));
                line.number("at_seconds", self.since(*now));
                line.number("reply_mtu_bytes", answer.mtu);
            }
            What::InFlight(left) => line.number("count", left),
        }
        line.end();
    }

    fn end(&mut self, written: u64, missed: &[u64], out: &mut Vec<u8>) {
        let mut line = Line::begin(out);
        line.number("end", true);
        line.number("written", written);
        line.number("missed", missed.iter().sum::<u64>());
        line.end();
    }
}

fn fate(what: &What) -> &'static str {
    match what {
        What::Happened(Event::Forward { .. }, _) => "forward",
        What::Happened(Event::Drop { .. }, _) => "drop",
        What::Happened(Event::Duplicate { .. }, _) => "duplicate",
        What::Lost(..) => "lost",
        What::Answered(..) => "answer",
        What::InFlight(_) => "in_flight",
    }
}

/// As the ledger calls it.
fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "near_to_far",
        Direction::Return => "far_to_near",
    }
}

/// As the ledger calls it.
fn reason(why: Unforeseen) -> &'static str {
    match why {
        Unforeseen::NoRoom => "no_room",
        Unforeseen::SendFailed => "send_failed",
    }
}

/// The word of a cause as a key of JSON, as the ledger has it.
fn key(cause: DropCause) -> Underscored {
    Underscored(cause.word())
}

struct Underscored(&'static str);

impl Display for Underscored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.split(' ').enumerate().try_for_each(|(at, word)| write!(f, "{}{word}", if at > 0 { "_" } else { "" }))
    }
}

/// Nanoseconds, written as seconds.
struct Seconds(i128);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
    }
}

/// One object on one line. Writing to a vector cannot fail.
struct Line<'a> {
    out: &'a mut Vec<u8>,
    separator: char,
}

impl<'a> Line<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        Line { out, separator: '{' }
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

    /// What it went through; the usual is left out, but for the wait.
    fn changes(&mut self, packet: &Packet) {
        self.number("waited_seconds", Seconds(packet.waited.as_nanos() as i128));
        if packet.changes.congestion {
            self.number("marked", true);
        }
        if let Some(damage) = packet.changes.damage {
            self.word("damaged", if damage.hidden { "hidden" } else { "visible" });
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

    use lfn_core::link::{Changes, Damage};

    use super::*;
    use crate::emulator::watch::log::record::Arrival;

    fn lines(whats: &[What]) -> Vec<serde_json::Value> {
        let zero = Zero { instant: Instant::from_nanos(5_000_000_000), wall: 1_795_000_000_123_456_789 };
        let (mut encoder, mut out) = (JsonLines::new(zero, u64::MAX), Vec::new());
        encoder.begin(&mut out);
        let arrival =
            Arrival { serial: 3, packets_before: 40, at: Instant::from_nanos(4_999_999_999), endpoints: None };
        for what in whats {
            let fate = Fate { path: 0, direction: Direction::Return, arrival, what: *what };
            encoder.record(&Record::Fate(Box::new(fate)), &mut out);
        }
        encoder.end(whats.len() as u64, &[1, 0, 2], &mut out);
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn every_line_is_an_object_that_says_what_happened() {
        let mut packet = Packet::several(9, 10, 1514, 100);
        packet.waited = Duration::from_micros(5);
        packet.changes = Changes { congestion: true, damage: Some(Damage { draw: 1, hidden: true }), is_copy: true };
        let (due, now) = (Instant::from_nanos(5_100_000_000), Instant::from_nanos(5_100_000_070));
        let lines = lines(&[
            What::Happened(Event::Forward { packet, due }, now),
            What::Happened(
                Event::Drop { packet: Packet::single(9, 60), cause: DropCause::TooBig, at: due, reply_mtu: Some(1400) },
                now,
            ),
            What::Lost(packet, Unforeseen::NoRoom, now),
            What::InFlight(7),
        ]);
        assert_eq!(lines[0]["schema"], "lfn.emulate.log/1");
        assert_eq!(lines[0]["seed"], u64::MAX);
        let forward = &lines[1];
        assert_eq!((forward["fate"].as_str(), forward["direction"].as_str()), (Some("forward"), Some("far_to_near")));
        assert_eq!(
            (forward["id"].as_u64(), forward["count"].as_u64(), forward["bytes"].as_u64()),
            (Some(3), Some(10), Some(13_726))
        );
        assert_eq!((forward["arrived_seconds"].as_f64(), forward["due_seconds"].as_f64()), (Some(-1e-9), Some(0.1)));
        assert_eq!(
            (forward["lateness_seconds"].as_f64(), forward["waited_seconds"].as_f64()),
            (Some(7e-8), Some(5e-6))
        );
        assert_eq!(
            (&forward["marked"], &forward["damaged"], &forward["copy"]),
            (&true.into(), &"hidden".into(), &true.into())
        );
        assert_eq!(
            (&lines[2]["cause"], &lines[2]["marked"], lines[2]["reply_mtu_bytes"].as_u64()),
            (&"too_big".into(), &serde_json::Value::Null, Some(1400))
        );
        assert_eq!((lines[3]["cause"].as_str(), lines[4]["count"].as_u64()), (Some("no_room"), Some(7)));
        assert_eq!(
            (lines[5]["end"].as_bool(), lines[5]["written"].as_u64(), lines[5]["missed"].as_u64()),
            (Some(true), Some(4), Some(3))
        );
    }

    #[test]
    fn causes_are_called_as_in_the_ledger() {
        for cause in DropCause::ALL {
            assert_eq!(serde_json::to_string(&cause).unwrap(), format!("\"{}\"", key(cause)));
        }
    }

    #[test]
    fn a_time_of_day_keeps_its_nanoseconds() {
        assert_eq!(Seconds(1_795_000_000_123_456_789).to_string(), "1795000000.123456789");
        assert_eq!((Seconds(-1).to_string(), Seconds(0).to_string()), ("-0.000000001".into(), "0.000000000".into()));
    }
}
