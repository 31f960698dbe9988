//! The wait of a session in the queue. Its data streams are closed, its client receives the place in the queue
//! regularly, and the client must confirm that it is still connected when its turn comes.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::wire::queue::{QueueMessage, QueuePosition, QueueReply};
use lfn_core::wire::{Refusal, RefusalCode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::limits::admission::{Grant, LimitScope, QueueEstimate, WaitingSession};
use crate::session::{Control, QueuePoll, SessionError};

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
    let grant = loop {
        let expected = waiting.estimate();
        control.send_queue(&QueueMessage::Waiting(queue_place(&expected)))?;
        if let Some(turn) = wait_until_report(control, &mut waiting)? {
            break turn.map_err(SessionError::Refused)?;
        }
    };
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| SessionError::Io { peer: "the kernel", source: e.into() })?;
    let session = SessionId(bytes);
    control.send_queue(&QueueMessage::Turn { session })?;
    wait_for_confirmation(control)?;
    Ok((grant, session))
}

fn queue_place(expected: &QueueEstimate) -> QueuePosition {
    let ahead = u32::try_from(expected.ahead).unwrap_or(u32::MAX);
    let own_limit = expected.limited_by == LimitScope::Client;
    QueuePosition { ahead, expected_wait_seconds: expected.wait.map(|wait| wait.into()), own_limit }
}

/// Waits until the next report to the client is due, and reads the client's messages meanwhile. Returns the outcome if
/// the turn came.
fn wait_until_report(
    control: &mut Control,
    waiting: &mut WaitingSession,
) -> Result<Option<Result<Grant, Refusal>>, SessionError> {
    let report_at = Instant::now() + REPORT_INTERVAL;
    loop {
        let left = report_at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(waiting.take_outcome());
        }
        let (turn, has_input) = {
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let turn = waiting.as_fd();
            let mut both = [PollFd::new(&turn, PollFlags::IN), PollFd::new(control.socket(), PollFlags::IN)];
            // An interrupted wait counts as a finished one.
            let _ = poll(&mut both, Some(&timeout));
            (!both[0].revents().is_empty(), !both[1].revents().is_empty())
        };
        if turn && let Some(turn) = waiting.take_outcome() {
            return Ok(Some(turn));
        }
        if has_input {
            // Messages that the client sent before it learned of the wait are skipped. Its disconnect is an error.
            control.skip(Duration::from_millis(1), "while it waited in the queue")?;
        }
    }
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
