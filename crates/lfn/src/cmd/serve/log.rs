//! Log of the server: one event per line on standard error, as text or JSON.
//!
//! A dozen kinds of event with a few fields each need no logging framework. Data from a peer are escaped before they
//! reach a terminal. Unauthenticated clients cannot fill a disk: their lines are limited, and the number of suppressed
//! lines is logged. An iperf3 client that need not authenticate counts as unauthenticated.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lfn_core::date::rfc3339;
use lfn_core::limits::{ResourceGrant, ResourceRequest};
use lfn_net::server::ServerEvent;
use lfn_net::server::event::{RefusedReason, SessionInfo};
use lfn_net::session::SessionError;
use serde_json::{Value, json};

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

struct LogLine {
    level: &'static str,
    event: &'static str,
    fields: Vec<(&'static str, Value)>,
}

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
        let mut line = line(event);
        let budget = match event {
            ServerEvent::Refused(..) | ServerEvent::AcceptFailed(_) => Some(&connections),
            _ => session_of(event).filter(|info| iperf3_is_open && info.verb == "iperf3").map(|_| &iperf3),
        };
        if let Some(budget) = budget {
            let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
            match budget.take(Instant::now()) {
                None => return,
                Some(0) => {}
                Some(suppressed) => line.fields.push(("suppressed_lines", suppressed.into())),
            }
        }
        let text = render(&line, format, &timestamp(SystemTime::now()));
        match format {
            LogFormat::Text => print::message(text),
            LogFormat::Json => print::message_json(text),
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

fn line(event: &ServerEvent<'_>) -> LogLine {
    let new = |level, event, fields| LogLine { level, event, fields };
    match event {
        ServerEvent::Queued(info, position) => {
            let mut fields = requested_fields(info);
            fields.push(("ahead", position.ahead.into()));
            fields.push(("expected_wait_seconds", seconds(position.expected_wait())));
            new("info", "queued", fields)
        }
        ServerEvent::LeftQueue(info, waited) => {
            let mut fields = session_fields(info);
            fields.push(("waited_seconds", seconds(Some(*waited))));
            new("info", "left_queue", fields)
        }
        ServerEvent::Opened(info, allowed, waited) => {
            let mut fields = requested_fields(info);
            fields.push(("waited_seconds", seconds(Some(*waited))));
            fields.extend(granted_fields(allowed));
            new("info", "opened", fields)
        }
        ServerEvent::Ended { info, bytes, time, error, .. } => {
            let mut fields = session_fields(info);
            fields.extend([("bytes", bytes.0.into()), ("seconds", seconds(Some(*time)))]);
            fields.extend(error.map(|error| ("error", error_text(error))));
            new(if error.is_some() { "warn" } else { "info" }, "ended", fields)
        }
        ServerEvent::Denied(info, refusal) => {
            let mut fields = requested_fields(info);
            fields.extend([("code", json!(refusal.code)), ("error", refusal.message.as_str().into())]);
            new("warn", "denied", fields)
        }
        ServerEvent::Refused(client, reason, why) => {
            let fields =
                vec![("client", json!(client.to_string())), ("reason", reason.name().into()), ("error", (*why).into())];
            // A port scan or a health check. No client was refused.
            let level = if *reason == RefusedReason::Gone { "info" } else { "warn" };
            new(level, "refused", fields)
        }
        ServerEvent::AcceptFailed(error) => new("error", "accept_failed", vec![("error", error.to_string().into())]),
        ServerEvent::Stopping { running, drain } => {
            new("info", "stopping", vec![("running", (*running).into()), ("drain_seconds", seconds(Some(*drain)))])
        }
        ServerEvent::FileError(what) => new("error", "file_error", vec![("error", (*what).into())]),
        ServerEvent::Sandboxed(how) => new("info", "sandboxed", vec![("by", (*how).into())]),
        ServerEvent::Terminated(sessions) => new("warn", "terminated", vec![("sessions", (*sessions).into())]),
    }
}

fn session_fields(info: &SessionInfo) -> Vec<(&'static str, Value)> {
    let mut fields = vec![("client", json!(info.client.to_string()))];
    fields.extend(info.session.map(|id| ("session", json!(id))));
    fields.extend(info.token.as_deref().map(|token| ("token", token.into())));
    fields.push(("verb", info.verb.into()));
    fields
}

fn requested_fields(info: &SessionInfo) -> Vec<(&'static str, Value)> {
    let ResourceRequest { streams, time, bytes, rate, .. } = info.requested;
    let mut fields = session_fields(info);
    fields.push(("requested_streams", streams.into()));
    fields.extend(time.map(|time| ("requested_seconds", seconds(Some(time)))));
    fields.extend(bytes.map(|bytes| ("requested_bytes", bytes.0.into())));
    fields.extend(rate.map(|rate| ("requested_bits_per_second", rate.0.into())));
    fields
}

fn granted_fields(allowed: &ResourceGrant) -> Vec<(&'static str, Value)> {
    let ResourceGrant { streams, rate, bytes, time } = *allowed;
    let mut fields = vec![("granted_streams", streams.into())];
    fields.extend(time.map(|time| ("granted_seconds", seconds(Some(time)))));
    fields.extend(bytes.map(|bytes| ("granted_bytes", bytes.0.into())));
    fields.extend(rate.map(|rate| ("granted_bits_per_second", rate.0.into())));
    fields
}

fn seconds(time: Option<Duration>) -> Value {
    // Milliseconds suffice for a log.
    time.map_or(Value::Null, |time| json!(time.as_millis() as f64 / 1e3))
}

fn error_text(error: &SessionError) -> Value {
    error.to_string().into()
}

fn render(line: &LogLine, format: LogFormat, time: &str) -> String {
    let LogLine { level, event, fields } = line;
    match format {
        LogFormat::Json => {
            let head = [("time", Value::from(time)), ("level", (*level).into()), ("event", (*event).into())];
            let object: Vec<String> =
                head.iter().chain(fields).map(|(key, value)| format!("{}:{value}", Value::from(*key))).collect();
            format!("{{{}}}\n", object.join(","))
        }
        LogFormat::Text => {
            let fields: String = fields.iter().map(|(key, value)| format!(" {key}={}", quote(value))).collect();
            format!("{time} {level:<5} {event:<8}{fields}\n")
        }
    }
}

/// Formats a value without control characters. Quotes the value if it is more than one word.
fn quote(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let word = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
    if !text.is_empty() && text.chars().all(word) { text.clone() } else { format!("{text:?}") }
}

/// Formats a time of this host's clock.
fn timestamp(time: SystemTime) -> String {
    rfc3339(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_text_cannot_move_cursor_or_break_line() {
        let client = "192.0.2.1:7".parse().unwrap();
        let evil = "\u{1b}[2J\nlevel=error \u{9b}x\"";
        let line = line(&ServerEvent::Refused(client, lfn_net::server::event::RefusedReason::Hello, evil));
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = render(&line, format, "now");
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert!(text.ends_with('\n') && !text[..text.len() - 1].contains('\u{1b}'), "{text:?}");
        }
        let json: Value = serde_json::from_str(&render(&line, LogFormat::Json, "now")).unwrap();
        assert_eq!((&json["client"], &json["error"]), (&json!("192.0.2.1:7"), &json!(evil)));
        assert!(
            render(&line, LogFormat::Text, "now").starts_with("now warn  refused  client=192.0.2.1:7 reason=hello ")
        );
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
