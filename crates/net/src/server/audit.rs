//! Audit log: one JSON object per line for each start and end of a session, in a file that only its owner can read.
//!
//! Connections without authentication are not recorded, because they could fill the disk; they appear in the server's
//! log. The audit log fails closed: if the `opened` line of a session cannot be written, the session is refused. A full
//! disk may cut a line short; the next line then starts with a newline, so that the file stays readable.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use lfn_core::date::rfc3339;
use lfn_core::wire::{Refusal, RefusalCode};
use serde_json::{Value, json};

use super::event::{CopySummary, ServerEvent, SessionInfo};

/// An audit log, open for appending.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    is_last_line_cut: bool,
    /// The last error was reported, and no line has been written since.
    error_reported: bool,
}

/// Failure to write a line, with the text to report; `None` if the failure was reported before.
#[derive(Debug)]
pub(super) struct AuditError(pub(super) Option<String>);

impl AuditLog {
    /// Opens the file for appending and writes the `started` line. A new file gets mode 0600.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let audit = AuditLog {
            path: path.to_owned(),
            inner: Mutex::new(Inner { file, is_last_line_cut: false, error_reported: false }),
        };
        audit.lock().append(&json!({ "time": timestamp(), "event": "started" }))?;
        Ok(audit)
    }

    /// Records an event, if it belongs in the audit log.
    pub(super) fn record(&self, event: &ServerEvent<'_>) -> Result<(), AuditError> {
        let Some(line) = event_line(event) else { return Ok(()) };
        let mut inner = self.lock();
        let Err(error) = inner.append(&line) else {
            inner.error_reported = false;
            return Ok(());
        };
        let error_reported = std::mem::replace(&mut inner.error_reported, true);
        let path = self.path.display();
        Err(AuditError(
            (!error_reported).then(|| format!("all sessions are refused: cannot write the audit log {path}: {error}")),
        ))
    }

    /// No thread panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AuditError {
    /// Returns the refusal that the client receives.
    pub(super) fn refusal() -> Refusal {
        let text = "the server cannot write its audit log, so it refuses all sessions";
        Refusal::new(RefusalCode::Io, text).hint("inform the operator of the server; its log has the reason")
    }
}

impl Inner {
    fn append(&mut self, line: &Value) -> io::Result<()> {
        let start = if self.is_last_line_cut { "\n" } else { "" };
        let text = format!("{start}{line}\n");
        let result = self.file.write_all(text.as_bytes());
        self.is_last_line_cut = result.is_err();
        result
    }
}

fn event_line(event: &ServerEvent<'_>) -> Option<Value> {
    let mut line = match event {
        ServerEvent::Opened(info, ..) => session_line(info, "opened"),
        ServerEvent::Denied(info, refusal) => {
            let mut line = session_line(info, "denied");
            line["code"] = json!(refusal.code);
            line["outcome"] = refusal.message.as_str().into();
            line
        }
        ServerEvent::Ended { info, bytes, time, error, copy_summary } => {
            let mut line = session_line(info, "ended");
            line["bytes"] = bytes.0.into();
            line["seconds"] = json!(time.as_millis() as f64 / 1e3);
            line["outcome"] = error.map_or("ok".into(), |error| error.to_string().into());
            if let Some(copy_summary) = copy_summary {
                add_copy_summary(&mut line, copy_summary);
            }
            line
        }
        ServerEvent::Stopping { running, .. } => json!({ "event": "stopping", "running": running }),
        _ => return None,
    };
    line["time"] = timestamp().into();
    Some(line)
}

fn session_line(info: &SessionInfo, event: &str) -> Value {
    let mut line = json!({ "event": event, "client": info.client.to_string(), "verb": info.verb });
    if let Some(session) = info.session {
        line["session"] = json!(session);
    }
    if let Some(token) = &info.token {
        line["token"] = (**token).into();
    }
    line["direction"] = if info.sends { "sent" } else { "received" }.into();
    if !info.paths.is_empty() {
        line["paths"] = info.paths.as_ref().into();
    }
    line
}

fn add_copy_summary(line: &mut Value, copy_summary: &CopySummary) {
    let tally = &copy_summary.tally;
    for (name, count) in [
        ("files", tally.files),
        ("directories", tally.directories),
        ("links", tally.links),
        ("skipped", tally.skipped),
        ("failed", tally.failed),
        ("resumed_bytes", tally.resumed_bytes.0),
    ] {
        line[name] = count.into();
    }
    if let Some(digest) = copy_summary.digest {
        line["blake3"] = digest.to_string().into();
    }
    if let Some(into) = &copy_summary.directory {
        line["directory"] = into.as_str().into();
    }
}

fn timestamp() -> String {
    rfc3339(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn example_session() -> SessionInfo {
        SessionInfo {
            client: "192.0.2.1:7".parse().unwrap(),
            session: Some(lfn_core::session::SessionId([5; 16])),
            token: Some("field".into()),
            verb: "copy",
            paths: ["a\n\u{1b}b".to_owned()].into(),
            requested: Default::default(),
            sends: false,
        }
    }

    fn lines(path: &Path) -> Vec<Value> {
        fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn session_has_two_lines_in_a_private_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        let audit = AuditLog::open(&path).unwrap();
        let info = example_session();
        audit.record(&ServerEvent::Opened(&info, Default::default(), Duration::ZERO)).unwrap();
        let copy_summary = CopySummary { directory: Some("box".into()), ..CopySummary::default() };
        let (bytes, time) = (lfn_core::units::Bytes(3), Duration::from_millis(1500));
        audit
            .record(&ServerEvent::Ended { info: &info, bytes, time, error: None, copy_summary: Some(&copy_summary) })
            .unwrap();
        audit.record(&ServerEvent::Refused(info.client, super::super::event::RefusedReason::Token, "no")).unwrap();
        let lines = lines(&path);
        let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["started", "opened", "ended"]);
        assert_eq!(lines[1]["paths"], json!(["a\n\u{1b}b"]));
        let ended = &lines[2];
        assert_eq!(
            (&ended["token"], &ended["outcome"], &ended["directory"]),
            (&json!("field"), &json!("ok"), &json!("box"))
        );
        assert_eq!((&ended["bytes"], &ended["seconds"]), (&json!(3), &json!(1.5)));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(AuditLog::open(&path).unwrap());
        assert_eq!(self::lines(&path).len(), 4, "the file is appended to");
    }

    #[test]
    fn write_error_is_reported_once() {
        // Writes to this file fail as on a full disk.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let inner = Inner { file: full, is_last_line_cut: false, error_reported: false };
        let audit = AuditLog { path: "/dev/full".into(), inner: Mutex::new(inner) };
        let info = example_session();
        let opened = || ServerEvent::Opened(&info, Default::default(), Duration::ZERO);
        let Err(AuditError(Some(text))) = audit.record(&opened()) else { panic!("the error was not reported") };
        assert!(text.contains("/dev/full") && text.contains("No space"), "{text}");
        assert!(matches!(audit.record(&opened()), Err(AuditError(None))), "reported twice");
        let file = tempfile::NamedTempFile::new().unwrap();
        audit.lock().file = OpenOptions::new().append(true).open(file.path()).unwrap();
        audit.record(&opened()).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(text.starts_with("\n{"), "the incomplete line was not ended: {text:?}");
    }
}
