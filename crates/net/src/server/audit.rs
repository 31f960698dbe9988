//! The account of who was served what: one JSON object a line, appended to a file that only its owner can read.
//!
//! It holds sessions and nothing of strangers, who could fill the disk with it; their knocks are in the log. It fails closed:
//! a session whose `opened` line cannot be written does not begin. A line of which a full disk took only a part is ended
//! before the next, so that what is there can always be read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use lfn_core::date::rfc3339;
use lfn_core::wire::{Refusal, RefusalCode};
use serde_json::{Value, json};

use super::event::{Copied, Event, Who};

/// The open file.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    /// The last line was not written to its end.
    torn: bool,
    /// The last line was not written, and that was told.
    told: bool,
}

/// A line could not be written: what to tell of it, unless that was told before.
#[derive(Debug)]
pub(super) struct Unwritten(pub(super) Option<String>);

impl Audit {
    /// Opens the file to append to, made with mode 0600, and writes its first line.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let audit = Audit { path: path.to_owned(), inner: Mutex::new(Inner { file, torn: false, told: false }) };
        audit.lock().append(&json!({ "time": now(), "event": "started" }))?;
        Ok(audit)
    }

    /// Notes an event, if it is one that account is kept of.
    pub(super) fn note(&self, event: &Event<'_>) -> Result<(), Unwritten> {
        let Some(line) = line(event) else { return Ok(()) };
        let mut inner = self.lock();
        let Err(error) = inner.append(&line) else {
            inner.told = false;
            return Ok(());
        };
        let told = std::mem::replace(&mut inner.told, true);
        let path = self.path.display();
        Err(Unwritten((!told).then(|| format!("nobody is served: the audit log {path} cannot be written: {error}"))))
    }

    /// No thread panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unwritten {
    /// What the client is told.
    pub(super) fn refusal() -> Refusal {
        let text = "the server cannot write its audit log, and serves nobody without it";
        Refusal::new(RefusalCode::Io, text).hint("tell whoever runs the server; its log says more")
    }
}

impl Inner {
    fn append(&mut self, line: &Value) -> io::Result<()> {
        let start = if self.torn { "\n" } else { "" };
        let text = format!("{start}{line}\n");
        let result = self.file.write_all(text.as_bytes());
        self.torn = result.is_err();
        result
    }
}

fn line(event: &Event<'_>) -> Option<Value> {
    let mut line = match event {
        Event::Opened(who, ..) => of(who, "opened"),
        Event::Denied(who, refusal) => {
            let mut line = of(who, "denied");
            line["code"] = json!(refusal.code);
            line["outcome"] = refusal.message.as_str().into();
            line
        }
        Event::Ended { who, bytes, time, error, copied } => {
            let mut line = of(who, "ended");
            line["bytes"] = bytes.0.into();
            line["seconds"] = json!(time.as_millis() as f64 / 1e3);
            line["outcome"] = error.map_or("ok".into(), |error| error.to_string().into());
            if let Some(copied) = copied {
                add(&mut line, copied);
            }
            line
        }
        Event::Stopping { running, .. } => json!({ "event": "stopping", "running": running }),
        _ => return None,
    };
    line["time"] = now().into();
    Some(line)
}

fn of(who: &Who, event: &str) -> Value {
    let mut line = json!({ "event": event, "client": who.client.to_string(), "verb": who.verb });
    if let Some(session) = who.session {
        line["session"] = json!(session);
    }
    if let Some(token) = &who.token {
        line["token"] = (**token).into();
    }
    line["direction"] = if who.sends { "sent" } else { "received" }.into();
    if !who.places.is_empty() {
        line["places"] = who.places.as_ref().into();
    }
    line
}

fn add(line: &mut Value, copied: &Copied) {
    let tally = &copied.tally;
    for (name, count) in [
        ("files", tally.files),
        ("directories", tally.directories),
        ("links", tally.links),
        ("skipped", tally.skipped),
        ("failed", tally.failed),
        ("kept_bytes", tally.kept.0),
    ] {
        line[name] = count.into();
    }
    if let Some(digest) = copied.digest {
        line["blake3"] = digest.to_string().into();
    }
    if let Some(into) = &copied.into {
        line["into"] = into.as_str().into();
    }
}

fn now() -> String {
    rfc3339(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn who() -> Who {
        Who {
            client: "192.0.2.1:7".parse().unwrap(),
            session: Some(lfn_core::session::SessionId([5; 16])),
            token: Some("field".into()),
            verb: "copy",
            places: ["a\n\u{1b}b".to_owned()].into(),
            ask: Default::default(),
            sends: false,
        }
    }

    fn lines(path: &Path) -> Vec<Value> {
        fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_session_is_two_lines_that_others_cannot_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit");
        let audit = Audit::open(&path).unwrap();
        let who = who();
        audit.note(&Event::Opened(&who, Default::default(), Duration::ZERO)).unwrap();
        let copied = Copied { into: Some("box".into()), ..Copied::default() };
        let (bytes, time) = (lfn_core::units::Bytes(3), Duration::from_millis(1500));
        audit.note(&Event::Ended { who: &who, bytes, time, error: None, copied: Some(&copied) }).unwrap();
        audit.note(&Event::Refused(who.client, super::super::event::Reason::Token, "no")).unwrap();
        let lines = lines(&path);
        let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["started", "opened", "ended"]);
        assert_eq!(lines[1]["places"], json!(["a\n\u{1b}b"]));
        let ended = &lines[2];
        assert_eq!(
            (&ended["token"], &ended["outcome"], &ended["into"]),
            (&json!("field"), &json!("ok"), &json!("box"))
        );
        assert_eq!((&ended["bytes"], &ended["seconds"]), (&json!(3), &json!(1.5)));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(Audit::open(&path).unwrap());
        assert_eq!(self::lines(&path).len(), 4, "appended to");
    }

    #[test]
    fn what_cannot_be_written_is_told_once_until_it_can_be() {
        // Writes to it fail as on a full disk.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let inner = Inner { file: full, torn: false, told: false };
        let audit = Audit { path: "/dev/full".into(), inner: Mutex::new(inner) };
        let who = who();
        let opened = || Event::Opened(&who, Default::default(), Duration::ZERO);
        let Err(Unwritten(Some(text))) = audit.note(&opened()) else { panic!("a full disk is no matter") };
        assert!(text.contains("/dev/full") && text.contains("No space"), "{text}");
        assert!(matches!(audit.note(&opened()), Err(Unwritten(None))), "told twice");
        let file = tempfile::NamedTempFile::new().unwrap();
        audit.lock().file = OpenOptions::new().append(true).open(file.path()).unwrap();
        audit.note(&opened()).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(text.starts_with("\n{"), "the torn line was not ended: {text:?}");
    }
}
