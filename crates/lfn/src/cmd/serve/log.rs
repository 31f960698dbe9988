//! The server's log: one event a line on standard error, for people or as JSON.
//!
//! By hand: a dozen kinds of event with a handful of fields each need no framework. Nothing a peer sends reaches a
//! terminal as it is, and strangers cannot fill a disk: their lines are few, and how many were left out is told. A client
//! of iperf3 that need not say who it is, is a stranger all the time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lfn_core::admission::{Allowed, Ask};
use lfn_core::date::rfc3339;
use lfn_net::server::Event;
use lfn_net::server::event::{Reason, Who};
use lfn_net::session::SessionError;
use serde_json::{Value, json};

use crate::print;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: the event and then KEY=VALUE
    Text,
    /// One JSON object a line
    Json,
}

/// Lines for strangers at once, and how often another may follow.
const STRANGERS: (u32, Duration) = (20, Duration::from_millis(500));

/// One line.
struct Line {
    level: &'static str,
    event: &'static str,
    fields: Vec<(&'static str, Value)>,
}

/// Lines that strangers may still cause.
struct Allowance {
    left: u32,
    since: Instant,
    suppressed: u64,
}

/// Writes each event; nothing at all if `quiet`. `iperf3_is_open` says that clients of iperf3 show no password.
pub fn log(format: Format, quiet: bool, iperf3_is_open: bool) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
    let allowance = || Mutex::new(Allowance { left: STRANGERS.0, since: Instant::now(), suppressed: 0 });
    // Apart, so that neither hides the other.
    let (connections, iperf3) = (allowance(), allowance());
    move |event| {
        if quiet {
            return;
        }
        let mut line = line(event);
        let allowance = match event {
            Event::Refused(..) | Event::Starved(_) => Some(&connections),
            _ => who(event).filter(|who| iperf3_is_open && who.verb == "iperf3").map(|_| &iperf3),
        };
        if let Some(allowance) = allowance {
            let mut allowance = allowance.lock().unwrap_or_else(PoisonError::into_inner);
            match allowance.take(Instant::now()) {
                None => return,
                Some(0) => {}
                Some(suppressed) => line.fields.push(("suppressed_lines", suppressed.into())),
            }
        }
        let text = render(&line, format, &moment(SystemTime::now()));
        match format {
            Format::Text => print::talk(text),
            Format::Json => print::talk_json(text),
        }
    }
}

impl Allowance {
    /// How many lines were left out before this one; `None` if this one is left out too.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let (most, every) = STRANGERS;
        let earned = now.saturating_duration_since(self.since).as_nanos() / every.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(most);
            self.since = now;
        }
        if self.left == 0 {
            self.suppressed += 1;
            return None;
        }
        self.left -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Whose session an event is of.
fn who<'a>(event: &Event<'a>) -> Option<&'a Who> {
    match event {
        Event::Queued(who, _) | Event::Left(who, _) | Event::Opened(who, ..) | Event::Denied(who, _) => Some(who),
        Event::Ended { who, .. } => Some(who),
        Event::Refused(..)
        | Event::Starved(_)
        | Event::Stopping { .. }
        | Event::Cut(_)
        | Event::Trouble(_)
        | Event::Confined(_) => None,
    }
}

fn line(event: &Event<'_>) -> Line {
    let new = |level, event, fields| Line { level, event, fields };
    match event {
        Event::Queued(who, expected) => {
            let mut fields = asked(who);
            fields.push(("ahead", expected.ahead.into()));
            fields.push(("expected_wait_seconds", seconds(expected.wait)));
            new("info", "queued", fields)
        }
        Event::Left(who, waited) => {
            let mut fields = session(who);
            fields.push(("waited_seconds", seconds(Some(*waited))));
            new("info", "left", fields)
        }
        Event::Opened(who, allowed, waited) => {
            let mut fields = asked(who);
            fields.push(("waited_seconds", seconds(Some(*waited))));
            fields.extend(granted(allowed));
            new("info", "opened", fields)
        }
        Event::Ended { who, bytes, time, error, .. } => {
            let mut fields = session(who);
            fields.extend([("bytes", bytes.0.into()), ("seconds", seconds(Some(*time)))]);
            fields.extend(error.map(|error| ("error", told(error))));
            new(if error.is_some() { "warn" } else { "info" }, "ended", fields)
        }
        Event::Denied(who, refusal) => {
            let mut fields = asked(who);
            fields.extend([("code", json!(refusal.code)), ("error", refusal.message.as_str().into())]);
            new("warn", "denied", fields)
        }
        Event::Refused(client, reason, why) => {
            let fields =
                vec![("client", json!(client.to_string())), ("reason", reason.name().into()), ("error", (*why).into())];
            // A trace or a health check: nobody was turned away.
            let level = if *reason == Reason::Gone { "info" } else { "warn" };
            new(level, "refused", fields)
        }
        Event::Starved(error) => new("error", "starved", vec![("error", error.to_string().into())]),
        Event::Stopping { running, drain } => {
            new("info", "stopping", vec![("running", (*running).into()), ("drain_seconds", seconds(Some(*drain)))])
        }
        Event::Trouble(what) => new("error", "trouble", vec![("error", (*what).into())]),
        Event::Confined(how) => new("info", "confined", vec![("by", (*how).into())]),
        Event::Cut(sessions) => new("warn", "cut", vec![("sessions", (*sessions).into())]),
    }
}

fn session(who: &Who) -> Vec<(&'static str, Value)> {
    let mut fields = vec![("client", json!(who.client.to_string()))];
    fields.extend(who.session.map(|id| ("session", json!(id))));
    fields.extend(who.token.as_deref().map(|token| ("token", token.into())));
    fields.push(("verb", who.verb.into()));
    fields
}

fn asked(who: &Who) -> Vec<(&'static str, Value)> {
    let Ask { streams, time, bytes, rate, .. } = who.ask;
    let mut fields = session(who);
    fields.push(("asked_streams", streams.into()));
    fields.extend(time.map(|time| ("asked_seconds", seconds(Some(time)))));
    fields.extend(bytes.map(|bytes| ("asked_bytes", bytes.0.into())));
    fields.extend(rate.map(|rate| ("asked_bits_per_second", rate.0.into())));
    fields
}

fn granted(allowed: &Allowed) -> Vec<(&'static str, Value)> {
    let Allowed { streams, rate, bytes, time } = *allowed;
    let mut fields = vec![("granted_streams", streams.into())];
    fields.extend(time.map(|time| ("granted_seconds", seconds(Some(time)))));
    fields.extend(bytes.map(|bytes| ("granted_bytes", bytes.0.into())));
    fields.extend(rate.map(|rate| ("granted_bits_per_second", rate.0.into())));
    fields
}

fn seconds(time: Option<Duration>) -> Value {
    // To the millisecond: what a log is read for.
    time.map_or(Value::Null, |time| json!(time.as_millis() as f64 / 1e3))
}

fn told(error: &SessionError) -> Value {
    error.to_string().into()
}

fn render(line: &Line, format: Format, time: &str) -> String {
    let Line { level, event, fields } = line;
    match format {
        Format::Json => {
            let head = [("time", Value::from(time)), ("level", (*level).into()), ("event", (*event).into())];
            let object: Vec<String> =
                head.iter().chain(fields).map(|(key, value)| format!("{}:{value}", Value::from(*key))).collect();
            format!("{{{}}}\n", object.join(","))
        }
        Format::Text => {
            let fields: String = fields.iter().map(|(key, value)| format!(" {key}={}", plain(value))).collect();
            format!("{time} {level:<5} {event:<8}{fields}\n")
        }
    }
}

/// A value without anything that could move a reader's terminal, quoted where it would not read as one word.
fn plain(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let word = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
    if !text.is_empty() && text.chars().all(word) { text.clone() } else { format!("{text:?}") }
}

/// A moment of this host's clock.
fn moment(time: SystemTime) -> String {
    rfc3339(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_peer_says_moves_a_terminal_or_breaks_a_line() {
        let client = "192.0.2.1:7".parse().unwrap();
        let evil = "\u{1b}[2J\nlevel=error \u{9b}x\"";
        let line = line(&Event::Refused(client, lfn_net::server::event::Reason::Hello, evil));
        for format in [Format::Text, Format::Json] {
            let text = render(&line, format, "now");
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert!(text.ends_with('\n') && !text[..text.len() - 1].contains('\u{1b}'), "{text:?}");
        }
        let json: Value = serde_json::from_str(&render(&line, Format::Json, "now")).unwrap();
        assert_eq!((&json["client"], &json["error"]), (&json!("192.0.2.1:7"), &json!(evil)));
        assert!(render(&line, Format::Text, "now").starts_with("now warn  refused  client=192.0.2.1:7 reason=hello "));
    }

    #[test]
    fn strangers_cause_few_lines_and_those_left_out_are_counted() {
        let start = Instant::now();
        let mut allowance = Allowance { left: STRANGERS.0, since: start, suppressed: 0 };
        let written = (0..1000).filter(|_| allowance.take(start).is_some()).count();
        assert_eq!(written, 20);
        assert_eq!(allowance.take(start + Duration::from_secs(1)), Some(980));
        assert_eq!(allowance.take(start + Duration::from_secs(1)), Some(0));
        assert_eq!(allowance.take(start + Duration::from_secs(1)), None);
    }
}
