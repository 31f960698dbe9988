//! The client's side of a server's queue: waits for the turn, tells how long it may take, and gives up in time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::wire::queue::{FromClient, FromServer, Place};

use super::control::Heard;
use super::{Control, DEAD_AFTER, SessionError};

/// How often a wait looks up to see whether it was interrupted.
const LOOK_UP: Duration = Duration::from_millis(50);

/// How long a client waits for its turn, and whom it tells.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The longest wait; zero is none.
    pub most: Duration,
    /// Told of each change.
    pub told: fn(&Place),
}

impl Default for Patience {
    fn default() -> Self {
        Patience { most: Duration::from_secs(600), told: |_| {} }
    }
}

/// What becomes of a session whose turn had to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It went in at once: whatever the server said first is still to be read.
    AtOnce,
    /// Its turn has come: its data streams are to be dialled under this id.
    After(SessionId),
}

/// Waits until the server lets the session in. `waits` is called once, when it must wait at all: the data streams
/// dialled so far are then of no use.
pub(crate) fn enter(
    control: &mut Control,
    patience: &Patience,
    within: Duration,
    interrupted: Option<&AtomicBool>,
    waits: impl FnOnce(),
) -> Result<Entered, SessionError> {
    let (peer, begun) = (control.peer(), Instant::now());
    let (mut heard, mut allowed, mut last) = (begun, within, None::<Place>);
    let mut waits = Some(waits);
    loop {
        if interrupted.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            // Whoever interrupted says so; what matters here is that the wait is over.
            return Ok(Entered::AtOnce);
        }
        let while_doing = if last.is_some() { "while its queue was waited in" } else { "before its first word" };
        match control.poll_queue(LOOK_UP.min(allowed), while_doing)? {
            Heard::Other if last.is_none() => return Ok(Entered::AtOnce),
            // A refusal; anything else makes no sense, and is named when it is read.
            Heard::Other => return control.recv::<()>(LOOK_UP, while_doing).map(|()| Entered::AtOnce),
            Heard::Queue(FromServer::Turn { session }) => {
                control.send_queue(&FromClient::Here)?;
                return Ok(Entered::After(session));
            }
            Heard::Queue(FromServer::Waiting(place)) => {
                (heard, allowed) = (Instant::now(), DEAD_AFTER);
                waits.take().into_iter().for_each(|waits| waits());
                if patience.most.is_zero() {
                    return Err(SessionError::Full(place));
                }
                if last.is_none_or(|last| last.ahead != place.ahead) {
                    (patience.told)(&place);
                }
                last = Some(place);
            }
            Heard::Nothing => {}
        }
        if let Some(place) = last.filter(|_| begun.elapsed() > patience.most) {
            return Err(SessionError::Waited { after: patience.most, place });
        }
        if heard.elapsed() > allowed {
            return Err(SessionError::Timeout { peer, after: allowed, while_doing });
        }
    }
}
