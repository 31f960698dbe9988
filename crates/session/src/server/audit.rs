//! Audit log: one JSON object per line for each start and end of a session, in a file that only its owner can read.
//!
//! Connections without authentication are not recorded, because they could fill the disk; they appear in the server's
//! log. The audit log fails closed: if the `opened` line of a session cannot be written, the session is refused. A full
//! disk may cut a line short; the next line then starts with a newline, so that the file stays readable. A subscriber of
//! `tracing` cannot report an error to the server, so the audit log is no part of the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lfn_base::date::rfc3339;
use lfn_sys::clock;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::audit_line::{AuditEvent, AuditLine, AuditedCopy, AuditedSession};
use super::event::ServerEvent;
use crate::symlink_guard;
use crate::wire::{Refusal, RefusalCode};

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
    /// Opens the file for appending and writes the `started` line. A new file gets mode 0600. Follows symbolic links,
    /// except links that [`symlink_guard`] refuses. Never waits for the reader of a pipe: without a reader, or if the pipe
    /// is full, a line cannot be written.
    pub fn open(path: &Path) -> io::Result<Self> {
        symlink_guard::check(path)?;
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
        let file = file.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => io::Error::other("no program reads this pipe"),
            _ => error,
        })?;
        let audit = AuditLog {
            path: path.to_owned(),
            inner: Mutex::new(Inner { file, is_last_line_cut: false, error_reported: false }),
        };
        audit.inner.lock().append(&AuditLine { time: timestamp(), event: AuditEvent::Started })?;
        Ok(audit)
    }

    /// Records an event, if it belongs in the audit log.
    pub(super) fn record(&self, event: &ServerEvent<'_>) -> Result<(), AuditError> {
        let Some(line) = event_line(event, timestamp()) else { return Ok(()) };
        let mut inner = self.inner.lock();
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
}

impl AuditError {
    /// Returns the refusal that the client receives.
    pub(super) fn refusal() -> Refusal {
        let text = "the server cannot write its audit log, so it refuses all sessions";
        Refusal::new(RefusalCode::Io, text).hint("inform the operator of the server; its log has the reason")
    }
}

impl Inner {
    fn append(&mut self, line: &AuditLine) -> io::Result<()> {
        let start = if self.is_last_line_cut { "\n" } else { "" };
        // A value sorts the keys.
        let text = format!("{start}{}\n", serde_json::to_value(line)?);
        let result = self.file.write_all(text.as_bytes());
        self.is_last_line_cut = result.is_err();
        result
    }
}

/// Returns the line of an event at this time, if the event belongs in the audit log.
fn event_line(event: &ServerEvent<'_>, time: String) -> Option<AuditLine> {
    let event = match event {
        ServerEvent::Opened(info, ..) => AuditEvent::Opened { session: AuditedSession::new(info) },
        ServerEvent::Denied(info, refusal) => AuditEvent::Denied {
            session: AuditedSession::new(info),
            code: refusal.code,
            outcome: refusal.message.clone(),
        },
        ServerEvent::Ended { info, bytes, time, error, copy_summary } => AuditEvent::Ended {
            session: AuditedSession::new(info),
            bytes: *bytes,
            time: Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            outcome: error.map_or("ok".to_owned(), |error| error.to_string()),
            copy: copy_summary.map(AuditedCopy::new),
        },
        ServerEvent::Stopping { running, .. } => AuditEvent::Stopping { running: *running },
        _ => return None,
    };
    Some(AuditLine { time, event })
}

fn timestamp() -> String {
    rfc3339(clock::since_1970())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use serde_json::{Value, json};

    use super::super::event::{CopySummary, SessionInfo};
    use super::*;

    fn example_session() -> SessionInfo {
        SessionInfo {
            client: "192.0.2.1:7".parse().unwrap(),
            session: Some(crate::SessionId([5; 16])),
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
    fn pipe_without_a_reader_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(AuditLog::open(&pipe).unwrap_err().to_string(), "no program reads this pipe");
        let _reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        assert!(AuditLog::open(&pipe).is_ok());
    }

    #[test]
    fn session_has_two_lines_in_a_private_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        let audit = AuditLog::open(&path).unwrap();
        let info = example_session();
        audit.record(&ServerEvent::Opened(&info, Default::default(), Duration::ZERO)).unwrap();
        let copy_summary = CopySummary { directory: Some("box".into()), ..CopySummary::default() };
        let (bytes, time) = (lfn_base::units::Bytes(3), Duration::from_millis(1500));
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
        audit.inner.lock().file = OpenOptions::new().append(true).open(file.path()).unwrap();
        audit.record(&opened()).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(text.starts_with("\n{"), "the incomplete line was not ended: {text:?}");
    }
}
