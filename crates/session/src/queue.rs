//! Client side of a server's queue: waits for the turn, reports the expected wait, and gives up in time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::control::QueuePoll;
use super::{Control, SessionError};
use crate::SessionId;
use crate::limits::QueuePosition;
use crate::transport::DEAD_PEER_TIMEOUT;
use crate::wire::queue::{QueueMessage, QueueReply};

/// Interval of the checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum wait for a turn, and the report of changes.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Maximum wait; zero means no wait.
    pub max_wait: Duration,
    /// Called for each change of the place.
    pub on_change: fn(&QueuePosition),
}

impl Default for QueueOptions {
    fn default() -> Self {
        QueueOptions { max_wait: Duration::from_secs(600), on_change: |_| {} }
    }
}

/// Waits until the server admits the session. Returns the id for the data streams if the session had to wait. `None`
/// means that the server's first message is still to be read, or that `interrupted` is set.
///
/// `on_queued` is called once if the session must wait: data streams that are already connected become useless.
pub fn wait_for_admission(
    control: &mut Control,
    options: &QueueOptions,
    first_timeout: Duration,
    interrupted: Option<&AtomicBool>,
    on_queued: impl FnOnce(),
) -> Result<Option<SessionId>, SessionError> {
    let (peer, begun) = (control.peer(), Instant::now());
    let (mut last_frame_at, mut timeout, mut last) = (begun, first_timeout, None::<QueuePosition>);
    let mut on_queued = Some(on_queued);
    while !interrupted.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        let while_doing =
            if last.is_some() { "while this client waited in its queue" } else { "before its first message" };
        match control.poll_queue(POLL_INTERVAL.min(timeout), while_doing)? {
            QueuePoll::Other if last.is_none() => return Ok(None),
            // A refusal, or an unexpected message, which then fails to decode.
            QueuePoll::Other => return control.recv::<()>(POLL_INTERVAL, while_doing).map(|()| None),
            QueuePoll::Frame(QueueMessage::Turn { session }) => {
                control.send_queue(&QueueReply::Ready)?;
                return Ok(Some(session));
            }
            QueuePoll::Frame(QueueMessage::Waiting(place)) => {
                (last_frame_at, timeout) = (Instant::now(), DEAD_PEER_TIMEOUT);
                on_queued.take().into_iter().for_each(|on_queued| on_queued());
                if options.max_wait.is_zero() {
                    return Err(SessionError::ServerFull(place));
                }
                if last.is_none_or(|last| last.ahead != place.ahead) {
                    (options.on_change)(&place);
                }
                last = Some(place);
            }
            QueuePoll::Nothing => {}
        }
        if let Some(place) = last.filter(|_| begun.elapsed() > options.max_wait) {
            return Err(SessionError::QueueTimeout { after: options.max_wait, place });
        }
        if last_frame_at.elapsed() > timeout {
            return Err(SessionError::Timeout { peer, after: timeout, while_doing });
        }
    }
    Ok(None)
}
