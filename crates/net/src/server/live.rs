//! The sessions that run, and what ends one from outside: a spent quota, the end of the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_core::session::SessionId;
use lfn_core::wire::{Refusal, RefusalCode};

use super::admission::Grant;
use super::event::{Copied, Who};
use super::metrics::Moved;
use super::tokens::{Bearer, Tokens};

/// How long a session may take to let go of its files.
const SUPERSEDED_WITHIN: Duration = Duration::from_secs(15);

/// How often a wait for that looks up.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// One session that runs.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) who: Who,
    pub(super) grant: Grant,
    /// Whose token opened it.
    pub(super) bearer: Arc<Bearer>,
    /// Set to end it.
    pub(super) ending: AtomicBool,
    why: OnceLock<Refusal>,
    /// What became of a copy.
    pub(super) copied: Mutex<Option<Copied>>,
    /// The copy it is a session of.
    copy: Option<SessionId>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Lives {
    sessions: Mutex<HashMap<u64, Arc<Live>>>,
    next: AtomicU64,
}

/// A session among those that run, until it is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) live: Arc<Live>,
    number: u64,
    all: Arc<Lives>,
}

impl Live {
    /// Ends it for this reason, if it has none yet.
    pub(super) fn end(&self, why: Refusal) {
        let _ = self.why.set(why);
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Why it is to end, if it is.
    pub(super) fn why(&self) -> Option<&Refusal> {
        self.why.get()
    }
}

impl Lives {
    pub(super) fn list(
        self: &Arc<Self>,
        who: Who,
        grant: Grant,
        (bearer, copy): (Arc<Bearer>, Option<SessionId>),
    ) -> Listed {
        let live = Arc::new(Live {
            who,
            grant,
            bearer,
            ending: AtomicBool::new(false),
            why: OnceLock::new(),
            copied: Mutex::default(),
            copy,
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, live.clone());
        Listed { live, number, all: self.clone() }
    }

    /// Ends the sessions of a copy, for another one of it that is to come, and waits until they have let go of what they
    /// hold. Only its client knows the random name of a copy.
    pub(super) fn supersede(&self, copy: SessionId) {
        let deadline = Instant::now() + SUPERSEDED_WITHIN;
        loop {
            let older: Vec<_> = self.lock().values().filter(|live| live.copy == Some(copy)).cloned().collect();
            if older.is_empty() || Instant::now() >= deadline {
                return;
            }
            for live in older {
                live.end(Refusal::new(RefusalCode::Stopped, "another session goes on with this copy"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends those whose quotas are spent, and those whose tokens are good no more.
    pub(super) fn check(&self, tokens: &Tokens) {
        let sessions: Vec<_> = self.lock().values().cloned().collect();
        let now = SystemTime::now();
        for live in sessions {
            if let Err(refusal) = live.grant.check().and_then(|()| tokens.stands(&live.bearer, now)) {
                live.end(refusal);
            }
        }
    }

    /// Ends all, and tells how many.
    pub(super) fn end_all(&self, why: &Refusal) -> usize {
        let sessions = self.lock();
        sessions.values().for_each(|live| live.end(why.clone()));
        sessions.len()
    }

    /// What those that run have moved so far.
    pub(super) fn moved(&self) -> Moved {
        let sessions = self.lock();
        let one = |live: &Arc<Live>| Moved::of(&live.who, live.grant.throttle().moved());
        sessions.values().map(one).fold(Moved::default(), Moved::plus)
    }

    /// No thread panics while it holds the lock, and the map is whole after every statement.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Live>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}
