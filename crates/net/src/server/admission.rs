//! The threads' side of [`lfn_core::admission`]: who asks gets a [`Grant`], a [`Ticket`] for the queue, or a refusal.
//!
//! All decisions are the gate's; here are its lock, its clock, and what wakes those whose turn has come. A grant and a
//! ticket give back what they hold when they are dropped, however their thread ends.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::admission::{Allowed, Client, Denied, Gate, Turn};
pub use lfn_core::admission::{Ask, Expected, Quotas, Share, Whose};
use lfn_core::time;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::{Refusal, RefusalCode};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::throttle::{Spent, Throttle};

/// How old an answer to "how long still" may be: working it out costs a look at everybody who waits.
const FRESH: Duration = Duration::from_secs(1);

/// The one door of a server, whatever protocol those speak who come.
#[derive(Clone, Debug)]
pub struct Admission {
    inner: Arc<Inner>,
}

/// What came of asking.
#[derive(Debug)]
pub enum Entry {
    /// It goes in.
    Granted(Grant),
    /// It waits for its turn.
    Queued(Ticket),
    /// It need not wait.
    Refused(Refusal),
}

/// A session's place. Dropping it gives the place back.
#[derive(Debug)]
pub struct Grant {
    place: Arc<Place>,
    allowed: Allowed,
    throttle: Arc<Throttle>,
}

/// A session's place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub struct Ticket {
    inner: Arc<Inner>,
    id: u64,
    /// Readable when its turn has come.
    event: Arc<OwnedFd>,
    /// What it was given was taken from it.
    taken: bool,
}

/// Lends bytes of a quota.
pub(super) trait Lender: std::fmt::Debug + Send + Sync {
    /// Up to `wanted`; nothing when the quota is spent.
    fn lend(&self, wanted: Bytes) -> Bytes;

    /// Whether there is an end of them.
    fn is_limited(&self) -> bool;

    /// Whether there are `all` bytes for the session from its beginning to its end, `asked` of them newly asked for.
    fn affords(&self, all: Bytes, asked: Bytes) -> Result<(), Denied>;
}

/// What a grant holds at the gate.
#[derive(Debug)]
struct Place {
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
    gate: Gate,
    waiting: HashMap<u64, Waiting>,
    expected: Option<(Instant, HashMap<u64, Expected>)>,
}

/// A session that waits, or whose turn has come and who has not taken it yet.
#[derive(Debug)]
struct Waiting {
    event: Arc<OwnedFd>,
    outcome: Option<Result<Allowed, Denied>>,
}

impl Admission {
    /// Nobody is in.
    pub fn new(quotas: Quotas) -> Self {
        let state = State { gate: Gate::new(quotas), waiting: HashMap::new(), expected: None };
        Admission { inner: Arc::new(Inner { origin: Instant::now(), state: Mutex::new(state) }) }
    }

    /// Asks for a session's place.
    pub fn enter(&self, peer: IpAddr, ask: Ask) -> Entry {
        let event = match eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            Ok(event) => Arc::new(event),
            Err(error) => {
                let text = format!("the server has no room for another session: {}", io::Error::from(error));
                return Entry::Refused(Refusal::new(RefusalCode::Full, text).hint("try again later"));
            }
        };
        let mut state = self.inner.lock();
        let now = self.inner.now();
        let id = match state.gate.ask(Client::of(peer), ask, now) {
            Ok(id) => id,
            Err(denied) => return Entry::Refused(refusal(&denied)),
        };
        state.waiting.insert(id, Waiting { event: event.clone(), outcome: None });
        state.admit(now);
        drop(state);
        let mut ticket = Ticket { inner: self.inner.clone(), id, event, taken: false };
        match ticket.take() {
            Some(Ok(grant)) => Entry::Granted(grant),
            Some(Err(refusal)) => Entry::Refused(refusal),
            None => Entry::Queued(ticket),
        }
    }

    /// Lets nobody in any more; those who wait are told so.
    pub fn stop(&self) {
        let mut state = self.inner.lock();
        let turns = state.gate.stop();
        state.tell(turns);
    }

    /// Sessions that run.
    pub fn running(&self) -> usize {
        self.inner.lock().gate.running()
    }

    /// Sessions that wait.
    pub fn waiting(&self) -> usize {
        self.inner.lock().gate.waiting()
    }
}

impl Ticket {
    /// What to tell who waits.
    pub fn expected(&self) -> Expected {
        let mut state = self.inner.lock();
        let at = match &state.expected {
            Some((at, known)) if at.elapsed() < FRESH && known.contains_key(&self.id) => *at,
            _ => {
                let expected = state.gate.expected(self.inner.now());
                let at = Instant::now();
                state.expected = Some((at, expected));
                at
            }
        };
        let known = state.expected.as_ref().and_then(|(_, known)| known.get(&self.id)).copied();
        let expected = known.unwrap_or(Expected { wait: Some(Duration::ZERO), ahead: 0, held_by: Whose::All });
        Expected { wait: expected.wait.map(|wait| wait.saturating_sub(at.elapsed())), ..expected }
    }

    /// The grant or the refusal, if the turn has come.
    pub fn take(&mut self) -> Option<Result<Grant, Refusal>> {
        let mut state = self.inner.lock();
        let outcome = state.waiting.get(&self.id)?.outcome?;
        state.waiting.remove(&self.id);
        drop(state);
        self.taken = true;
        Some(outcome.map(|allowed| Grant::new(self.inner.clone(), self.id, allowed)).map_err(|denied| refusal(&denied)))
    }

    /// Waits for the turn, at most `within`.
    pub fn wait(&mut self, within: Duration) -> Option<Result<Grant, Refusal>> {
        let timeout = within.try_into().ok();
        // An interrupted wait is as good as one that ended.
        let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], timeout.as_ref());
        self.take()
    }
}

impl AsFd for Ticket {
    /// Readable when the turn has come: for those who have a connection to watch at the same time.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut state = self.inner.lock();
        let now = self.inner.now();
        match state.waiting.remove(&self.id) {
            Some(Waiting { outcome: Some(Ok(_)), .. }) => state.gate.end(self.id, now),
            _ => state.gate.leave(self.id),
        }
        state.admit(now);
    }
}

impl Grant {
    fn new(inner: Arc<Inner>, id: u64, allowed: Allowed) -> Self {
        let place = Arc::new(Place { inner, id });
        let throttle = Arc::new(Throttle::new(allowed.rate, Some(place.clone())));
        Grant { place, allowed, throttle }
    }

    /// Holds it to a rate that it shares with other sessions.
    pub(super) fn sharing(mut self, rate: BitRate, shared: Arc<Throttle>) -> Self {
        self.allowed.rate = Some(self.allowed.rate.map_or(rate, |granted| granted.min(rate)));
        let throttle = Throttle::new(self.allowed.rate, Some(self.place.clone()));
        self.throttle = Arc::new(throttle.sharing(Some(shared)));
        self
    }

    /// What it is allowed.
    pub fn allowed(&self) -> Allowed {
        self.allowed
    }

    /// What every loop that moves its payload passes.
    pub fn throttle(&self) -> Arc<Throttle> {
        self.throttle.clone()
    }

    /// Counts payload moved by somebody who does not pass the throttle; a refusal is the end of the session.
    pub fn used(&self, bytes: Bytes) -> Result<(), Refusal> {
        let stopped = std::sync::atomic::AtomicBool::new(true);
        let _ = self.throttle.pass(bytes.0, &stopped);
        self.check()
    }

    /// Counts the time until now, and what was moved in it. To be called now and then while the session runs; a refusal
    /// is the end of it.
    pub fn check(&self) -> Result<(), Refusal> {
        let Place { inner, id } = self.place.as_ref();
        let mut state = inner.lock();
        state.gate.moved(*id, self.throttle.moved());
        state.gate.spend(*id, inner.now()).map_err(|denied| refusal(&denied))?;
        drop(state);
        if self.throttle.is_spent() {
            return Err(self.spent());
        }
        Ok(())
    }

    /// Whose quota of bytes it was that ended the session, and which flag of the server sets it.
    fn spent(&self) -> Refusal {
        let Place { inner, id } = self.place.as_ref();
        let now = inner.now();
        match inner.lock().gate.out_of_bytes(*id, now) {
            Some(denied) => Refusal::new(RefusalCode::Quota, format!("{Spent}: {denied}")).hint(denied.hint()),
            // Others have given some back meanwhile.
            None => Spent.refusal(),
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let unmoved = self.throttle.unmoved();
        let Place { inner, id } = self.place.as_ref();
        let mut state = inner.lock();
        let now = inner.now();
        state.gate.give_back(*id, unmoved);
        state.gate.end(*id, now);
        state.admit(now);
    }
}

impl Lender for Place {
    fn lend(&self, wanted: Bytes) -> Bytes {
        self.inner.lock().gate.take(self.id, wanted, self.inner.now())
    }

    fn is_limited(&self) -> bool {
        self.inner.lock().gate.counts_bytes()
    }

    fn affords(&self, all: Bytes, asked: Bytes) -> Result<(), Denied> {
        self.inner.lock().gate.affords(self.id, all, asked, self.inner.now())
    }
}

impl Inner {
    fn now(&self) -> time::Instant {
        time::Instant::ZERO + self.origin.elapsed()
    }

    /// No thread panics while it holds the lock, and the state is whole after every statement.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Wakes everybody whose turn it is.
    fn admit(&mut self, now: time::Instant) {
        self.expected = None;
        let turns = self.gate.admit(now);
        self.tell(turns);
    }

    fn tell(&mut self, turns: Vec<Turn>) {
        for turn in turns {
            if let Some(waiting) = self.waiting.get_mut(&turn.id) {
                waiting.outcome = Some(turn.outcome);
                // A counter of one cannot overflow.
                let _ = rustix::io::write(&*waiting.event, &1_u64.to_ne_bytes());
            }
        }
    }
}

/// What is sent to who is not let in.
fn refusal(denied: &Denied) -> Refusal {
    let code = match denied {
        Denied::QueueFull { .. } => RefusalCode::Full,
        Denied::Stopping => RefusalCode::Stopped,
        Denied::Bytes { .. } | Denied::Seconds { .. } => RefusalCode::Quota,
        Denied::Streams { .. } | Denied::Time { .. } => RefusalCode::Limit,
    };
    Refusal::new(code, denied.to_string()).hint(denied.hint())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn one_place() -> Admission {
        let all = Share { sessions: 1, ..Quotas::default().all };
        Admission::new(Quotas { all, ..Quotas::default() })
    }

    fn enter(admission: &Admission) -> Entry {
        let ask = Ask { streams: 1, time: Some(Duration::from_secs(10)), ..Ask::default() };
        admission.enter(Ipv4Addr::LOCALHOST.into(), ask)
    }

    fn queued(entry: Entry) -> Ticket {
        match entry {
            Entry::Queued(ticket) => ticket,
            other => panic!("not queued: {other:?}"),
        }
    }

    #[test]
    fn a_place_given_back_wakes_the_next_and_one_who_leaves_is_passed_by() {
        let admission = one_place();
        let Entry::Granted(first) = enter(&admission) else { panic!("the first goes in") };
        let (gone, mut next) = (queued(enter(&admission)), queued(enter(&admission)));
        assert_eq!((admission.running(), admission.waiting()), (1, 2));
        assert_eq!(next.expected().ahead, 1);
        drop(gone);
        assert_eq!(next.expected().ahead, 0);
        assert!(next.wait(Duration::ZERO).is_none());
        let other = thread::spawn(move || next.wait(PATIENCE));
        drop(first);
        let second = other.join().unwrap().expect("woken").expect("granted");
        assert_eq!((admission.running(), admission.waiting()), (1, 0));
        drop(second);
        assert_eq!(admission.running(), 0);
    }

    #[test]
    fn what_is_leased_is_not_taken_for_moved() {
        let admission = one_place();
        let ask = Ask { streams: 1, bytes: Some(Bytes(20 << 20)), ..Ask::default() };
        let Entry::Granted(first) = admission.enter(Ipv4Addr::LOCALHOST.into(), ask) else { panic!("it goes in") };
        // Most of it is leased with the first byte.
        first.used(Bytes(1)).unwrap();
        thread::sleep(Duration::from_millis(1));
        first.check().unwrap();
        let waits = queued(enter(&admission)).expected();
        assert!(waits.wait.is_none_or(|wait| wait > Duration::from_secs(10)), "{waits:?}");
    }

    #[test]
    fn a_turn_that_nobody_took_goes_to_the_next() {
        let admission = one_place();
        let Entry::Granted(first) = enter(&admission) else { panic!("the first goes in") };
        let (gone, mut next) = (queued(enter(&admission)), queued(enter(&admission)));
        drop(first);
        drop(gone);
        assert!(next.wait(PATIENCE).expect("woken").is_ok());
    }

    #[test]
    fn who_waits_when_the_server_stops_is_told() {
        let admission = one_place();
        let _inside = enter(&admission);
        let mut waits = queued(enter(&admission));
        admission.stop();
        let refused = waits.wait(PATIENCE).expect("woken").unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (RefusalCode::Stopped, "the server is stopping"));
        assert!(matches!(enter(&admission), Entry::Refused(_)));
    }

    #[test]
    fn bytes_not_moved_are_given_back() {
        let client = Share { bytes: Some(Bytes(1000)), ..Quotas::default().client };
        let admission = Admission::new(Quotas { client, ..Quotas::default() });
        let Entry::Granted(first) = enter(&admission) else { panic!("the first goes in") };
        first.used(Bytes(300)).unwrap();
        drop(first);
        let Entry::Granted(second) = enter(&admission) else { panic!("700 are left") };
        assert_eq!(second.allowed().bytes, Some(Bytes(700)));
        second.used(Bytes(700)).unwrap();
        assert_eq!(second.used(Bytes(1)).unwrap_err().code, RefusalCode::Quota);
        drop(second);
        let Entry::Refused(refusal) = enter(&admission) else { panic!("nothing is left") };
        assert!(refusal.message.contains("0 B of the 1 kB"), "{}", refusal.message);
        assert!(refusal.hint.is_some_and(|hint| hint.starts_with("try again in ")));
    }
}
