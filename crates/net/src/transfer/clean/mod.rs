//! Looking for what cut copies left, and removing it: here, at a far end, and as the far end of somebody else.
//!
//! [`clean_here`] walks below places of this host, [`clean_there`] asks a server, [`serve`] is that server. All of them tell
//! as they go and hold no list. What is a copy's own, and when it may go, is decided in [`lfn_core::transfer::leftover`];
//! [`walk`] finds the names, [`pair`] opens, locks and removes.

mod pair;
mod walk;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfn_core::transfer::leftover::{Leftover, Rule};
use lfn_core::transfer::raw::Raw;
use lfn_core::wire::clean::{CleanRequest, FromCleaner, MOST_FOUND};
use lfn_core::wire::copy::ALIVE_EVERY;
use lfn_core::wire::{HELLO_LIMIT, Refusal, RefusalCode, Request};

use super::TransferError;
use super::place::Base;
use super::serve::root;
use crate::server::ServerSession;
use crate::session::dial::{self, Target};
use crate::session::queue::{self, Entered};
use crate::session::{DEAD_AFTER, SessionError};

/// How often a wait looks up to see whether it was interrupted.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Bytes of JSON from which on a message is sent.
const ENOUGH: usize = 32 << 10;

/// What is told while it is looked for.
#[derive(Debug)]
pub enum Seen {
    /// Something that a copy left, or that has such a name.
    Left(Leftover),
    /// A directory that could not be looked into.
    Trouble {
        /// Which.
        path: Raw,
        /// Why, in words.
        what: String,
    },
}

/// What the walk says: what it saw, or only that it goes on.
type Say<'a> = &'a mut dyn FnMut(Option<Seen>) -> Result<(), TransferError>;

/// Looks below places of this host.
pub fn clean_here(
    places: &[PathBuf],
    rule: Rule,
    interrupted: &AtomicBool,
    seen: &mut dyn FnMut(Seen),
) -> Result<(), TransferError> {
    let mut say = |said: Option<Seen>| {
        said.into_iter().for_each(&mut *seen);
        if interrupted.load(Ordering::Relaxed) { Err(TransferError::Interrupted) } else { Ok(()) }
    };
    places.iter().try_for_each(|place| below(&Base::Here, place, rule, &mut say))
}

/// Looks below one place; what is wrong with it says nothing of the others.
fn below(base: &Base, place: &Path, rule: Rule, say: Say<'_>) -> Result<(), TransferError> {
    match walk::walk(base, place, rule, say) {
        Err(error @ (TransferError::Interrupted | TransferError::Session(_))) => Err(error),
        Err(error) => {
            let path = Raw::from(place.as_os_str().as_bytes());
            say(Some(Seen::Trouble { path, what: error.of_entry() }))
        }
        walked => walked,
    }
}

/// Has a server look below places of its own.
pub fn clean_there(
    target: &Target,
    request: CleanRequest,
    interrupted: &AtomicBool,
    seen: &mut dyn FnMut(Seen),
) -> Result<(), TransferError> {
    const MOST: usize = HELLO_LIMIT - 4096;
    const LISTENING: &str = "while it looked for what copies left";
    let bytes: usize = request.places.iter().map(Raw::json_bound).sum();
    if bytes > MOST {
        return Err(TransferError::Request { bytes, most: MOST });
    }
    let mut control = dial::control(target, dial::new_session_id()?, Request::Clean(request))?;
    // There are no data streams whose session it could matter for.
    let (Entered::AtOnce | Entered::After(_)) =
        queue::enter(&mut control, &target.patience, DEAD_AFTER, Some(interrupted), || ())?;
    let mut heard = Instant::now();
    loop {
        if interrupted.load(Ordering::Relaxed) {
            // The server notices when it says the next word.
            control.close();
            return Err(TransferError::Interrupted);
        }
        let said = control.poll::<FromCleaner>(LOOK_UP, LISTENING)?;
        if said.is_some() {
            heard = Instant::now();
        }
        match said {
            Some(FromCleaner::Found { left }) => left.into_iter().map(Seen::Left).for_each(&mut *seen),
            Some(FromCleaner::Trouble { path, what }) => seen(Seen::Trouble { path, what }),
            Some(FromCleaner::Alive) => {}
            Some(FromCleaner::Done) => {
                control.close();
                return Ok(());
            }
            None if heard.elapsed() > DEAD_AFTER => {
                let (peer, after) = (control.peer(), DEAD_AFTER);
                return Err(SessionError::Timeout { peer, after, while_doing: LISTENING }.into());
            }
            None => {}
        }
    }
}

/// The server's side; that its client may read, and write where it removes, was asked before.
pub(crate) fn serve(session: &mut ServerSession, request: &CleanRequest) -> Result<(), SessionError> {
    let base = root(session)?;
    let (control, _, stopping) = session.parts();
    let mut batch = Batch { left: Vec::new(), bytes: 0, said: Instant::now() };
    let mut say = |seen: Option<Seen>| {
        match seen {
            Some(Seen::Left(left)) => batch.take(left),
            Some(Seen::Trouble { path, what }) => control.send(&FromCleaner::Trouble { path, what })?,
            None => {}
        }
        if let Some(message) = batch.due() {
            control.send(&message)?;
        }
        if stopping.load(Ordering::Relaxed) { Err(TransferError::Interrupted) } else { Ok(()) }
    };
    let walked = request.places.iter().try_for_each(|place| {
        let place = Path::new(OsStr::from_bytes(place.as_bytes()));
        below(&base, place, request.rule, &mut say)
    });
    match walked {
        Err(TransferError::Interrupted) => {
            return Err(SessionError::Refused(Refusal::new(RefusalCode::Stopped, "the server was stopped")));
        }
        walked => walked?,
    }
    if let Some(message) = batch.rest() {
        session.control.send(&message)?;
    }
    session.control.send(&FromCleaner::Done)
}

/// What was found and not told yet.
struct Batch {
    left: Vec<Leftover>,
    /// At least as many as its JSON has.
    bytes: usize,
    /// When anything was said last.
    said: Instant,
}

impl Batch {
    fn take(&mut self, left: Leftover) {
        let source = left.source.as_ref().map_or(0, Raw::json_bound);
        self.bytes += 512 + left.path.json_bound() + source + left.why.as_ref().map_or(0, |why| 2 * why.len());
        self.left.push(left);
    }

    /// What is to be said now.
    fn due(&mut self) -> Option<FromCleaner> {
        if self.bytes < ENOUGH && self.left.len() < MOST_FOUND && self.said.elapsed() < ALIVE_EVERY {
            return None;
        }
        Some(self.rest().unwrap_or_else(|| {
            self.said = Instant::now();
            FromCleaner::Alive
        }))
    }

    /// All that is left to say.
    fn rest(&mut self) -> Option<FromCleaner> {
        if self.left.is_empty() {
            return None;
        }
        (self.bytes, self.said) = (0, Instant::now());
        Some(FromCleaner::Found { left: std::mem::take(&mut self.left) })
    }
}

#[cfg(test)]
mod tests;
