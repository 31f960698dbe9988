//! Admission control for threads, on top of [`lfn_core::limits`]. A request gets a [`Grant`], a place in the queue, or a
//! refusal.
//!
//! The queue of `lfn_core` decides; this module adds a lock, a clock and the wake-up of sessions that start. A grant and
//! a waiting session release their resources when they are dropped, however their thread ends.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::limits::{Client, Denial, QueueDecision, ResourceGrant, SessionQueue};
pub use lfn_core::limits::{LimitScope, QueueEstimate, ResourceLimits, ResourceRequest, ServerLimits};
use lfn_core::time;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::{Refusal, RefusalCode};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::rate_limiter::{ByteQuota, Exhausted, RateLimiter};

/// Admission control of a server, for all its protocols.
#[derive(Clone, Debug)]
pub struct Admission {
    inner: Arc<Inner>,
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
    session: Arc<AdmittedSession>,
    allowed: ResourceGrant,
    rate_limiter: Arc<RateLimiter>,
}

/// A session's place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub struct WaitingSession {
    inner: Arc<Inner>,
    id: u64,
    /// Event file descriptor, readable when the session need not wait any longer.
    event: Arc<OwnedFd>,
}

/// An admitted session, by its id in the queue.
#[derive(Debug)]
struct AdmittedSession {
    inner: Arc<Inner>,
    id: u64,
}

#[derive(Debug)]
struct Inner {
    origin: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    queue: SessionQueue,
    outcomes: HashMap<u64, Outcome>,
}

/// Outcome of a waiting session, if it is decided, and the event that wakes its thread.
#[derive(Debug)]
struct Outcome {
    event: Arc<OwnedFd>,
    decision: Option<Result<ResourceGrant, Denial>>,
}

impl Admission {
    /// Creates the admission control without any sessions.
    pub fn new(limits: ServerLimits) -> Self {
        let state = State { queue: SessionQueue::new(limits), outcomes: HashMap::new() };
        Admission { inner: Arc::new(Inner { origin: Instant::now(), state: Mutex::new(state) }) }
    }

    /// Requests admission for a session.
    pub fn request(&self, peer: IpAddr, requested: ResourceRequest) -> AdmissionOutcome {
        let event = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(event) => Arc::new(event),
            Err(error) => {
                let text = format!("the server cannot accept another session: {}", io::Error::from(error));
                return AdmissionOutcome::Refused(Refusal::new(RefusalCode::Full, text).hint("try again later"));
            }
        };
        let mut state = self.inner.lock();
        let now = self.inner.now();
        let id = match state.queue.enqueue(Client::of(peer), requested, now) {
            Ok(id) => id,
            Err(denied) => return AdmissionOutcome::Refused(refusal(&denied)),
        };
        state.outcomes.insert(id, Outcome { event: event.clone(), decision: None });
        state.admit(now);
        drop(state);
        let mut waiting = WaitingSession { inner: self.inner.clone(), id, event };
        match waiting.take_outcome() {
            Some(Ok(grant)) => AdmissionOutcome::Granted(grant),
            Some(Err(refusal)) => AdmissionOutcome::Refused(refusal),
            None => AdmissionOutcome::Queued(waiting),
        }
    }

    /// Stops admission. Waiting sessions are refused.
    pub fn stop(&self) {
        let mut state = self.inner.lock();
        let decisions = state.queue.stop();
        state.deliver(decisions);
    }

    /// Returns the number of running sessions.
    pub fn running(&self) -> usize {
        self.inner.lock().queue.running()
    }

    /// Returns the number of waiting sessions.
    pub fn waiting(&self) -> usize {
        self.inner.lock().queue.waiting()
    }
}

impl WaitingSession {
    /// Returns the sessions ahead and the estimated wait, for the report to the client.
    pub fn estimate(&self) -> QueueEstimate {
        let at_once = QueueEstimate { ahead: 0, wait: Some(Duration::ZERO), limited_by: LimitScope::Total };
        self.inner.lock().queue.estimate(self.id, self.inner.now()).unwrap_or(at_once)
    }

    /// Returns the grant or the refusal, if the session need not wait any longer.
    pub fn take_outcome(&mut self) -> Option<Result<Grant, Refusal>> {
        let mut state = self.inner.lock();
        let decision = state.outcomes.get(&self.id)?.decision?;
        state.outcomes.remove(&self.id);
        drop(state);
        Some(decision.map(|grant| Grant::new(self.inner.clone(), self.id, grant)).map_err(|denial| refusal(&denial)))
    }

    /// Waits for the outcome, for at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<Result<Grant, Refusal>> {
        let timeout = timeout.try_into().ok();
        // An interrupted wait counts as a finished one.
        let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], timeout.as_ref());
        self.take_outcome()
    }
}

impl AsFd for WaitingSession {
    /// Returns a descriptor that is readable when there is an outcome, to poll it together with a connection.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for WaitingSession {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        let now = self.inner.now();
        match state.outcomes.remove(&self.id) {
            // The outcome was taken.
            None => return,
            Some(Outcome { decision: Some(Ok(_)), .. }) => state.queue.end(self.id, now),
            Some(_) => state.queue.leave(self.id),
        }
        state.admit(now);
    }
}

impl Grant {
    fn new(inner: Arc<Inner>, id: u64, allowed: ResourceGrant) -> Self {
        let session = Arc::new(AdmittedSession { inner, id });
        let rate_limiter = Arc::new(RateLimiter::new(allowed.rate, Some(session.clone())));
        Grant { session, allowed, rate_limiter }
    }

    /// Adds a rate limit that the session shares with other sessions.
    pub(crate) fn with_shared_rate(mut self, rate: BitRate, shared: Arc<RateLimiter>) -> Self {
        self.allowed.rate = Some(self.allowed.rate.map_or(rate, |granted| granted.min(rate)));
        let rate_limiter = RateLimiter::new(self.allowed.rate, Some(self.session.clone()));
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

    /// Counts payload that did not pass the rate limiter. A refusal means the session must end.
    pub fn count_bytes(&self, bytes: Bytes) -> Result<(), Refusal> {
        let stopped = std::sync::atomic::AtomicBool::new(true);
        let _ = self.rate_limiter.count_and_wait(bytes.0, &stopped);
        self.check()
    }

    /// Accounts for the time and the bytes of the session until now. Call it regularly while the session runs. A
    /// refusal means the session must end.
    pub fn check(&self) -> Result<(), Refusal> {
        let AdmittedSession { inner, id } = self.session.as_ref();
        let mut state = inner.lock();
        state.queue.charge_time(*id, inner.now()).map_err(|denied| refusal(&denied))?;
        drop(state);
        if self.rate_limiter.is_exhausted() {
            return Err(self.exhausted_refusal());
        }
        Ok(())
    }

    /// Returns the refusal for an exhausted byte quota, with the quota's owner and its flag.
    fn exhausted_refusal(&self) -> Refusal {
        let AdmittedSession { inner, id } = self.session.as_ref();
        let now = inner.now();
        match inner.lock().queue.out_of_bytes(*id, now) {
            Some(denied) => Refusal::new(RefusalCode::Quota, format!("{Exhausted}: {denied}")).hint(denied.hint()),
            // Other sessions have returned bytes in the meantime.
            None => Exhausted.refusal(),
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let unused = self.rate_limiter.take_unused_lease();
        let AdmittedSession { inner, id } = self.session.as_ref();
        let mut state = inner.lock();
        let now = inner.now();
        state.queue.refund(*id, unused);
        state.queue.end(*id, now);
        state.admit(now);
    }
}

impl ByteQuota for AdmittedSession {
    fn lease(&self, wanted: Bytes) -> Bytes {
        self.inner.lock().queue.take(self.id, wanted, self.inner.now())
    }

    fn is_limited(&self) -> bool {
        self.inner.lock().queue.counts_bytes()
    }

    fn check_affordable(&self, all: Bytes, requested: Bytes) -> Result<(), Denial> {
        self.inner.lock().queue.affords(self.id, all, requested, self.inner.now())
    }
}

impl Inner {
    fn now(&self) -> time::Instant {
        time::Instant::ZERO + self.origin.elapsed()
    }

    /// No thread panics while it holds the lock, and the state is consistent after every statement.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Starts the sessions that have room, and wakes their threads.
    fn admit(&mut self, now: time::Instant) {
        let decisions = self.queue.admit(now);
        self.deliver(decisions);
    }

    fn deliver(&mut self, decisions: Vec<QueueDecision>) {
        for decision in decisions {
            if let Some(outcome) = self.outcomes.get_mut(&decision.id) {
                outcome.decision = Some(decision.outcome);
                // A counter of one cannot overflow.
                let _ = rustix::io::write(&*outcome.event, &1_u64.to_ne_bytes());
            }
        }
    }
}

/// Returns the refusal for a session that is not admitted.
fn refusal(denied: &Denial) -> Refusal {
    let code = match denied {
        Denial::QueueFull { .. } => RefusalCode::Full,
        Denial::Stopping => RefusalCode::Stopped,
        Denial::Quota { .. } => RefusalCode::Quota,
        Denial::Streams { .. } | Denial::Time { .. } => RefusalCode::Limit,
    };
    Refusal::new(code, denied.to_string()).hint(denied.hint())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

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
        assert_eq!(next.estimate().ahead, 1);
        drop(gone);
        assert_eq!(next.estimate().ahead, 0);
        assert!(next.wait(Duration::ZERO).is_none());
        let other = thread::spawn(move || next.wait(TEST_TIMEOUT));
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
        assert!(next.wait(TEST_TIMEOUT).expect("woken").is_ok());
    }

    #[test]
    fn waiting_session_is_refused_at_server_stop() {
        let admission = one_place();
        let _inside = enter(&admission);
        let mut waits = queued(enter(&admission));
        admission.stop();
        let refused = waits.wait(TEST_TIMEOUT).expect("woken").unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (RefusalCode::Stopped, "the server is stopping"));
        assert!(matches!(enter(&admission), AdmissionOutcome::Refused(_)));
    }

    #[test]
    fn unmoved_bytes_return_to_the_quota() {
        let client = ResourceLimits { bytes: Some(Bytes(1000)), ..ServerLimits::default().client };
        let admission = Admission::new(ServerLimits { client, ..ServerLimits::default() });
        let AdmissionOutcome::Granted(first) = enter(&admission) else { panic!("the first goes in") };
        first.count_bytes(Bytes(300)).unwrap();
        drop(first);
        let AdmissionOutcome::Granted(second) = enter(&admission) else { panic!("700 are left") };
        assert_eq!(second.allowed().bytes, Some(Bytes(700)));
        second.count_bytes(Bytes(700)).unwrap();
        assert_eq!(second.count_bytes(Bytes(1)).unwrap_err().code, RefusalCode::Quota);
        drop(second);
        let AdmissionOutcome::Refused(refusal) = enter(&admission) else { panic!("nothing is left") };
        assert!(refusal.message.contains("0 B of 1 kB per 24 h left"), "{}", refusal.message);
        assert!(refusal.hint.is_some_and(|hint| hint.starts_with("try again in ")));
    }
}
