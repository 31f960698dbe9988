//! Admission control for threads, on top of [`crate::limits`]. A request gets a [`Grant`], a place in the queue, or a
//! refusal.
//!
//! [`SessionQueue`] decides; this module adds a lock, a clock and the wake-up of sessions that start. A grant and a
//! waiting session release their resources when they are dropped, however their thread ends.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lfn_base::time;
use lfn_base::units::{BitRate, Bytes};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::rate_limiter::{ByteQuota, Exhausted, RateLimiter};
use super::{Client, Denial, QueueDecision, QueuePosition, ResourceGrant, ResourceRequest, ServerLimits, SessionQueue};
use crate::wire::{Refusal, RefusalCode};

/// Admission control of a server, for all its protocols.
#[derive(Clone, Debug)]
pub struct Admission {
    state: Arc<Mutex<State>>,
}

/// Outcome of a request for a session.
#[derive(Debug)]
pub enum AdmissionOutcome {
    Granted(Grant),
    /// The session waits for its turn.
    Queued(WaitingSession),
    /// The session cannot run, and need not wait.
    Refused(Refusal),
}

/// Admission of a session with its limits. Dropping it frees the session's resources.
#[derive(Debug)]
pub struct Grant {
    place: Place,
    allowed: ResourceGrant,
    rate_limiter: Arc<RateLimiter>,
}

/// A session's place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub struct WaitingSession {
    /// Absent after the turn.
    place: Option<Place>,
    turn: Arc<Turn>,
}

/// Outcome of a wait, once it is decided.
#[derive(Debug)]
struct Turn {
    decision: OnceLock<Result<ResourceGrant, Denial>>,
    /// Event file descriptor, readable when the session need not wait any longer.
    event: OwnedFd,
}

/// A running or waiting session. Dropping it ends the session.
#[derive(Debug)]
struct Place(Session);

/// A session by its id in the queue.
#[derive(Clone, Debug)]
struct Session {
    state: Arc<Mutex<State>>,
    id: u64,
}

#[derive(Debug)]
struct State {
    origin: Instant,
    queue: SessionQueue,
    /// Turns of the waiting sessions, by their id.
    turns: HashMap<u64, Arc<Turn>>,
}

impl Admission {
    /// Creates the admission control without any sessions.
    pub fn new(limits: ServerLimits) -> Self {
        let state = State { origin: Instant::now(), queue: SessionQueue::new(limits), turns: HashMap::new() };
        Admission { state: Arc::new(Mutex::new(state)) }
    }

    /// Requests admission for a session.
    pub fn request(&self, peer: IpAddr, requested: ResourceRequest) -> AdmissionOutcome {
        let mut state = self.state.lock();
        let now = state.now();
        let id = match state.queue.request(Client::of(peer), requested, now) {
            Ok(id) => id,
            Err(denial) => return AdmissionOutcome::Refused(refusal(&denial)),
        };
        let place = Place(Session { state: self.state.clone(), id });
        if let Some(allowed) = state.queue.grant(id) {
            return AdmissionOutcome::Granted(Grant::new(place, allowed));
        }
        match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(event) => {
                let turn = Arc::new(Turn { decision: OnceLock::new(), event });
                state.turns.insert(id, turn.clone());
                AdmissionOutcome::Queued(WaitingSession { place: Some(place), turn })
            }
            Err(error) => {
                // The place leaves the queue below, which takes the lock again.
                drop(state);
                let text = format!("the server cannot accept another session: {}", io::Error::from(error));
                AdmissionOutcome::Refused(Refusal::new(RefusalCode::Full, text).hint("try again later"))
            }
        }
    }

    /// Stops admission. Waiting sessions are refused.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        let decisions = state.queue.stop();
        state.deliver(decisions);
    }

    /// Returns the number of running sessions.
    pub fn running(&self) -> usize {
        self.state.lock().queue.running()
    }

    /// Returns the number of waiting sessions.
    pub fn waiting(&self) -> usize {
        self.state.lock().queue.waiting()
    }
}

impl WaitingSession {
    /// Returns the position in the queue, for the report to the client.
    pub fn position(&self) -> QueuePosition {
        let at_once = QueuePosition { expected_wait_seconds: Some(Duration::ZERO.into()), ..QueuePosition::default() };
        let position = self.place.as_ref().and_then(|place| place.0.with(|queue, id, now| queue.position(id, now)));
        position.unwrap_or(at_once)
    }

    /// Waits for the outcome, until `timeout` or until `socket` is readable. `None` if the session still waits.
    pub fn wait(&mut self, socket: Option<BorrowedFd<'_>>, timeout: Duration) -> Option<Result<Grant, Refusal>> {
        let mut events = vec![PollFd::new(&self.turn.event, PollFlags::IN)];
        events.extend(socket.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::IN)));
        // An interrupted wait counts as a finished one.
        let _ = poll(&mut events, timeout.try_into().ok().as_ref());
        let decision = *self.turn.decision.get()?;
        let place = self.place.take()?;
        Some(decision.map(|allowed| Grant::new(place, allowed)).map_err(|denial| refusal(&denial)))
    }
}

impl Grant {
    fn new(place: Place, allowed: ResourceGrant) -> Self {
        let rate_limiter = Arc::new(RateLimiter::new(allowed.rate, Some(Arc::new(place.0.clone()))));
        Grant { place, allowed, rate_limiter }
    }

    /// Adds a rate limit that the session shares with other sessions.
    pub(crate) fn with_shared_rate(mut self, rate: BitRate, shared: Arc<RateLimiter>) -> Self {
        self.allowed.rate = Some(self.allowed.rate.map_or(rate, |granted| granted.min(rate)));
        let rate_limiter = RateLimiter::new(self.allowed.rate, Some(Arc::new(self.place.0.clone())));
        self.rate_limiter = Arc::new(rate_limiter.with_shared(Some(shared)));
        self
    }

    /// Returns the streams, rate, bytes and time that were granted.
    pub fn allowed(&self) -> ResourceGrant {
        self.allowed
    }

    /// Returns the rate limiter. Every loop that moves the session's payload calls it.
    pub fn rate_limiter(&self) -> Arc<RateLimiter> {
        self.rate_limiter.clone()
    }

    /// Accounts for the time and the bytes of the session until now. Call it regularly while the session runs. A
    /// refusal means the session must end.
    pub fn check(&self) -> Result<(), Refusal> {
        let session = &self.place.0;
        session.with(|queue, id, now| queue.charge_time(id, now)).map_err(|denial| refusal(&denial))?;
        if !self.rate_limiter.is_exhausted() {
            return Ok(());
        }
        Err(match session.with(|queue, id, now| queue.out_of_bytes(id, now)) {
            Some(denial) => Refusal::new(RefusalCode::Quota, format!("{Exhausted}: {denial}")).hint(denial.hint()),
            // Other sessions have returned bytes in the meantime.
            None => Exhausted.refusal(),
        })
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let unused = self.rate_limiter.take_unused_lease();
        self.place.0.with(|queue, id, _| queue.refund(id, unused));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Session { state, id } = &self.0;
        let mut state = state.lock();
        let now = state.now();
        state.turns.remove(id);
        let decisions = state.queue.end(*id, now);
        state.deliver(decisions);
    }
}

impl ByteQuota for Session {
    fn lease(&self, wanted: Bytes) -> Bytes {
        self.with(|queue, id, now| queue.take(id, wanted, now))
    }

    fn is_limited(&self) -> bool {
        self.with(|queue, _, _| queue.counts_bytes())
    }

    fn check_affordable(&self, all: Bytes, requested: Bytes) -> Result<(), Denial> {
        self.with(|queue, id, now| queue.affords(id, all, requested, now))
    }
}

impl Session {
    /// Runs a function on the queue, with the id of the session and the time.
    fn with<T>(&self, function: impl FnOnce(&mut SessionQueue, u64, time::Instant) -> T) -> T {
        let mut state = self.state.lock();
        let now = state.now();
        function(&mut state.queue, self.id, now)
    }
}

impl State {
    /// Returns the time since the start. Callers hold the lock, so the time of the queue never goes back.
    fn now(&self) -> time::Instant {
        time::Instant::ZERO + self.origin.elapsed()
    }

    /// Wakes the threads of sessions that need not wait any longer.
    fn deliver(&mut self, decisions: Vec<QueueDecision>) {
        for QueueDecision { id, outcome } in decisions {
            if let Some(turn) = self.turns.remove(&id) {
                let _ = turn.decision.set(outcome);
                // A counter of one cannot overflow.
                let _ = rustix::io::write(&turn.event, &1_u64.to_ne_bytes());
            }
        }
    }
}

/// Returns the refusal for a session that is not admitted.
fn refusal(denial: &Denial) -> Refusal {
    let code = match denial {
        Denial::QueueFull { .. } => RefusalCode::Full,
        Denial::Stopping => RefusalCode::Stopped,
        Denial::Quota { .. } => RefusalCode::Quota,
        Denial::Streams { .. } | Denial::Time { .. } => RefusalCode::Limit,
    };
    Refusal::new(code, denial.to_string()).hint(denial.hint())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::super::ResourceLimits;
    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    fn one_place() -> Admission {
        let total = ResourceLimits { sessions: 1, ..ServerLimits::default().total };
        Admission::new(ServerLimits { total, ..ServerLimits::default() })
    }

    fn enter(admission: &Admission) -> AdmissionOutcome {
        let requested =
            ResourceRequest { streams: 1, time: Some(Duration::from_secs(10)), ..ResourceRequest::default() };
        admission.request(Ipv4Addr::LOCALHOST.into(), requested)
    }

    fn queued(entry: AdmissionOutcome) -> WaitingSession {
        match entry {
            AdmissionOutcome::Queued(waiting) => waiting,
            other => panic!("not queued: {other:?}"),
        }
    }

    #[test]
    fn freed_place_goes_to_the_next_in_the_queue() {
        let admission = one_place();
        let AdmissionOutcome::Granted(first) = enter(&admission) else { panic!("the first goes in") };
        let (gone, mut next) = (queued(enter(&admission)), queued(enter(&admission)));
        assert_eq!((admission.running(), admission.waiting()), (1, 2));
        assert_eq!(next.position().ahead, 1);
        drop(gone);
        assert_eq!(next.position().ahead, 0);
        assert!(next.wait(None, Duration::ZERO).is_none());
        let other = thread::spawn(move || next.wait(None, TEST_TIMEOUT));
        drop(first);
        let second = other.join().unwrap().expect("woken").expect("granted");
        assert_eq!((admission.running(), admission.waiting()), (1, 0));
        drop(second);
        assert_eq!(admission.running(), 0);
    }

    #[test]
    fn unused_turn_goes_to_the_next_session() {
        let admission = one_place();
        let AdmissionOutcome::Granted(first) = enter(&admission) else { panic!("the first goes in") };
        let (gone, mut next) = (queued(enter(&admission)), queued(enter(&admission)));
        drop(first);
        drop(gone);
        assert!(next.wait(None, TEST_TIMEOUT).expect("woken").is_ok());
    }

    #[test]
    fn waiting_session_is_refused_at_server_stop() {
        let admission = one_place();
        let _inside = enter(&admission);
        let mut waits = queued(enter(&admission));
        admission.stop();
        let refused = waits.wait(None, TEST_TIMEOUT).expect("woken").unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (RefusalCode::Stopped, "the server is stopping"));
        assert!(matches!(enter(&admission), AdmissionOutcome::Refused(_)));
    }

    #[test]
    fn unmoved_bytes_return_to_the_quota() {
        let client = ResourceLimits { bytes: Some(Bytes(1000)), ..ServerLimits::default().client };
        let admission = Admission::new(ServerLimits { client, ..ServerLimits::default() });
        let count = |grant: &Grant, bytes| {
            let _ = grant.rate_limiter().charge(bytes);
            grant.check()
        };
        let AdmissionOutcome::Granted(first) = enter(&admission) else { panic!("the first goes in") };
        count(&first, 300).unwrap();
        drop(first);
        let AdmissionOutcome::Granted(second) = enter(&admission) else { panic!("700 are left") };
        assert_eq!(second.allowed().bytes, Some(Bytes(700)));
        count(&second, 700).unwrap();
        assert_eq!(count(&second, 1).unwrap_err().code, RefusalCode::Quota);
        drop(second);
        let AdmissionOutcome::Refused(refusal) = enter(&admission) else { panic!("nothing is left") };
        assert!(refusal.message.contains("0 B of 1 kB per 24 h left"), "{}", refusal.message);
        assert!(refusal.hint.is_some_and(|hint| hint.starts_with("try again in ")));
    }
}
