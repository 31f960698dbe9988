//! Sessions that run, and their end from outside: an exhausted quota, a revoked token, the stop of the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::event::{CopySummary, SessionInfo};
use super::metrics::PayloadBytes;
use super::tokens::{TokenHolder, TokenSet};
use crate::SessionId;
use crate::limits::admission::Grant;
use crate::wire::{Refusal, RefusalCode};
use parking_lot::Mutex;

/// Maximum time that a superseded session may take to release its files.
const SUPERSEDE_TIMEOUT: Duration = Duration::from_secs(15);

/// Interval of the checks whether the superseded session has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A session that runs.
#[derive(Debug)]
pub(super) struct RunningSession {
    pub(super) info: SessionInfo,
    pub(super) grant: Grant,
    pub(super) holder: Arc<TokenHolder>,
    /// Set when the session must end.
    pub(super) must_end: AtomicBool,
    end_reason: OnceLock<Refusal>,
    pub(super) copy_summary: Mutex<Option<CopySummary>>,
    /// Id of the copy that the session belongs to.
    copy: Option<SessionId>,
}

/// All sessions of the server that run.
#[derive(Debug, Default)]
pub(super) struct RunningSessions {
    sessions: Mutex<HashMap<u64, Arc<RunningSession>>>,
    next: AtomicU64,
}

/// Keeps a session in the list until it is dropped.
#[derive(Debug)]
pub(super) struct RunningSessionGuard {
    pub(super) session: Arc<RunningSession>,
    number: u64,
    all: Arc<RunningSessions>,
}

impl RunningSession {
    /// Ends the session for this reason, unless it has a reason already.
    pub(super) fn end(&self, end_reason: Refusal) {
        let _ = self.end_reason.set(end_reason);
        self.must_end.store(true, Ordering::Relaxed);
    }

    pub(super) fn end_reason(&self) -> Option<&Refusal> {
        self.end_reason.get()
    }
}

impl RunningSessions {
    pub(super) fn add(
        self: &Arc<Self>,
        info: SessionInfo,
        grant: Grant,
        holder: Arc<TokenHolder>,
        copy: Option<SessionId>,
    ) -> RunningSessionGuard {
        let session = Arc::new(RunningSession {
            info,
            grant,
            holder,
            must_end: AtomicBool::new(false),
            end_reason: OnceLock::new(),
            copy_summary: Mutex::default(),
            copy,
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.sessions.lock().insert(number, session.clone());
        RunningSessionGuard { session, number, all: self.clone() }
    }

    /// Ends the sessions of a copy, because a new session of the same copy starts, and waits until they have released
    /// their files. Only the client of a copy knows its random id.
    pub(super) fn supersede(&self, copy: SessionId) {
        let deadline = Instant::now() + SUPERSEDE_TIMEOUT;
        loop {
            let older: Vec<_> =
                self.sessions.lock().values().filter(|session| session.copy == Some(copy)).cloned().collect();
            if older.is_empty() || Instant::now() >= deadline {
                return;
            }
            for session in older {
                session.end(Refusal::new(RefusalCode::Stopped, "another session resumed this copy"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends sessions with an exhausted quota or an invalid token.
    pub(super) fn end_invalid(&self, tokens: &TokenSet) {
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        let now = SystemTime::now();
        for session in sessions {
            if let Err(refusal) = session.grant.check().and_then(|()| tokens.check_valid(&session.holder, now)) {
                session.end(refusal);
            }
        }
    }

    /// Ends all sessions and returns their number.
    pub(super) fn end_all(&self, end_reason: &Refusal) -> usize {
        let sessions = self.sessions.lock();
        sessions.values().for_each(|session| session.end(end_reason.clone()));
        sessions.len()
    }

    /// Returns the payload that all running sessions have moved so far.
    pub(super) fn payload_bytes(&self) -> PayloadBytes {
        let sessions = self.sessions.lock();
        let one =
            |session: &Arc<RunningSession>| PayloadBytes::of(&session.info, session.grant.rate_limiter().bytes_moved());
        sessions.values().map(one).fold(PayloadBytes::default(), PayloadBytes::plus)
    }
}

impl Drop for RunningSessionGuard {
    fn drop(&mut self) {
        self.all.sessions.lock().remove(&self.number);
    }
}
