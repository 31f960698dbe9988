//! Finds the group of a session.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use lfn_session::SessionError;
use lfn_session::wire::copy::RemoteDestination;
use lfn_session::wire::{Refusal, RefusalCode};
use parking_lot::Mutex;

use super::event::{Applicant, Event, Seat};
use super::group::Group;
use super::settings::GroupSettings;
use crate::TransferError;
use crate::receiver::Destination;
use crate::threads::spawn;

/// Maximum number of events that wait for a group. A session with a further one waits.
const MAX_QUEUED_EVENTS: usize = 1024;

/// The groups of a server.
#[derive(Clone, Debug, Default)]
pub struct RankGroups(Arc<Mutex<GroupTable>>);

#[derive(Debug, Default)]
struct GroupTable {
    running: HashMap<GroupKey, RunningGroup>,
    started: u64,
}

#[derive(Clone, Debug)]
struct RunningGroup {
    /// Differs from earlier groups of the same key.
    number: u64,
    events: SyncSender<Event>,
}

/// Sessions with the same key belong to the same group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    /// Hash of the client's token, or of the token that issued it.
    token: [u8; 32],
    /// Path of the destination. `None` for `null:`.
    path: Option<Vec<u8>>,
    /// Jobs to `null:` do not disturb each other. Two jobs to one path do, so the path alone is their key.
    null_job: Option<(u16, Option<String>)>,
}

impl GroupKey {
    pub(super) fn new(token: [u8; 32], to: &RemoteDestination, ranks: u16, job: Option<&str>) -> Self {
        match to {
            RemoteDestination::File { path, .. } => {
                GroupKey { token, path: Some(path.as_bytes().to_vec()), null_job: None }
            }
            RemoteDestination::Null => GroupKey { token, path: None, null_job: Some((ranks, job.map(str::to_owned))) },
        }
    }
}

impl RankGroups {
    /// Seats a rank in the group of this key. Starts the group if there is none.
    pub(super) fn join(
        &self,
        key: &GroupKey,
        settings: &GroupSettings,
        applicant: impl Fn(SyncSender<Result<Seat, Refusal>>) -> Applicant,
        destination: impl Fn() -> Result<Destination, TransferError>,
    ) -> Result<(Seat, SyncSender<Event>), TransferError> {
        // A group may end between the look and the request. The next look then starts another one.
        for _ in 0..3 {
            let RunningGroup { number, events } = self.group(key, settings, &destination)?;
            let (answer, answers) = sync_channel(1);
            if events.send(Event::Join(Box::new(applicant(answer)))).is_ok()
                && let Ok(seat) = answers.recv()
            {
                return match seat {
                    Ok(seat) => Ok((seat, events)),
                    Err(refusal) => Err(SessionError::Refused(refusal).into()),
                };
            }
            self.remove(key, number);
        }
        Err(SessionError::Refused(Refusal::new(RefusalCode::Io, "the ranks of this copy ended meanwhile")).into())
    }

    fn group(
        &self,
        key: &GroupKey,
        settings: &GroupSettings,
        destination: &impl Fn() -> Result<Destination, TransferError>,
    ) -> Result<RunningGroup, TransferError> {
        let mut groups = self.0.lock();
        if let Some(running) = groups.running.get(key) {
            return Ok(running.clone());
        }
        let (events, inbox) = sync_channel(MAX_QUEUED_EVENTS);
        let group = Group::start(destination()?, settings.clone(), inbox)?;
        groups.started += 1;
        let running = RunningGroup { number: groups.started, events };
        let (registered, own_key, number) = (self.clone(), key.clone(), running.number);
        spawn("ranks", move || {
            let end = group.run();
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
