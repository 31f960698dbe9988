//! The conversation of a copy over its control connection, the same for whoever dialled: one loop for the side that
//! sends, one for the side that receives.
//!
//! The loop is the copy's only judge. Streams move bytes and report; the loop hears the peer, says every second that
//! it is there, notices who is silent for [`DEAD_AFTER`] and what does not move for [`STALLED_AFTER`], and ends the
//! copy once: whole, or with the one error that says why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::limit::Look;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{ALIVE_EVERY, FromReceiver, FromSender, Progress};

use serde::de::IgnoredAny;

use super::TransferError;
use super::flow::Flow;
use super::receiver::Receiving;
use super::sender::Sending;
use crate::session::{Control, DEAD_AFTER, DataStream, SessionError};

/// How long nothing may move though both sides are there.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(60);

/// How long the loop listens before it looks around.
const TICK: Duration = Duration::from_millis(4);

/// How long a peer has to say why it broke a stream.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Gives data streams as they arrive.
pub(crate) type Arrivals<'a> = &'a mut dyn FnMut() -> Option<Result<DataStream, TransferError>>;

/// One side's end of the conversation.
pub(crate) struct Talk<'a> {
    pub(crate) control: &'a mut Control,
    pub(crate) arrivals: Arrivals<'a>,
    /// Set from outside to end the copy.
    pub(crate) interrupted: &'a AtomicBool,
    /// Told how far the copy is, several times a second.
    pub(crate) observer: &'a mut dyn FnMut(&Look),
    role: Role,
    pulse: Pulse,
}

/// Which side of the copy this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Sender,
    Receiver,
}

/// Who was heard when, and what moved when.
struct Pulse {
    started: Instant,
    heard: Instant,
    spoke: Instant,
    observed: Instant,
    /// What had moved on both sides together, and when that changed.
    moved: (Bytes, Instant),
    theirs: Progress,
}

/// How the receiving side's work stands.
enum Stage {
    Opening(JoinHandle<Result<Arc<Receiving>, TransferError>>),
    Receiving(Arc<Receiving>),
    Publishing(Arc<Receiving>, Digest, JoinHandle<Result<(), TransferError>>),
}

/// What the sending side knows at the end.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) digest: Digest,
    /// Where the receiver put it, as far as it said.
    pub(crate) path: Option<String>,
}

/// What the receiving side knows at the end.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) digest: Digest,
    pub(crate) path: Option<String>,
    pub(crate) bytes: Bytes,
}

impl<'a> Talk<'a> {
    pub(crate) fn new(
        control: &'a mut Control,
        started: Instant,
        arrivals: Arrivals<'a>,
        interrupted: &'a AtomicBool,
        observer: &'a mut dyn FnMut(&Look),
    ) -> Self {
        let now = Instant::now();
        let pulse = Pulse {
            started,
            heard: now,
            spoke: now,
            observed: now,
            moved: (Bytes(0), now),
            theirs: Progress::default(),
        };
        Talk { control, arrivals, interrupted, observer, role: Role::Sender, pulse }
    }

    /// Sends until the receiver has the file under its name.
    pub(crate) fn send(mut self, sending: &Arc<Sending>) -> Result<Sent, TransferError> {
        let result = self.send_loop(sending);
        self.end(&sending.flow, result)
    }

    /// Receives until the file stands under its name.
    pub(crate) fn receive(
        mut self,
        opening: JoinHandle<Result<Arc<Receiving>, TransferError>>,
    ) -> Result<Received, TransferError> {
        self.role = Role::Receiver;
        let mut stage = Some(Stage::Opening(opening));
        let result = self.receive_loop(&mut stage);
        let receiving = match stage {
            // Joined, so that the partial file is gone before the error is told.
            Some(Stage::Opening(opening)) => opening.join().ok().and_then(Result::ok),
            Some(Stage::Receiving(receiving)) => Some(receiving),
            Some(Stage::Publishing(receiving, _, publishing)) => {
                receiving.flow.cut();
                let _ = publishing.join();
                Some(receiving)
            }
            None => None,
        };
        let Some(receiving) = receiving else { return self.end(&Flow::default(), result) };
        let result = self.end(&receiving.flow, result);
        receiving.discard();
        result
    }

    fn send_loop(&mut self, sending: &Arc<Sending>) -> Result<Sent, TransferError> {
        let (mut sent, mut path, mut ready) = (None, None, false);
        loop {
            while let Some(stream) = (self.arrivals)() {
                let (sending, stream) = (sending.clone(), stream?);
                start(move || sending.run(stream))?;
            }
            // The receiver takes its time before, to make room, and after, until all is on its disk.
            let moving = ready && self.pulse.theirs.bytes < sending.bytes();
            self.look_around(&sending.flow, moving)?;
            if sent.is_none() {
                sent = sending.finished()?;
                if let Some(digest) = sent {
                    let progress = Progress { sockets: sending.flow.sockets(), ..sending.flow.progress() };
                    self.control.send(&FromSender::Sent { digest, progress })?;
                }
            }
            let Some(message) = self.control.poll(TICK, "before the copy was done")? else { continue };
            self.pulse.heard = Instant::now();
            match message {
                FromReceiver::Ready { path: at } => (path, ready) = (at, true),
                FromReceiver::Alive(progress) => self.pulse.theirs = progress,
                FromReceiver::Done { digest, progress } => {
                    self.pulse.theirs = progress;
                    let Some(sent) = sent else { return Err(TransferError::Incomplete) };
                    if sent != digest {
                        return Err(TransferError::Digest { sent, received: digest });
                    }
                    return Ok(Sent { digest, path });
                }
            }
        }
    }

    fn receive_loop(&mut self, stage: &mut Option<Stage>) -> Result<Received, TransferError> {
        let mut announced = None;
        loop {
            let idle = Flow::default();
            match stage.take() {
                Some(Stage::Opening(opening)) if opening.is_finished() => {
                    let receiving = joined(opening)?;
                    *stage = Some(Stage::Receiving(receiving.clone()));
                    self.control.send(&FromReceiver::Ready { path: receiving.shown() })?;
                }
                Some(Stage::Receiving(receiving)) => {
                    // Kept for the end, should this fail.
                    *stage = Some(Stage::Receiving(receiving.clone()));
                    *stage = Some(self.take_blocks(receiving, announced)?);
                }
                Some(Stage::Publishing(receiving, digest, publishing)) if publishing.is_finished() => {
                    *stage = Some(Stage::Receiving(receiving.clone()));
                    joined(publishing)?;
                    let progress = receiving.flow.progress();
                    self.control.send(&FromReceiver::Done { digest, progress })?;
                    return Ok(Received { digest, path: receiving.shown(), bytes: progress.bytes });
                }
                other => *stage = other,
            }
            let (flow, moving) = match stage {
                Some(Stage::Receiving(receiving)) => (&receiving.flow, true),
                Some(Stage::Publishing(receiving, ..)) => (&receiving.flow, false),
                _ => (&idle, false),
            };
            self.look_around(flow, moving)?;
            let Some(message) = self.control.poll(TICK, "before the copy was done")? else { continue };
            self.pulse.heard = Instant::now();
            match message {
                FromSender::Alive(progress) => self.pulse.theirs = progress,
                FromSender::Sent { digest, progress } => {
                    self.pulse.theirs = progress;
                    announced = Some(digest);
                }
                FromSender::Offer(_) => {}
            }
        }
    }

    /// Starts the streams that came, and sees whether the file is whole.
    fn take_blocks(&mut self, receiving: Arc<Receiving>, announced: Option<Digest>) -> Result<Stage, TransferError> {
        while let Some(stream) = (self.arrivals)() {
            let (receiving, stream) = (receiving.clone(), stream?);
            start(move || receiving.run(stream))?;
        }
        let Some(sent) = announced else { return Ok(Stage::Receiving(receiving)) };
        match receiving.digest() {
            Some(received) if received == sent => {
                let publishing = receiving.publish_apart()?;
                Ok(Stage::Publishing(receiving, sent, publishing))
            }
            Some(received) => Err(TransferError::Digest { sent, received }),
            None => Ok(Stage::Receiving(receiving)),
        }
    }

    /// What every turn of either loop does: failures, silence, stalls, a sign of life, the observer.
    fn look_around(&mut self, flow: &Flow, moving: bool) -> Result<(), TransferError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        if let Some(error) = flow.take_failure() {
            return Err(error);
        }
        let now = Instant::now();
        let mut progress = flow.progress();
        let moved = Bytes(progress.bytes.0.saturating_add(self.pulse.theirs.bytes.0));
        if moved != self.pulse.moved.0 || !moving {
            self.pulse.moved = (moved, now);
        }
        if now > self.pulse.heard + DEAD_AFTER {
            let peer = self.control.peer();
            return Err(SessionError::Timeout { peer, after: DEAD_AFTER, while_doing: "while copying" }.into());
        }
        if now > self.pulse.moved.1 + STALLED_AFTER {
            return Err(TransferError::Stalled(STALLED_AFTER));
        }
        let observe = now >= self.pulse.observed + Duration::from_millis(200);
        if self.role == Role::Sender && (observe || now >= self.pulse.spoke + ALIVE_EVERY) {
            progress.sockets = flow.sockets();
        }
        if now >= self.pulse.spoke + ALIVE_EVERY {
            self.pulse.spoke = now;
            match self.role {
                Role::Sender => self.control.send(&FromSender::Alive(progress))?,
                Role::Receiver => self.control.send(&FromReceiver::Alive(progress))?,
            }
        }
        if observe {
            self.pulse.observed = now;
            let look = self.look(progress);
            (self.observer)(&look);
        }
        Ok(())
    }

    /// Both sides as they stand.
    fn look(&self, ours: Progress) -> Look {
        let (sender, receiver) = match self.role {
            Role::Sender => (ours, self.pulse.theirs),
            Role::Receiver => (self.pulse.theirs, ours),
        };
        Look {
            at: self.pulse.started.elapsed(),
            bytes: ours.bytes,
            sender: sender.shares,
            receiver: receiver.shares,
            sockets: sender.sockets,
        }
    }

    /// Ends the streams of a copy that failed, and looks for the peer's own reason behind a connection that broke.
    fn end<T>(&mut self, flow: &Flow, result: Result<T, TransferError>) -> Result<T, TransferError> {
        let mut progress = flow.progress();
        if self.role == Role::Sender {
            progress.sockets = flow.sockets();
        }
        let look = self.look(progress);
        (self.observer)(&look);
        let Err(error) = result else { return result };
        flow.cut();
        let broke = matches!(
            error,
            TransferError::Stream { .. }
                | TransferError::Session(
                    SessionError::Closed { .. } | SessionError::Io { .. } | SessionError::Timeout { .. }
                )
        );
        Err(if broke { last_words(self.control, error) } else { error })
    }
}

/// What the peer says about it, if it says something within [`LAST_WORDS`]; otherwise `error`.
pub(crate) fn last_words(control: &mut Control, error: TransferError) -> TransferError {
    let deadline = Instant::now() + LAST_WORDS;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match control.poll::<IgnoredAny>(left, "before the copy was done") {
            Ok(Some(_)) => {}
            Err(refused @ SessionError::Refused(_)) => return refused.into(),
            // That the peer is gone says more than that a stream broke.
            Err(closed @ SessionError::Closed { .. }) => return closed.into(),
            _ => return error,
        }
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> Result<(), TransferError> {
    let spawned = thread::Builder::new().name("data stream".into()).spawn(work);
    spawned.map(drop).map_err(|source| SessionError::Io { peer: "the kernel", source }.into())
}

/// The result of a thread that is done; one that panicked did nothing.
fn joined<T>(handle: JoinHandle<Result<T, TransferError>>) -> Result<T, TransferError> {
    handle.join().unwrap_or(Err(TransferError::Interrupted))
}
