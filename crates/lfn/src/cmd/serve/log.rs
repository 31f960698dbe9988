//! Log of the server: one event per line on standard error, as text or JSON.
//!
//! A dozen kinds of event with a few fields each need no logging framework. Data from a peer are escaped before they
//! reach a terminal. Unauthenticated clients cannot fill a disk: their lines are limited, and the number of suppressed
//! lines is logged. An iperf3 client that need not authenticate counts as unauthenticated.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lfn_api::documents::ServerLogLine;
use lfn_session::server::ServerEvent;
use lfn_session::server::event::SessionInfo;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::print;
use crate::print::settings::is_quiet;

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text: the event, then KEY=VALUE
    Text,
    /// One JSON object per line
    Json,
}

/// Maximum burst of lines from unauthenticated clients, and the interval at which one more line is allowed.
const UNAUTHENTICATED_LINES: (u32, Duration) = (20, Duration::from_millis(500));

/// Token bucket for the lines of unauthenticated clients.
struct LineBudget {
    remaining: u32,
    since: Instant,
    suppressed: u64,
}

/// Returns the logger. Logs nothing with `--quiet`. `iperf3_is_open` means that iperf3 clients need not authenticate.
pub fn log(format: LogFormat, iperf3_is_open: bool) -> impl Fn(&ServerEvent<'_>) + Send + Sync + 'static {
    let budget = || Mutex::new(LineBudget { remaining: UNAUTHENTICATED_LINES.0, since: Instant::now(), suppressed: 0 });
    // Separate buckets, so that neither kind suppresses the other.
    let (connections, iperf3) = (budget(), budget());
    move |event| {
        if is_quiet() {
            return;
        }
        let mut line = ServerLogLine::new(event, SystemTime::now());
        let budget = match event {
            ServerEvent::Refused(..) | ServerEvent::AcceptFailed(_) => Some(&connections),
            _ => session_of(event).filter(|info| iperf3_is_open && info.verb == "iperf3").map(|_| &iperf3),
        };
        if let Some(budget) = budget {
            let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
            match budget.take(Instant::now()) {
                None => return,
                Some(0) => {}
                Some(suppressed) => line.suppressed_lines = Some(suppressed),
            }
        }
        // Every value of a line is text or a finite number, so the conversion to JSON does not fail.
        let Ok(json) = serde_json::to_string(&line) else { return };
        match format {
            LogFormat::Text => print::message(text_line(&json)),
            LogFormat::Json => print::message_json(format_args!("{json}\n")),
        }
    }
}

impl LineBudget {
    /// Returns the number of lines suppressed before this line, or `None` if this line is suppressed too.
    fn take(&mut self, now: Instant) -> Option<u64> {
        let (max_burst, interval) = UNAUTHENTICATED_LINES;
        let earned = now.saturating_duration_since(self.since).as_nanos() / interval.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX);
        if earned > 0 {
            self.remaining = self.remaining.saturating_add(earned).min(max_burst);
            self.since = now;
        }
        if self.remaining == 0 {
            self.suppressed += 1;
            return None;
        }
        self.remaining -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Returns the session of an event.
fn session_of<'a>(event: &ServerEvent<'a>) -> Option<&'a SessionInfo> {
    match event {
        ServerEvent::Queued(info, _)
        | ServerEvent::LeftQueue(info, _)
        | ServerEvent::Opened(info, ..)
        | ServerEvent::Denied(info, _) => Some(info),
        ServerEvent::Ended { info, .. } => Some(info),
        ServerEvent::Refused(..)
        | ServerEvent::AcceptFailed(_)
        | ServerEvent::Stopping { .. }
        | ServerEvent::Terminated(_)
        | ServerEvent::FileError(_)
        | ServerEvent::Sandboxed(_) => None,
    }
}

/// Fields of a line in their order.
struct LineFields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for LineFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LineFieldsVisitor)
    }
}

struct LineFieldsVisitor;

impl<'de> Visitor<'de> for LineFieldsVisitor {
    type Value = LineFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of a line")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<LineFields, M::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(LineFields(fields))
    }
}

/// Returns a line of JSON as text: the time, the level and the event, then KEY=VALUE for each other field.
fn text_line(json: &str) -> String {
    let Ok(LineFields(fields)) = serde_json::from_str(json) else { return format!("{json}\n") };
    let (head, fields): (Vec<_>, Vec<_>) =
        fields.into_iter().partition(|(key, _)| matches!(key.as_str(), "time" | "level" | "event"));
    let word =
        |name: &str| head.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.as_str()).unwrap_or("");
    let fields: String = fields.iter().map(|(key, value)| format!(" {key}={}", quote(value))).collect();
    format!("{} {:<5} {:<8}{fields}\n", word("time"), word("level"), word("event"))
}

/// Formats a value without control characters. Quotes the value if it is more than one word.
fn quote(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let word = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
    if !text.is_empty() && text.chars().all(word) { text.clone() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn peer_text_cannot_move_cursor_or_break_line() {
        let client = "192.0.2.1:7".parse().unwrap();
        let evil = "\u{1b}[2J\nlevel=error \u{9b}x\"";
        let event = ServerEvent::Refused(client, lfn_session::server::event::RefusedReason::Hello, evil);
        let line = ServerLogLine::new(&event, SystemTime::UNIX_EPOCH);
        let json = serde_json::to_string(&line).unwrap();
        let text = text_line(&json);
        for line in [&json, text.trim_end_matches('\n')] {
            assert!(!line.contains('\n') && !line.contains('\u{1b}'), "{line:?}");
        }
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&value["client"], &value["error"]), (&json!("192.0.2.1:7"), &json!(evil)));
        assert!(json.starts_with("{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"warn\",\"event\":\"refused\","));
        let start = "1970-01-01T00:00:00.000Z warn  refused  client=192.0.2.1:7 reason=hello error=";
        assert!(text.starts_with(start) && text.ends_with('\n'), "{text:?}");
    }

    #[test]
    fn suppressed_lines_are_counted() {
        let start = Instant::now();
        let mut budget = LineBudget { remaining: UNAUTHENTICATED_LINES.0, since: start, suppressed: 0 };
        let written = (0..1000).filter(|_| budget.take(start).is_some()).count();
        assert_eq!(written, 20);
        assert_eq!(budget.take(start + Duration::from_secs(1)), Some(980));
        assert_eq!(budget.take(start + Duration::from_secs(1)), Some(0));
        assert_eq!(budget.take(start + Duration::from_secs(1)), None);
    }
}
