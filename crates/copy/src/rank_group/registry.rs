//! Finds the group of a session.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Inbox, SyncSender, sync_channel};

use lfn_session::SessionError;
use lfn_session::wire::copy::ranks::RankRequest;
use lfn_session::wire::copy::{CopyJob, ReceiverMessage, RemoteDestination, SenderMessage};
use lfn_session::wire::{Refusal, RefusalCode};
use parking_lot::Mutex;

use super::event::{Applicant, Event, Seat};
use crate::TransferError;
use crate::threads::spawn;

/// Maximum number of events that wait for a group. A session with a further one waits.
const MAX_QUEUED_EVENTS: usize = 1024;

/// The groups of a server.
#[derive(Clone, Debug, Default)]
pub struct RankGroups {
    pub(super) uploads: Groups<SenderMessage, ReceiverMessage>,
    pub(super) downloads: Groups<ReceiverMessage, SenderMessage>,
}

/// The groups of one direction. Their ranks send messages `I` and receive messages `O`.
#[derive(Debug)]
pub(super) struct Groups<I, O>(Arc<Mutex<GroupTable<I, O>>>);

#[derive(Debug)]
struct GroupTable<I, O> {
    running: HashMap<GroupKey, RunningGroup<I, O>>,
    started: u64,
}

#[derive(Debug)]
struct RunningGroup<I, O> {
    /// Differs from earlier groups of the same key.
    number: u64,
    events: SyncSender<Event<I, O>>,
}

/// A session with its seat and its group.
pub(super) struct SeatedRank<I, O> {
    pub(super) seat: Seat<O>,
    pub(super) events: SyncSender<Event<I, O>>,
}

/// Sessions with the same key belong to the same group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    /// Hash of the client's token, or of the token that issued it.
    token: [u8; 32],
    copy: CopyKey,
}

/// The copy of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CopyKey {
    /// Two jobs to one path disturb each other, so the path alone is their key.
    UploadTo(Vec<u8>),
    UploadToNull {
        ranks: u16,
        launcher_job: Option<String>,
    },
    /// The sources are those of the request, in JSON.
    Download {
        sources: Vec<u8>,
        ranks: u16,
        launcher_job: Option<String>,
    },
}

impl GroupKey {
    pub(super) fn new(token: [u8; 32], job: &CopyJob, rank: &RankRequest) -> Self {
        let (ranks, launcher_job) = (rank.ranks, rank.job.clone());
        let copy = match job {
            CopyJob::Put { to: RemoteDestination::File { path, .. } } => CopyKey::UploadTo(path.as_bytes().to_vec()),
            CopyJob::Put { to: RemoteDestination::Null } => CopyKey::UploadToNull { ranks, launcher_job },
            CopyJob::Get { .. } => {
                // A request that was read from JSON can be written as JSON.
                let sources = serde_json::to_vec(job).unwrap_or_default();
                CopyKey::Download { sources, ranks, launcher_job }
            }
        };
        GroupKey { token, copy }
    }
}

impl<I: Send + 'static, O: Send + 'static> Groups<I, O> {
    /// Seats a rank in the group of this key. `start` starts the group if there is none: it returns the work of the group's
    /// thread.
    pub(super) fn join<R: 'static, G: FnOnce() -> R + Send + 'static>(
        &self,
        key: &GroupKey,
        applicant: impl Fn(SyncSender<Result<Seat<O>, Refusal>>) -> Applicant<O>,
        start: impl Fn(Inbox<Event<I, O>>) -> Result<G, TransferError>,
    ) -> Result<SeatedRank<I, O>, TransferError> {
        // A group may end between the look and the request. The next look then starts another one.
        for _ in 0..3 {
            let RunningGroup { number, events } = self.group(key, &start)?;
            let (answer, answers) = sync_channel(1);
            if events.send(Event::Join(Box::new(applicant(answer)))).is_ok()
                && let Ok(seat) = answers.recv()
            {
                return match seat {
                    Ok(seat) => Ok(SeatedRank { seat, events }),
                    Err(refusal) => Err(SessionError::Refused(refusal).into()),
                };
            }
            self.remove(key, number);
        }
        Err(SessionError::Refused(Refusal::new(RefusalCode::Io, "the ranks of this copy ended meanwhile")).into())
    }

    fn group<R: 'static, G: FnOnce() -> R + Send + 'static>(
        &self,
        key: &GroupKey,
        start: &impl Fn(Inbox<Event<I, O>>) -> Result<G, TransferError>,
    ) -> Result<RunningGroup<I, O>, TransferError> {
        let mut groups = self.0.lock();
        if let Some(running) = groups.running.get(key) {
            return Ok(running.clone());
        }
        let (events, inbox) = sync_channel(MAX_QUEUED_EVENTS);
        let run = start(inbox)?;
        groups.started += 1;
        let running = RunningGroup { number: groups.started, events };
        let (registered, own_key, number) = (self.clone(), key.clone(), running.number);
        spawn("ranks", move || {
            let end = run();
            registered.remove(&own_key, number);
            // Later applicants find the closed channel, and start the next group.
            drop(end);
        })?;
        groups.running.insert(key.clone(), running.clone());
        Ok(running)
    }

    /// Removes a group that has ended, unless another one has taken its place.
    fn remove(&self, key: &GroupKey, number: u64) {
        let mut groups = self.0.lock();
        if groups.running.get(key).is_some_and(|running| running.number == number) {
            groups.running.remove(key);
        }
    }
}

impl<I, O> Clone for Groups<I, O> {
    fn clone(&self) -> Self {
        Groups(self.0.clone())
    }
}

impl<I, O> Default for Groups<I, O> {
    fn default() -> Self {
        Groups(Arc::new(Mutex::new(GroupTable { running: HashMap::new(), started: 0 })))
    }
}

impl<I, O> Clone for RunningGroup<I, O> {
    fn clone(&self) -> Self {
        RunningGroup { number: self.number, events: self.events.clone() }
    }
}
