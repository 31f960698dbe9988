//! What a server counts, and the text Prometheus reads (exposition format 0.0.4).
//!
//! By hand: a few counters and gauges whose labels are known beforehand need no registry. Counting is an atomic or a
//! short lock a session; nothing is counted a block.

mod http;

pub use http::{MetricsError, serve};

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lfn_core::stamp::reflector::Tally;
use lfn_core::units::Bytes;
use lfn_core::wire::RefusalCode;

use super::event::{Event, Reason, Who};

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Metrics {
    connections: AtomicU64,
    queued: AtomicU64,
    left: AtomicU64,
    refused: [AtomicU64; Reason::ALL.len()],
    starved: AtomicU64,
    trouble: AtomicU64,
    sessions: Mutex<Sessions>,
}

/// Payload that moved, as the server sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// From clients.
    pub received: Bytes,
    /// To clients.
    pub sent: Bytes,
}

/// What stands at the moment of a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Sessions that run.
    pub running: usize,
    /// Sessions that wait.
    pub waiting: usize,
    /// Connections that are open.
    pub connections: usize,
    /// Of those, such as have shown no token yet.
    pub strangers: usize,
    /// What running sessions have moved so far.
    pub moved: Moved,
}

#[derive(Debug, Default)]
struct Sessions {
    /// By verb and result.
    ended: BTreeMap<(&'static str, &'static str), u64>,
    /// By code of the refusal.
    denied: BTreeMap<&'static str, u64>,
    /// Of tokens that were given out: sessions that ended, and what they moved.
    tokens: BTreeMap<Arc<str>, (u64, Bytes)>,
    moved: Moved,
    nanos: u64,
}

impl Moved {
    pub(super) fn of(who: &Who, bytes: Bytes) -> Self {
        match who.sends {
            true => Moved { sent: bytes, received: Bytes(0) },
            false => Moved { received: bytes, sent: Bytes(0) },
        }
    }

    pub(super) fn plus(self, other: Moved) -> Self {
        Moved {
            received: Bytes(self.received.0.saturating_add(other.received.0)),
            sent: Bytes(self.sent.0.saturating_add(other.sent.0)),
        }
    }
}

impl Metrics {
    /// Counts what happened.
    pub fn count(&self, event: &Event<'_>) {
        let one = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        match event {
            Event::Queued(..) => one(&self.queued),
            Event::Left(..) => one(&self.left),
            Event::Starved(_) => one(&self.starved),
            Event::Refused(_, reason, _) => one(&self.refused[*reason as usize]),
            Event::Denied(_, refusal) => *self.sessions().denied.entry(code(refusal.code)).or_default() += 1,
            Event::Ended { who, bytes, time, error, .. } => {
                let result = if error.is_some() { "failed" } else { "ok" };
                let mut sessions = self.sessions();
                *sessions.ended.entry((who.verb, result)).or_default() += 1;
                if let Some(token) = &who.token {
                    let (count, moved) = sessions.tokens.entry(token.clone()).or_default();
                    *count += 1;
                    moved.0 = moved.0.saturating_add(bytes.0);
                }
                sessions.moved = sessions.moved.plus(Moved::of(who, *bytes));
                let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                sessions.nanos = sessions.nanos.saturating_add(nanos);
            }
            Event::Trouble(_) => one(&self.trouble),
            Event::Opened(..) | Event::Stopping { .. } | Event::Cut(_) | Event::Confined(_) => {}
        }
    }

    /// Counts a connection.
    pub fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// The page; `reflected` is what a STAMP reflector beside the server has done.
    pub fn page(&self, gauges: &Gauges, reflected: Option<Tally>) -> String {
        let mut page = Page(String::with_capacity(4096));
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sessions = self.sessions();
        let moved = sessions.moved.plus(gauges.moved);
        page.family("lfn_sessions_running", "gauge", "Sessions that run.", &[("", gauges.running as u64)]);
        page.family(
            "lfn_sessions_queued",
            "gauge",
            "Sessions that wait for their turn.",
            &[("", gauges.waiting as u64)],
        );
        let ended: Vec<_> = sessions
            .ended
            .iter()
            .map(|((verb, result), count)| (format!("verb=\"{verb}\",result=\"{result}\""), *count))
            .collect();
        page.labelled("lfn_sessions_total", "Sessions that ended, by verb and result.", &ended);
        let denied: Vec<_> = sessions.denied.iter().map(|(code, count)| (format!("code=\"{code}\""), *count)).collect();
        page.labelled("lfn_sessions_denied_total", "Sessions that were not let in, by code of the refusal.", &denied);
        page.family("lfn_sessions_queued_total", "counter", "Sessions that had to wait.", &[("", get(&self.queued))]);
        let help = "Sessions that went away while they waited.";
        page.family("lfn_sessions_left_total", "counter", help, &[("", get(&self.left))]);
        let directions = [("direction=\"received\"", moved.received.0), ("direction=\"sent\"", moved.sent.0)];
        page.family("lfn_payload_bytes_total", "counter", "Payload bytes moved, as the server sees it.", &directions);
        page.seconds("lfn_session_seconds_total", "Time of the sessions that ended.", sessions.nanos);
        let of_tokens = |figure: fn(&(u64, Bytes)) -> u64| -> Vec<_> {
            sessions.tokens.iter().map(|(name, ended)| (format!("token=\"{name}\""), figure(ended))).collect()
        };
        let help = "Sessions that ended, of tokens that `lfn token` gave out.";
        page.labelled("lfn_token_sessions_total", help, &of_tokens(|ended| ended.0));
        let help = "Payload bytes moved by them.";
        page.labelled("lfn_token_payload_bytes_total", help, &of_tokens(|ended| ended.1.0));
        drop(sessions);
        let help = "Times that the file of tokens or the audit log could not be relied on.";
        page.family("lfn_troubles_total", "counter", help, &[("", get(&self.trouble))]);
        page.family("lfn_connections_total", "counter", "Connections accepted.", &[("", get(&self.connections))]);
        let refused: Vec<_> = Reason::ALL
            .iter()
            .map(|reason| (format!("reason=\"{}\"", reason.name()), get(&self.refused[*reason as usize])))
            .collect();
        let help = "Connections turned away before they were a session, by reason.";
        page.labelled("lfn_connections_refused_total", help, &refused);
        page.family("lfn_connections_open", "gauge", "Connections that are open.", &[("", gauges.connections as u64)]);
        let help = "Open connections that have shown no token yet.";
        page.family("lfn_connections_unknown", "gauge", help, &[("", gauges.strangers as u64)]);
        let help = "Times that no connection could be accepted for want of files or memory.";
        page.family("lfn_accept_failures_total", "counter", help, &[("", get(&self.starved))]);
        if let Some(Tally { reflected, unreadable, too_many }) = reflected {
            let ends = [
                ("result=\"reflected\"", reflected),
                ("result=\"unreadable\"", unreadable),
                ("result=\"too_many\"", too_many),
            ];
            page.family("lfn_stamp_packets_total", "counter", "STAMP packets, by what became of them.", &ends);
        }
        page.process();
        page.0
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The page as it grows.
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
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: &str) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }

    /// What the kernel says of this process, under the names all Prometheus clients use.
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
            // Less the one this reading has open.
            let open = (open.count() as u64).saturating_sub(1);
            self.family("process_open_fds", "gauge", "Number of open file descriptors.", &[("", open)]);
        }
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        if let Some(most) = files.current {
            self.family("process_max_fds", "gauge", "Maximum number of open file descriptors.", &[("", most)]);
        }
    }
}

/// As `Refusal` has it on the wire.
fn code(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::Full => "full",
        RefusalCode::Limit => "limit",
        RefusalCode::Quota => "quota",
        RefusalCode::Stopped => "stopped",
        RefusalCode::BadMessage => "bad_message",
        RefusalCode::Timeout => "timeout",
        _ => "other",
    }
}
