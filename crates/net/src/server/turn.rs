//! A session that must wait: its data streams are dropped, its client is told its place again and again, and asked
//! whether it is still there when its turn has come.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::wire::queue::{FromClient, FromServer, Place};
use lfn_core::wire::{Refusal, RefusalCode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::admission::{Expected, Grant, Ticket, Whose};
use crate::session::{Control, Heard, SessionError};

/// How often who waits is told where it stands; also a sign of life.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// How long a client may take to say that it is still there.
const HERE_WITHIN: Duration = Duration::from_secs(15);

/// Waits for the session's turn, and gives it the id its data streams come under. An error is the client's going away
/// or a refusal; the place in the queue is given up with it.
pub(super) fn wait(control: &mut Control, mut ticket: Ticket) -> Result<(Grant, SessionId), SessionError> {
    let grant = loop {
        let expected = ticket.expected();
        control.send_queue(&FromServer::Waiting(place(&expected)))?;
        if let Some(turn) = until_told(control, &mut ticket)? {
            break turn.map_err(SessionError::Refused)?;
        }
    };
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| SessionError::Io { peer: "the kernel", source: e.into() })?;
    let session = SessionId(bytes);
    control.send_queue(&FromServer::Turn { session })?;
    until_here(control)?;
    Ok((grant, session))
}

fn place(expected: &Expected) -> Place {
    let ahead = u32::try_from(expected.ahead).unwrap_or(u32::MAX);
    let own_limit = expected.held_by == Whose::Client;
    Place { ahead, expected_wait_seconds: expected.wait.map(|wait| wait.into()), own_limit }
}

/// Waits until the client should be told again, and hears it meanwhile; the turn, if it has come.
fn until_told(control: &mut Control, ticket: &mut Ticket) -> Result<Option<Result<Grant, Refusal>>, SessionError> {
    let again = Instant::now() + TELL_EVERY;
    loop {
        let left = again.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(ticket.take());
        }
        let (turn, talks) = {
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let turn = ticket.as_fd();
            let mut both = [PollFd::new(&turn, PollFlags::IN), PollFd::new(control.socket(), PollFlags::IN)];
            // An interrupted wait is as good as one that ended.
            let _ = poll(&mut both, Some(&timeout));
            (!both[0].revents().is_empty(), !both[1].revents().is_empty())
        };
        if turn && let Some(turn) = ticket.take() {
            return Ok(Some(turn));
        }
        if talks {
            // What it said before it knew that it must wait is of no use; that it goes is an error.
            control.skip(Duration::from_millis(1), "while it waited in the queue")?;
        }
    }
}

/// Reads past what the client said before it knew that its turn has come.
fn until_here(control: &mut Control) -> Result<(), SessionError> {
    let (deadline, while_doing) = (Instant::now() + HERE_WITHIN, "when its turn had come");
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match control.poll_queue::<FromClient>(left, while_doing)? {
            Heard::Queue(FromClient::Here) => return Ok(()),
            Heard::Other => control.skip(left, while_doing)?,
            Heard::Nothing => {
                let text = "the session's turn came, and its client did not answer";
                return Err(SessionError::Refused(Refusal::new(RefusalCode::Timeout, text)));
            }
        }
    }
}
