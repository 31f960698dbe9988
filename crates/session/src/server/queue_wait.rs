//! The wait of a session in the queue. Its data streams are closed, its client receives the place in the queue
//! regularly, and the client must confirm that it is still connected when its turn comes.

use std::time::{Duration, Instant};

use crate::SessionId;
use crate::limits::admission::{Grant, WaitingSession};
use crate::wire::queue::{QueueMessage, QueueReply};
use crate::wire::{Refusal, RefusalCode};
use crate::{Control, QueuePoll, SessionError, dial};

/// Interval of the reports to a waiting client; each one is also a sign of life.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum time in which the client must confirm its turn.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(15);

/// Waits for the session's turn, and returns its grant and the id for its data streams. The error is the client's
/// disconnect or a refusal; in both cases the session leaves the queue.
pub(super) fn wait_for_turn(
    control: &mut Control,
    mut waiting: WaitingSession,
) -> Result<(Grant, SessionId), SessionError> {
    let mut report_at = Instant::now();
    let turn = loop {
        let now = Instant::now();
        if now >= report_at {
            control.send_queue(&QueueMessage::Waiting(waiting.position()))?;
            report_at = now + REPORT_INTERVAL;
        }
        if let Some(turn) = waiting.wait(control.handle().socket(), report_at.saturating_duration_since(now)) {
            break turn;
        }
        // Messages that the client sent before it learned of the wait are skipped. Its disconnect is an error.
        control.skip(Duration::from_millis(1), "while it waited in the queue")?;
    };
    let grant = turn.map_err(SessionError::Refused)?;
    let session = dial::new_session_id()?;
    control.send_queue(&QueueMessage::Turn { session })?;
    wait_for_confirmation(control)?;
    Ok((grant, session))
}

/// Skips messages that the client sent before its turn, up to its confirmation.
fn wait_for_confirmation(control: &mut Control) -> Result<(), SessionError> {
    let (deadline, while_doing) = (Instant::now() + CONFIRM_TIMEOUT, "at the start of its turn");
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match control.poll_queue::<QueueReply>(left, while_doing)? {
            QueuePoll::Frame(QueueReply::Ready) => return Ok(()),
            QueuePoll::Other => control.skip(left, while_doing)?,
            QueuePoll::Nothing => {
                let text = "the client did not confirm its turn in the queue";
                return Err(SessionError::Refused(Refusal::new(RefusalCode::Timeout, text)));
            }
        }
    }
}
