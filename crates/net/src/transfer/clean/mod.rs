//! Finds and removes the files that interrupted copies left: on this host, on a server, or as that server.
//!
//! [`clean_local`] walks directories of this host, [`clean_remote`] asks a server, and [`serve`] is that server. They
//! report each file at once and keep no list. [`lfn_core::transfer::leftover`] decides which files belong to a copy and
//! when they may be removed. [`walk`] finds the names, and [`leftover_pair`] opens, locks and removes the files.

mod leftover_pair;
mod walk;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfn_core::transfer::byte_string::ByteString;
use lfn_core::transfer::leftover::{CleanRule, Leftover};
use lfn_core::wire::clean::{CleanMessage, CleanRequest, MAX_FOUND_PER_MESSAGE};
use lfn_core::wire::copy::ALIVE_INTERVAL;
use lfn_core::wire::{HELLO_LIMIT, Refusal, RefusalCode, Request};

use super::TransferError;
use super::base_dir::BaseDir;
use super::serve::root;
use crate::server::ServerSession;
use crate::session::dial::{self, Target};
use crate::session::queue;
use crate::session::{DEAD_PEER_TIMEOUT, SessionError};

/// Interval at which a waiting client checks whether it was interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Length of the JSON at which a message is sent, in bytes.
const MESSAGE_BYTES: usize = 32 << 10;

/// An event of the search.
#[derive(Debug)]
pub enum CleanEvent {
    /// A file that a copy left, or a file with the name of one.
    Leftover(Leftover),
    /// A directory that could not be read.
    Unreadable { path: ByteString, reason: String },
}

/// Reports an event, or `None` for progress only. An error ends the search.
type Report<'a> = &'a mut dyn FnMut(Option<CleanEvent>) -> Result<(), TransferError>;

/// Cleans directories of this host.
///
/// # Errors
/// [`TransferError::Interrupted`]; problems with single directories are reported as events.
pub fn clean_local(
    places: &[PathBuf],
    rule: CleanRule,
    interrupted: &AtomicBool,
    on_event: &mut dyn FnMut(CleanEvent),
) -> Result<(), TransferError> {
    let mut report = |event: Option<CleanEvent>| {
        event.into_iter().for_each(&mut *on_event);
        if interrupted.load(Ordering::Relaxed) { Err(TransferError::Interrupted) } else { Ok(()) }
    };
    places.iter().try_for_each(|place| clean_place(&BaseDir::Local, place, rule, &mut report))
}

/// Cleans one directory. An error there does not stop the search in the others.
fn clean_place(base: &BaseDir, place: &Path, rule: CleanRule, report: Report<'_>) -> Result<(), TransferError> {
    match walk::walk(base, place, rule, report) {
        Err(error @ (TransferError::Interrupted | TransferError::Session(_))) => Err(error),
        Err(error) => {
            let path = ByteString::from(place.as_os_str().as_bytes());
            report(Some(CleanEvent::Unreadable { path, reason: error.entry_message() }))
        }
        walked => walked,
    }
}

/// Asks a server to clean directories below its root.
///
/// # Errors
/// [`TransferError::RequestTooLarge`], [`TransferError::Interrupted`], or the error of the session.
pub fn clean_remote(
    target: &Target,
    request: CleanRequest,
    interrupted: &AtomicBool,
    on_event: &mut dyn FnMut(CleanEvent),
) -> Result<(), TransferError> {
    const MAX_BYTES: usize = HELLO_LIMIT - 4096;
    const WHILE_CLEANING: &str = "while it searched for interrupted copies";
    let bytes: usize = request.paths.iter().map(ByteString::max_json_bytes).sum();
    if bytes > MAX_BYTES {
        return Err(TransferError::RequestTooLarge { bytes, max: MAX_BYTES });
    }
    let mut control = dial::open_control(target, dial::new_session_id()?, Request::Clean(request))?;
    // A new session id matters only for data streams, and this session has none.
    let _ = queue::wait_for_admission(&mut control, &target.queue, DEAD_PEER_TIMEOUT, Some(interrupted), || ())?;
    let mut last_received = Instant::now();
    loop {
        if interrupted.load(Ordering::Relaxed) {
            // The server notices this when it sends its next message.
            control.close();
            return Err(TransferError::Interrupted);
        }
        let message = control.poll::<CleanMessage>(POLL_INTERVAL, WHILE_CLEANING)?;
        if message.is_some() {
            last_received = Instant::now();
        }
        match message {
            Some(CleanMessage::Found { files }) => files.into_iter().map(CleanEvent::Leftover).for_each(&mut *on_event),
            Some(CleanMessage::Unreadable { path, reason }) => on_event(CleanEvent::Unreadable { path, reason }),
            Some(CleanMessage::Alive) => {}
            Some(CleanMessage::Done) => {
                control.close();
                return Ok(());
            }
            None if last_received.elapsed() > DEAD_PEER_TIMEOUT => {
                let (peer, after) = (control.peer(), DEAD_PEER_TIMEOUT);
                return Err(SessionError::Timeout { peer, after, while_doing: WHILE_CLEANING }.into());
            }
            None => {}
        }
    }
}

/// Serves a request to clean. The caller has checked the rights to read, and to write if files are removed.
pub(crate) fn serve(session: &mut ServerSession, request: &CleanRequest) -> Result<(), SessionError> {
    let base = root(session)?;
    let (control, _, stopping) = session.split_mut();
    let mut batch = Batch { leftovers: Vec::new(), bytes: 0, sent_at: Instant::now() };
    let mut report = |event: Option<CleanEvent>| {
        match event {
            Some(CleanEvent::Leftover(left)) => batch.push(left),
            Some(CleanEvent::Unreadable { path, reason }) => {
                control.send(&CleanMessage::Unreadable { path, reason })?
            }
            None => {}
        }
        if let Some(message) = batch.take_due() {
            control.send(&message)?;
        }
        if stopping.load(Ordering::Relaxed) { Err(TransferError::Interrupted) } else { Ok(()) }
    };
    let walked = request.paths.iter().try_for_each(|place| {
        let place = Path::new(OsStr::from_bytes(place.as_bytes()));
        clean_place(&base, place, request.rule, &mut report)
    });
    match walked {
        Err(TransferError::Interrupted) => {
            return Err(SessionError::Refused(Refusal::new(RefusalCode::Stopped, "the server was stopped")));
        }
        walked => walked?,
    }
    if let Some(message) = batch.take_all() {
        session.control.send(&message)?;
    }
    session.control.send(&CleanMessage::Done)
}

/// Leftovers that are found and not sent yet.
struct Batch {
    leftovers: Vec<Leftover>,
    /// Upper limit for the length of their JSON.
    bytes: usize,
    /// The time of the last message.
    sent_at: Instant,
}

impl Batch {
    fn push(&mut self, left: Leftover) {
        let source = left.source.as_ref().map_or(0, ByteString::max_json_bytes);
        self.bytes +=
            512 + left.path.max_json_bytes() + source + left.reason.as_ref().map_or(0, |reason| 2 * reason.len());
        self.leftovers.push(left);
    }

    /// Returns the next message, if one is due.
    fn take_due(&mut self) -> Option<CleanMessage> {
        if self.bytes < MESSAGE_BYTES
            && self.leftovers.len() < MAX_FOUND_PER_MESSAGE
            && self.sent_at.elapsed() < ALIVE_INTERVAL
        {
            return None;
        }
        Some(self.take_all().unwrap_or_else(|| {
            self.sent_at = Instant::now();
            CleanMessage::Alive
        }))
    }

    /// Returns all leftovers that are not sent yet.
    fn take_all(&mut self) -> Option<CleanMessage> {
        if self.leftovers.is_empty() {
            return None;
        }
        (self.bytes, self.sent_at) = (0, Instant::now());
        Some(CleanMessage::Found { files: std::mem::take(&mut self.leftovers) })
    }
}

#[cfg(test)]
mod tests;
