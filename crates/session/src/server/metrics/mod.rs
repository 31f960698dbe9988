//! Counters of a server, and their text for Prometheus (exposition format 0.0.4).
//!
//! The text is written by hand: `prometheus-client` writes only OpenMetrics, and a scraper of this format would see other
//! names of families. Counting costs an atomic or a short lock per session, and nothing per block.

mod http;
mod rank_counters;

pub use http::{MetricsError, MetricsServer};
pub use rank_counters::{RankCounters, RankTotals};

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lfn_base::units::Bytes;
use parking_lot::Mutex;

use super::event::{RefusedReason, ServerEvent, SessionInfo};
use crate::server::event::ReflectorTally;
use crate::wire::RefusalCode;

/// Counters since the start of the server.
#[derive(Debug, Default)]
pub struct Metrics {
    connections: AtomicU64,
    queued: AtomicU64,
    left_queue: AtomicU64,
    refused: [AtomicU64; RefusedReason::ALL.len()],
    accept_failures: AtomicU64,
    file_errors: AtomicU64,
    pub(crate) ranks: Arc<RankCounters>,
    sessions: Mutex<EndedSessions>,
}

/// Payload bytes per direction, as the server sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadBytes {
    pub received: Bytes,
    pub sent: Bytes,
}

/// Values at the time of a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub running: usize,
    pub waiting: usize,
    pub connections: usize,
    /// Open connections that have not authenticated.
    pub unauthenticated: usize,
    /// Payload of running sessions.
    pub payload_bytes: PayloadBytes,
}

#[derive(Debug, Default)]
struct EndedSessions {
    ended: BTreeMap<(&'static str, &'static str), u64>,
    denied: BTreeMap<&'static str, u64>,
    /// Sessions and their payload, by the name of the token.
    tokens: BTreeMap<Arc<str>, (u64, Bytes)>,
    payload_bytes: PayloadBytes,
    nanos: u64,
}

impl PayloadBytes {
    pub(super) fn of(info: &SessionInfo, bytes: Bytes) -> Self {
        match info.sends {
            true => PayloadBytes { sent: bytes, received: Bytes(0) },
            false => PayloadBytes { received: bytes, sent: Bytes(0) },
        }
    }

    pub(super) fn plus(self, other: PayloadBytes) -> Self {
        PayloadBytes {
            received: Bytes(self.received.0.saturating_add(other.received.0)),
            sent: Bytes(self.sent.0.saturating_add(other.sent.0)),
        }
    }
}

impl Metrics {
    /// Counts an event of the server.
    pub fn count(&self, event: &ServerEvent<'_>) {
        let one = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        match event {
            ServerEvent::Queued(..) => one(&self.queued),
            ServerEvent::LeftQueue(..) => one(&self.left_queue),
            ServerEvent::AcceptFailed(_) => one(&self.accept_failures),
            ServerEvent::Refused(_, reason, _) => one(&self.refused[*reason as usize]),
            ServerEvent::Denied(_, refusal) => {
                *self.sessions.lock().denied.entry(refusal_code_name(refusal.code)).or_default() += 1
            }
            ServerEvent::Ended { info, bytes, time, error, .. } => {
                let result = if error.is_some() { "failed" } else { "ok" };
                let mut sessions = self.sessions.lock();
                *sessions.ended.entry((info.verb, result)).or_default() += 1;
                if let Some(token) = &info.token {
                    let (count, moved) = sessions.tokens.entry(token.clone()).or_default();
                    *count += 1;
                    moved.0 = moved.0.saturating_add(bytes.0);
                }
                sessions.payload_bytes = sessions.payload_bytes.plus(PayloadBytes::of(info, *bytes));
                let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                sessions.nanos = sessions.nanos.saturating_add(nanos);
            }
            ServerEvent::FileError(_) => one(&self.file_errors),
            ServerEvent::Opened(..)
            | ServerEvent::Stopping { .. }
            | ServerEvent::Terminated(_)
            | ServerEvent::Sandboxed(_) => {}
        }
    }

    /// Counts an accepted connection.
    pub fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the page; `reflected` has the counts of the STAMP reflector, if there is one.
    pub fn page(&self, gauges: &Gauges, reflected: Option<ReflectorTally>) -> String {
        let mut page = Page(String::with_capacity(4096));
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sessions = self.sessions.lock();
        let moved = sessions.payload_bytes.plus(gauges.payload_bytes);
        page.family("lfn_sessions_running", "gauge", "Running sessions.", &[("", gauges.running as u64)]);
        page.family("lfn_sessions_queued", "gauge", "Sessions waiting in the queue.", &[("", gauges.waiting as u64)]);
        let ended: Vec<_> = sessions
            .ended
            .iter()
            .map(|((verb, result), count)| (format!("verb=\"{verb}\",result=\"{result}\""), *count))
            .collect();
        page.labelled("lfn_sessions_total", "Sessions that ended, by verb and result.", &ended);
        let denied: Vec<_> = sessions.denied.iter().map(|(code, count)| (format!("code=\"{code}\""), *count)).collect();
        page.labelled("lfn_sessions_denied_total", "Sessions refused, by refusal code.", &denied);
        page.family("lfn_sessions_queued_total", "counter", "Sessions that had to wait.", &[("", get(&self.queued))]);
        let help = "Clients that disconnected while they waited in the queue.";
        page.family("lfn_sessions_left_queue_total", "counter", help, &[("", get(&self.left_queue))]);
        let directions = [("direction=\"received\"", moved.received.0), ("direction=\"sent\"", moved.sent.0)];
        page.family(
            "lfn_payload_bytes_total",
            "counter",
            "Payload bytes by direction, as the server sees it.",
            &directions,
        );
        page.seconds("lfn_session_seconds_total", "Total duration of the sessions that ended.", sessions.nanos);
        let of_tokens = |figure: fn(&(u64, Bytes)) -> u64| -> Vec<_> {
            sessions.tokens.iter().map(|(name, ended)| (format!("token=\"{name}\""), figure(ended))).collect()
        };
        let help = "Sessions that ended, by name of the token (lfn token add).";
        page.labelled("lfn_token_sessions_total", help, &of_tokens(|ended| ended.0));
        let help = "Payload bytes of the sessions that ended, by name of the token.";
        page.labelled("lfn_token_payload_bytes_total", help, &of_tokens(|ended| ended.1.0));
        drop(sessions);
        let help = "Errors with the token file or the audit log.";
        page.family("lfn_file_errors_total", "counter", help, &[("", get(&self.file_errors))]);
        page.family("lfn_connections_total", "counter", "Connections accepted.", &[("", get(&self.connections))]);
        let refused: Vec<_> = RefusedReason::ALL
            .iter()
            .map(|reason| (format!("reason=\"{}\"", reason.name()), get(&self.refused[*reason as usize])))
            .collect();
        let help = "Connections closed before they belonged to a session, by reason.";
        page.labelled("lfn_connections_refused_total", help, &refused);
        page.family("lfn_connections_open", "gauge", "Open connections.", &[("", gauges.connections as u64)]);
        let help = "Open connections that have not authenticated.";
        page.family("lfn_connections_unauthenticated", "gauge", help, &[("", gauges.unauthenticated as u64)]);
        let help = "Failed accept calls, for lack of file descriptors or memory.";
        page.family("lfn_accept_failures_total", "counter", help, &[("", get(&self.accept_failures))]);
        let ranks = self.ranks.totals();
        page.family("lfn_rank_copies", "gauge", "Copies that several ranks send.", &[("", ranks.copies)]);
        let states = [("state=\"connected\"", ranks.connected), ("state=\"absent\"", ranks.absent)];
        page.family("lfn_ranks", "gauge", "Ranks of these copies, by state.", &states);
        page.family("lfn_rank_bytes_total", "counter", "Payload bytes of all ranks.", &[("", ranks.bytes)]);
        if let Some(ReflectorTally { reflected, unreadable, too_many }) = reflected {
            let ends = [
                ("result=\"reflected\"", reflected),
                ("result=\"unreadable\"", unreadable),
                ("result=\"too_many\"", too_many),
            ];
            page.family("lfn_stamp_packets_total", "counter", "STAMP packets by result.", &ends);
        }
        page.process();
        page.0
    }
}

/// Metrics page under construction.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str, samples: &[(&str, u64)]) {
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, labels, &value.to_string());
        }
    }

    fn labelled(&mut self, name: &str, help: &str, samples: &[(String, u64)]) {
        let samples: Vec<_> = samples.iter().map(|(labels, value)| (labels.as_str(), *value)).collect();
        self.family(name, "counter", help, &samples);
    }

    fn seconds(&mut self, name: &str, help: &str, nanos: u64) {
        self.head(name, "counter", help);
        self.sample(name, "", &format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000));
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: &str) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    /// Adds the figures of this process, under the names that all Prometheus clients use.
    fn process(&mut self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        if let Some(kib) = field("VmRSS:") {
            let help = "Resident memory size in bytes.";
            self.family("process_resident_memory_bytes", "gauge", help, &[("", kib * 1024)]);
        }
        if let Some(threads) = field("Threads:") {
            self.family("process_threads", "gauge", "Number of OS threads in the process.", &[("", threads)]);
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            // The file descriptor of this read does not count.
            let open = (open.count() as u64).saturating_sub(1);
            self.family("process_open_fds", "gauge", "Number of open file descriptors.", &[("", open)]);
        }
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        if let Some(most) = files.current {
            self.family("process_max_fds", "gauge", "Maximum number of open file descriptors.", &[("", most)]);
        }
    }
}

/// Returns the name of a refusal code, as `Refusal` has it on the wire.
fn refusal_code_name(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::Full => "full",
        RefusalCode::Limit => "limit",
        RefusalCode::Quota => "quota",
        RefusalCode::Stopped => "stopped",
        RefusalCode::MissingRank => "missing_rank",
        RefusalCode::LostLead => "lost_lead",
        RefusalCode::BadMessage => "bad_message",
        RefusalCode::Timeout => "timeout",
        _ => "other",
    }
}
