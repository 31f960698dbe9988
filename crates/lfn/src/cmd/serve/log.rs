//! Log of the server: each event of `lfn_api::serve::log_event` is one line on standard error, as text or JSON.
//!
//! Data from a peer are escaped before they reach a terminal. Unauthenticated clients cannot fill a disk: their lines
//! are limited, and the number of suppressed lines is logged. An iperf3 client that need not authenticate counts as
//! unauthenticated.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use lfn_api::serve::LOG_TARGET;
use lfn_base::date::rfc3339;
use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::subscriber::set_global_default;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use crate::exit::Failure;
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

/// Prints the events of the server.
struct ServerLog {
    format: LogFormat,
    /// Budget of connections without a session.
    connections: Mutex<LineBudget>,
    /// Budget of iperf3 clients, if they need not authenticate. Separate, so that neither kind suppresses the other.
    iperf3: Option<Mutex<LineBudget>>,
}

/// Fields of a line in their order.
#[derive(Debug, Default)]
struct LineFields(Vec<(&'static str, Value)>);

/// Prints the events of this process from now on; none with `--quiet`. `iperf3_is_open` means that iperf3 clients need
/// not authenticate.
pub fn start(format: LogFormat, iperf3_is_open: bool) -> Result<(), Failure> {
    if is_quiet() {
        return Ok(());
    }
    Ok(set_global_default(Registry::default().with(ServerLog::new(format, iperf3_is_open)))?)
}

impl<S: Subscriber> Layer<S> for ServerLog {
    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        metadata.target() == LOG_TARGET
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let Some(line) = self.line(event, SystemTime::now(), Instant::now()) else { return };
        match self.format {
            LogFormat::Text => print::message(line),
            LogFormat::Json => print::message_json(line),
        }
    }
}

impl ServerLog {
    fn new(format: LogFormat, iperf3_is_open: bool) -> Self {
        let budget =
            || Mutex::new(LineBudget { remaining: UNAUTHENTICATED_LINES.0, since: Instant::now(), suppressed: 0 });
        ServerLog { format, connections: budget(), iperf3: iperf3_is_open.then(budget) }
    }

    /// Returns the line of an event with its line feed, or `None` if the line is suppressed.
    fn line(&self, event: &Event<'_>, time: SystemTime, now: Instant) -> Option<String> {
        let mut fields = LineFields::default();
        let time = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        fields.push("time", rfc3339(time));
        fields.push("level", event.metadata().level().as_str().to_lowercase());
        event.record(&mut fields);
        let budget = match fields.word("event") {
            "refused" | "accept_failed" => Some(&self.connections),
            _ => self.iperf3.as_ref().filter(|_| fields.word("verb") == "iperf3"),
        };
        if let Some(budget) = budget {
            let suppressed = budget.lock().take(now)?;
            if suppressed > 0 {
                fields.push("suppressed_lines", suppressed);
            }
        }
        match self.format {
            LogFormat::Text => Some(fields.text()),
            // Every field is text or a number, so the conversion to JSON does not fail.
            LogFormat::Json => serde_json::to_string(&fields).ok().map(|json| json + "\n"),
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

impl LineFields {
    fn push(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((name, value.into()));
    }

    /// Returns the text of a field; empty if there is none.
    fn word(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Returns the line as text: the time, the level and the event, then KEY=VALUE for each other field.
    fn text(&self) -> String {
        let others = self.0.iter().filter(|(key, _)| !matches!(*key, "time" | "level" | "event"));
        let others: String = others.map(|(key, value)| format!(" {key}={}", quote(value))).collect();
        format!("{} {:<5} {:<8}{others}\n", self.word("time"), self.word("level"), self.word("event"))
    }
}

impl Serialize for LineFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl Visit for LineFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field.name(), format!("{value:?}"));
    }
}

/// Formats a value without control characters. Quotes the value if it is more than one word.
fn quote(value: &Value) -> String {
    let Value::String(text) = value else { return value.to_string() };
    let word = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '=');
    if !text.is_empty() && text.chars().all(word) { text.clone() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use lfn_api::serve::log_event;
    use lfn_base::figure::Figure;
    use lfn_base::units::{BitRate, Bytes};
    use lfn_session::limits::{QueuePosition, ResourceGrant, ResourceRequest};
    use lfn_session::server::ServerEvent;
    use lfn_session::server::event::{RefusedReason, SessionInfo};
    use lfn_session::wire::{Refusal, RefusalCode};
    use lfn_session::{SessionError, SessionId};

    use super::*;

    /// Keeps the lines instead of printing them. The time is always the epoch.
    struct KeptLines(ServerLog, Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for KeptLines {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            self.1.lock().extend(self.0.line(event, SystemTime::UNIX_EPOCH, Instant::now()));
        }
    }

    /// Returns the lines of events.
    fn lines(format: LogFormat, events: &[ServerEvent<'_>]) -> Vec<String> {
        let kept = Arc::default();
        let layer = KeptLines(ServerLog::new(format, true), Arc::clone(&kept));
        tracing::subscriber::with_default(Registry::default().with(layer), || events.iter().for_each(log_event));
        std::mem::take(&mut kept.lock())
    }

    fn session(verb: &'static str) -> SessionInfo {
        SessionInfo {
            client: "192.0.2.1:7".parse().unwrap(),
            session: Some(SessionId([5; 16])),
            token: Some("field".into()),
            verb,
            paths: ["a".to_owned()].into(),
            requested: ResourceRequest {
                streams: 4,
                time: Some(Duration::from_secs(1)),
                bytes: Some(Bytes(3)),
                rate: Some(BitRate(8)),
                ..ResourceRequest::default()
            },
            sends: false,
        }
    }

    #[test]
    fn line_of_every_event_matches_the_schema() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/schema/lfn.serve.log.1.schema.json");
        let text: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("http://schema/log.json", text).unwrap();
        let schema = compiler.compile("http://schema/log.json", &mut schemas).unwrap();
        let (info, second) = (session("copy"), Duration::from_millis(1500));
        let anonymous = SessionInfo { session: None, token: None, ..session("iperf3") };
        let refusal = Refusal::new(RefusalCode::Full, "the server is full");
        let error = SessionError::Refused(refusal.clone());
        let broken = std::io::Error::other("no memory");
        let grant = ResourceGrant { streams: 4, rate: Some(BitRate(8)), bytes: Some(Bytes(3)), time: Some(second) };
        let waits = |wait: Option<f64>| QueuePosition {
            ahead: 2,
            expected_wait_seconds: wait.and_then(Figure::new),
            own_limit: false,
        };
        let ended =
            |error| ServerEvent::Ended { info: &info, bytes: Bytes(3), time: second, error, copy_summary: None };
        let events = [
            ServerEvent::Queued(&info, waits(Some(1.0))),
            ServerEvent::Queued(&anonymous, waits(None)),
            ServerEvent::LeftQueue(&info, second),
            ServerEvent::Opened(&info, grant, second),
            ended(None),
            ended(Some(&error)),
            ServerEvent::Denied(&info, &refusal),
            ServerEvent::Refused(info.client, RefusedReason::Gone, "closed"),
            ServerEvent::AcceptFailed(&broken),
            ServerEvent::Stopping { running: 1, drain: second },
            ServerEvent::Terminated(1),
            ServerEvent::FileError("tokens: no such file"),
            ServerEvent::Sandboxed("landlock"),
        ];
        let lines = lines(LogFormat::Json, &events);
        assert_eq!(lines.len(), events.len());
        for line in &lines {
            let value = serde_json::from_str(line).unwrap();
            schemas.validate(&value, schema).unwrap_or_else(|fault| panic!("{line}: {fault:#}"));
        }
        let head = r#"{"time":"1970-01-01T00:00:00.000Z","level":"#;
        let client =
            r#""client":"192.0.2.1:7","session":"05050505050505050505050505050505","token":"field","verb":"copy""#;
        let requested =
            r#""requested_streams":4,"requested_seconds":1.0,"requested_bytes":3,"requested_bits_per_second":8"#;
        let granted = r#""granted_streams":4,"granted_seconds":1.5,"granted_bytes":3,"granted_bits_per_second":8"#;
        let expected = [
            (
                0,
                format!(
                    "{head}\"info\",\"event\":\"queued\",{client},{requested},\"ahead\":2,\"expected_wait_seconds\":1.0}}\n"
                ),
            ),
            (
                3,
                format!(
                    "{head}\"info\",\"event\":\"opened\",{client},{requested},\"waited_seconds\":1.5,{granted}}}\n"
                ),
            ),
            (
                6,
                format!(
                    "{head}\"warn\",\"event\":\"denied\",{client},{requested},\"code\":\"full\",\"error\":\"the server is full\"}}\n"
                ),
            ),
            (9, format!("{head}\"info\",\"event\":\"stopping\",\"running\":1,\"drain_seconds\":1.5}}\n")),
        ];
        for (at, line) in expected {
            assert_eq!(lines[at], line);
        }
        assert!(lines[1].ends_with("\"ahead\":2,\"expected_wait_seconds\":null}\n"), "{}", lines[1]);
    }

    #[test]
    fn peer_text_cannot_move_cursor_or_break_line() {
        let client = "192.0.2.1:7".parse().unwrap();
        let evil = "\u{1b}[2J\nlevel=error \u{9b}x\"";
        let events = [ServerEvent::Refused(client, RefusedReason::Hello, evil)];
        let line = |format| lines(format, &events).remove(0);
        let (json, text) = (line(LogFormat::Json), line(LogFormat::Text));
        for line in [&json, &text] {
            let line = line.strip_suffix('\n').unwrap();
            assert!(!line.contains('\n') && !line.contains('\u{1b}'), "{line:?}");
        }
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((value["client"].as_str(), value["error"].as_str()), (Some("192.0.2.1:7"), Some(evil)));
        assert!(json.starts_with("{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"warn\",\"event\":\"refused\","));
        let start = "1970-01-01T00:00:00.000Z warn  refused  client=192.0.2.1:7 reason=hello error=";
        assert!(text.starts_with(start), "{text:?}");
    }

    #[test]
    fn only_lines_of_unauthenticated_clients_are_limited() {
        let (open, own) = (session("iperf3"), session("test"));
        let opened = |info| ServerEvent::Opened(info, ResourceGrant::default(), Duration::ZERO);
        let events: Vec<_> = (0..100).flat_map(|_| [opened(&open), opened(&own)]).collect();
        let lines = lines(LogFormat::Text, &events);
        let count = |verb: &str| lines.iter().filter(|line| line.contains(verb)).count();
        assert_eq!(count(" verb=test "), 100);
        assert!((20..30).contains(&count(" verb=iperf3 ")), "{lines:?}");
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
