//! Queue and quotas of a server.
//!
//! The order is round robin between clients, and first come, first served within a client. A client whose first session
//! waits for its own quota is skipped. A session that waits for a quota of all clients blocks the sessions behind it,
//! so that small sessions do not starve a large session.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::usage::WindowUsage;
use super::{Client, Denial, QuotaLimits, QuotaScope, Quotas, SessionDemand, SessionGrant};
use crate::time::Instant;
use crate::units::{BitRate, Bytes};

/// Maximum clients whose usage is remembered. Beyond it, the client that was idle longest is forgotten.
const MAX_ACCOUNTS: usize = 65_536;

/// Maximum concurrent sessions without quota: each has threads and a list in memory.
const MAX_UNCOUNTED: usize = 64;

/// Upper bound of a requested rate, so that the sum of a million sessions does not overflow.
const MAX_RATE: BitRate = BitRate(1 << 44);

/// Admission control: quotas, running sessions and waiting sessions.
#[derive(Clone, Debug)]
pub struct AdmissionGate {
    pub(super) quotas: Quotas,
    pub(super) accounts: HashMap<Client, Account>,
    pub(super) all: Account,
    pub(super) running: BTreeMap<u64, Running>,
    /// Clients with waiting sessions, in the order of their turns.
    pub(super) order: VecDeque<Client>,
    /// Count of clients with a running session.
    pub(super) clients: u32,
    next: u64,
    stopping: bool,
}

/// Usage of one client, or of all clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) sessions: u32,
    pub(super) streams: u32,
    pub(super) rate: BitRate,
    pub(super) waiting: VecDeque<QueuedSession>,
    pub(super) usage: WindowUsage,
    pub(super) last_seen: Instant,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedSession {
    pub(super) id: u64,
    pub(super) demand: SessionDemand,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) client: Client,
    pub(super) demand: SessionDemand,
    pub(super) allowed: SessionGrant,
    pub(super) since: Instant,
    /// Bytes that were taken from the quotas.
    taken: Bytes,
    /// Bytes that were moved.
    pub(super) moved: Bytes,
    charged: Instant,
}

/// Decision about a waiting session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionDecision {
    pub id: u64,
    /// The session is admitted, or it need not wait any longer.
    pub outcome: Result<SessionGrant, Denial>,
}

/// Result of checking the first waiting session of a client.
enum Admission {
    Now(SessionGrant),
    Never(Denial),
    /// The client's own quota is full.
    OwnQuota,
    /// A quota of all clients is full.
    SharedQuota,
}

impl AdmissionGate {
    /// Creates an empty gate with these quotas.
    pub fn new(quotas: Quotas) -> Self {
        AdmissionGate {
            quotas,
            accounts: HashMap::new(),
            all: Account::default(),
            running: BTreeMap::new(),
            order: VecDeque::new(),
            clients: 0,
            next: 0,
            stopping: false,
        }
    }

    /// Returns the count of running sessions.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the count of waiting sessions.
    pub fn waiting(&self) -> usize {
        self.order.iter().filter_map(|client| self.accounts.get(client)).map(|account| account.waiting.len()).sum()
    }

    /// Adds a session to the queue. Call [`AdmissionGate::admit`] afterwards to learn whether it is admitted at once.
    pub fn enqueue(&mut self, client: Client, demand: SessionDemand, now: Instant) -> Result<u64, Denial> {
        // The demand comes from a peer and will be summed.
        let demand = SessionDemand { rate: demand.rate.map(|rate| rate.clamp(BitRate(1), MAX_RATE)), ..demand };
        self.check_possible(&demand)?;
        self.limit_accounts();
        let window = self.quotas.window;
        self.all.usage.expire(window, now);
        let account = self.accounts.entry(client).or_default();
        account.last_seen = now;
        account.usage.expire(window, now);
        self.check_quotas(client, &demand, now)?;
        self.check_queue_space(client, &demand, now)?;
        let id = self.next;
        self.next += 1;
        let account = self.accounts.entry(client).or_default();
        if account.waiting.is_empty() {
            self.order.push_back(client);
        }
        account.waiting.push_back(QueuedSession { id, demand });
        Ok(id)
    }

    /// Returns all sessions that are admitted or rejected now. Call this after each
    /// [`AdmissionGate::enqueue`], [`AdmissionGate::leave`] and [`AdmissionGate::end`].
    pub fn admit(&mut self, now: Instant) -> Vec<AdmissionDecision> {
        let mut turns = Vec::new();
        let mut at = 0;
        while let Some(&client) = self.order.get(at) {
            let Some(first) = self.accounts.get(&client).and_then(|account| account.waiting.front().copied()) else {
                self.order.remove(at);
                continue;
            };
            let outcome = match self.check_admission(client, &first.demand, now) {
                Admission::OwnQuota => {
                    at += 1;
                    continue;
                }
                Admission::SharedQuota => break,
                Admission::Never(denied) => Err(denied),
                Admission::Now(allowed) => Ok(allowed),
            };
            self.leave_queue(client, first.id);
            // The client's next turn is after all other clients.
            if let Some(moved) = self.order.iter().position(|other| *other == client) {
                self.order.remove(moved);
                self.order.push_back(client);
            }
            if let Ok(allowed) = outcome {
                self.start(first, client, allowed, now);
            }
            turns.push(AdmissionDecision { id: first.id, outcome });
        }
        turns
    }

    /// Removes a waiting session because its client disconnected.
    pub fn leave(&mut self, id: u64) {
        let waits = |client: &&Client| {
            self.accounts.get(client).is_some_and(|account| account.waiting.iter().any(|waiting| waiting.id == id))
        };
        let client = self.order.iter().find(waits).copied();
        if let Some(client) = client {
            self.leave_queue(client, id);
        }
    }

    /// Takes up to `wanted` bytes from the quotas of the session's client and of all clients. Returns less than
    /// `wanted`, or finally zero, when a quota is exhausted.
    pub fn take(&mut self, id: u64, wanted: Bytes, now: Instant) -> Bytes {
        let Some(&Running { client, .. }) = self.running.get(&id) else { return Bytes(0) };
        let window = self.quotas.window;
        let bytes = wanted.min(self.bytes_left(client, now).map_or(wanted, |(_, left)| left));
        for account in [Some(&mut self.all), self.accounts.get_mut(&client)].into_iter().flatten() {
            account.usage.add(bytes, Duration::ZERO, window, now);
        }
        if let Some(running) = self.running.get_mut(&id) {
            running.taken.0 = running.taken.0.saturating_add(bytes.0);
        }
        bytes
    }

    /// Records the bytes that the session has moved so far, to estimate its remaining time. Bytes are taken in large
    /// parts and before they are moved.
    pub fn moved(&mut self, id: u64, bytes: Bytes) {
        if let Some(running) = self.running.get_mut(&id) {
            running.moved = bytes;
        }
    }

    /// Reports whether a quota of bytes exists.
    pub fn counts_bytes(&self) -> bool {
        self.quotas.all.bytes.or(self.quotas.client.bytes).is_some()
    }

    /// Checks that a session may move `all` bytes in total, `requested` of which are a new request. Takes nothing: other
    /// sessions may use the same bytes.
    pub fn affords(&self, id: u64, all: Bytes, requested: Bytes, now: Instant) -> Result<(), Denial> {
        let Some(&Running { client, taken, .. }) = self.running.get(&id) else { return Ok(()) };
        let Some((scope, left)) = self.bytes_left(client, now) else { return Ok(()) };
        let allowance = taken.0.saturating_add(left.0);
        if all.0 <= allowance {
            return Ok(());
        }
        let already_taken = all.0.saturating_sub(requested.0);
        Err(self.bytes_denial(scope, client, Some(requested), Bytes(allowance.saturating_sub(already_taken)), now))
    }

    /// Returns which quota of bytes is exhausted for a session, if any.
    pub fn out_of_bytes(&self, id: u64, now: Instant) -> Option<Denial> {
        let client = self.running.get(&id)?.client;
        self.bytes_for(client, None, now).err()
    }

    /// Returns bytes to the quotas that were taken but not moved.
    pub fn refund(&mut self, id: u64, bytes: Bytes) {
        let Some(running) = self.running.get_mut(&id) else { return };
        let bytes = bytes.min(running.taken);
        running.taken.0 -= bytes.0;
        for account in [Some(&mut self.all), self.accounts.get_mut(&running.client)].into_iter().flatten() {
            account.usage.refund(bytes);
        }
    }

    /// Charges the session's time until `now`. An error means that the quota of time is exhausted and the session must
    /// end.
    pub fn spend(&mut self, id: u64, now: Instant) -> Result<(), Denial> {
        let Some(running) = self.running.get_mut(&id).filter(|running| !running.demand.uncounted) else {
            return Ok(());
        };
        let (client, time) = (running.client, now.saturating_since(running.charged));
        running.charged = now;
        let window = self.quotas.window;
        for account in [Some(&mut self.all), self.accounts.get_mut(&client)].into_iter().flatten() {
            account.usage.add(Bytes(0), time, window, now);
        }
        self.seconds_for(client, None, now).map(drop)
    }

    /// Ends a running session.
    pub fn end(&mut self, id: u64, now: Instant) {
        // An exhausted quota of time no longer matters.
        let _ = self.spend(id, now);
        let Some(running) = self.running.remove(&id).filter(|running| !running.demand.uncounted) else { return };
        for account in [Some(&mut self.all), self.accounts.get_mut(&running.client)].into_iter().flatten() {
            account.sessions -= 1;
            account.streams -= u32::from(running.allowed.streams);
            account.rate.0 = account.rate.0.saturating_sub(running.allowed.rate.unwrap_or_default().0);
            account.last_seen = now;
        }
        let left = self.accounts.get(&running.client).is_some_and(|own| own.sessions == 0);
        self.clients -= u32::from(left);
    }

    /// Stops admission. Returns a decision for each waiting session.
    pub fn stop(&mut self) -> Vec<AdmissionDecision> {
        self.stopping = true;
        self.order.clear();
        let waiting = self.accounts.values_mut().flat_map(|account| account.waiting.drain(..));
        waiting.map(|waiting| AdmissionDecision { id: waiting.id, outcome: Err(Denial::Stopping) }).collect()
    }

    /// Rejects demands that can never be met.
    fn check_possible(&self, demand: &SessionDemand) -> Result<(), Denial> {
        if self.stopping {
            return Err(Denial::Stopping);
        }
        let Quotas { all, client, session_streams, session_time, .. } = &self.quotas;
        let most = all.streams.min(client.streams).min(u32::from(*session_streams));
        if u32::from(demand.streams) > most {
            return Err(Denial::Streams { requested: demand.streams, max: most });
        }
        // If these sessions waited for counted sessions, they would wait for the session that they support.
        if demand.uncounted && self.running.values().filter(|running| running.demand.uncounted).count() >= MAX_UNCOUNTED
        {
            return Err(Denial::QueueFull {
                limited_by: QuotaScope::All,
                scope: QuotaScope::All,
                waiting: 0,
                wait: None,
            });
        }
        match demand.time {
            Some(requested) if requested > *session_time => Err(Denial::Time { requested, max: *session_time }),
            _ => Ok(()),
        }
    }

    /// Checks that the declared bytes and time are left in the quotas.
    fn check_quotas(&self, client: Client, demand: &SessionDemand, now: Instant) -> Result<(), Denial> {
        self.bytes_for(client, demand.bytes, now)?;
        self.seconds_for(client, demand.time, now).map(drop)
    }

    fn check_queue_space(&self, client: Client, demand: &SessionDemand, now: Instant) -> Result<(), Denial> {
        let own = self.accounts.get(&client).map_or(0, |account| account.waiting.len()) as u32;
        let all = self.waiting() as u32;
        let (scope, waiting) = match () {
            () if own > 0 && own >= self.quotas.client_queue => (QuotaScope::Client, own),
            () if all > 0 && all >= self.quotas.queue => (QuotaScope::All, all),
            // With a queue length of 0, a session that is not admitted at once is rejected.
            () if self.must_wait(client, demand, now) && self.quotas.client_queue == 0 => (QuotaScope::Client, own),
            () if self.must_wait(client, demand, now) && self.quotas.queue == 0 => (QuotaScope::All, all),
            () => return Ok(()),
        };
        let wait = self.expected(now).values().map(|expected| expected.wait).max().flatten();
        Err(Denial::QueueFull { limited_by: self.limiting_scope(client, demand, now), scope, waiting, wait })
    }

    /// Reports whether a session at the head of the queue would have to wait.
    fn must_wait(&self, client: Client, demand: &SessionDemand, now: Instant) -> bool {
        matches!(self.check_admission(client, demand, now), Admission::OwnQuota | Admission::SharedQuota)
    }

    /// Returns the scope of the quota that makes a session wait.
    pub(super) fn limiting_scope(&self, client: Client, demand: &SessionDemand, now: Instant) -> QuotaScope {
        if matches!(self.check_admission(client, demand, now), Admission::OwnQuota) {
            QuotaScope::Client
        } else {
            QuotaScope::All
        }
    }

    fn check_admission(&self, client: Client, demand: &SessionDemand, now: Instant) -> Admission {
        if demand.uncounted {
            return Admission::Now(SessionGrant { streams: demand.streams, ..SessionGrant::default() });
        }
        let own = self.accounts.get(&client);
        let (sessions, streams) = own.map_or((0, 0), |own| (own.sessions, own.streams));
        let requested = u32::from(demand.streams);
        let Quotas { all, client: share, clients, .. } = &self.quotas;
        if sessions >= share.sessions || streams + requested > share.streams {
            return Admission::OwnQuota;
        }
        let waiting = own.map_or(1, |own| own.waiting.len());
        let Some(rate) = fair_rate(share, sessions, own.map_or(BitRate(0), |own| own.rate), waiting, demand.rate)
        else {
            return Admission::OwnQuota;
        };
        let is_excess_client = sessions == 0 && self.clients >= *clients;
        if is_excess_client || self.all.sessions >= all.sessions || self.all.streams + requested > all.streams {
            return Admission::SharedQuota;
        }
        let Some(rate) = fair_rate(all, self.all.sessions, self.all.rate, self.waiting(), rate) else {
            return Admission::SharedQuota;
        };
        match (self.bytes_for(client, None, now), self.seconds_for(client, None, now)) {
            (Err(denied), _) | (_, Err(denied)) => Admission::Never(denied),
            (Ok(bytes), Ok(time)) => Admission::Now(SessionGrant {
                streams: demand.streams,
                rate,
                bytes,
                time: [time, demand.time, (!demand.unbounded).then_some(self.quotas.session_time)]
                    .into_iter()
                    .flatten()
                    .min(),
            }),
        }
    }

    fn start(
        &mut self,
        QueuedSession { id, demand }: QueuedSession,
        client: Client,
        allowed: SessionGrant,
        now: Instant,
    ) {
        if !demand.uncounted {
            let own = self.accounts.entry(client).or_default();
            self.clients += u32::from(own.sessions == 0);
            for account in [&mut self.all, own] {
                account.sessions += 1;
                account.streams += u32::from(allowed.streams);
                account.rate.0 = account.rate.0.saturating_add(allowed.rate.unwrap_or_default().0);
            }
        }
        let running = Running { client, demand, allowed, since: now, taken: Bytes(0), moved: Bytes(0), charged: now };
        self.running.insert(id, running);
    }

    fn leave_queue(&mut self, client: Client, id: u64) {
        let Some(account) = self.accounts.get_mut(&client) else { return };
        account.waiting.retain(|waiting| waiting.id != id);
        if account.waiting.is_empty() {
            self.order.retain(|other| *other != client);
        }
    }

    /// Returns the minimum of the bytes left in all quotas, with its scope; `None` without a quota.
    fn bytes_left(&self, client: Client, now: Instant) -> Option<(QuotaScope, Bytes)> {
        let left = |scope, share: &QuotaLimits, spent: Bytes| {
            share.bytes.map(|limit| (scope, Bytes(limit.0.saturating_sub(spent.0))))
        };
        let (own, all) = (self.client_usage(client, now), self.total_usage(now));
        let both = [
            left(QuotaScope::Client, &self.quotas.client, own.bytes()),
            left(QuotaScope::All, &self.quotas.all, all.bytes()),
        ];
        both.into_iter().flatten().min_by_key(|(_, left)| *left)
    }

    /// Returns the bytes left, if they are not zero and cover the request.
    fn bytes_for(&self, client: Client, requested: Option<Bytes>, now: Instant) -> Result<Option<Bytes>, Denial> {
        let Some((scope, left)) = self.bytes_left(client, now) else { return Ok(None) };
        if left.0 > 0 && requested.is_none_or(|requested| requested <= left) {
            return Ok(Some(left));
        }
        Err(self.bytes_denial(scope, client, requested, left, now))
    }

    fn bytes_denial(
        &self,
        scope: QuotaScope,
        client: Client,
        requested: Option<Bytes>,
        remaining: Bytes,
        now: Instant,
    ) -> Denial {
        let (share, spent) = self.quota(scope, client, now);
        let (limit, window) = (share.bytes.unwrap_or_default(), self.quotas.window);
        let most = Bytes(limit.0.saturating_sub(requested.map_or(1, |requested| requested.0)));
        let retry_after = spent.time_until(most, Duration::MAX, window, now);
        Denial::Bytes { scope, requested, remaining, limit, window, retry_after }
    }

    /// Returns the time left, if it is not zero and covers the request.
    fn seconds_for(
        &self,
        client: Client,
        requested: Option<Duration>,
        now: Instant,
    ) -> Result<Option<Duration>, Denial> {
        let left = |scope| {
            let (share, spent) = self.quota(scope, client, now);
            share.time.map(|limit| (scope, limit, limit.saturating_sub(spent.time())))
        };
        let both = [left(QuotaScope::Client), left(QuotaScope::All)];
        let Some((scope, limit, left)) = both.into_iter().flatten().min_by_key(|(.., left)| *left) else {
            return Ok(None);
        };
        if !left.is_zero() && requested.is_none_or(|requested| requested <= left) {
            return Ok(Some(left));
        }
        let window = self.quotas.window;
        let most = limit.saturating_sub(requested.unwrap_or(Duration::from_secs(1)));
        let retry_after = self.quota(scope, client, now).1.time_until(Bytes(u64::MAX), most, window, now);
        Err(Denial::Seconds { scope, requested, remaining: left, limit, window, retry_after })
    }

    fn quota(&self, scope: QuotaScope, client: Client, now: Instant) -> (QuotaLimits, WindowUsage) {
        match scope {
            QuotaScope::Client => (self.quotas.client, self.client_usage(client, now)),
            QuotaScope::All => (self.quotas.all, self.total_usage(now)),
        }
    }

    fn client_usage(&self, client: Client, now: Instant) -> WindowUsage {
        let mut spent = self.accounts.get(&client).map(|account| account.usage.clone()).unwrap_or_default();
        spent.expire(self.quotas.window, now);
        spent
    }

    fn total_usage(&self, now: Instant) -> WindowUsage {
        let mut spent = self.all.usage.clone();
        spent.expire(self.quotas.window, now);
        spent
    }

    /// Limits the number of remembered clients.
    fn limit_accounts(&mut self) {
        if self.accounts.len() < MAX_ACCOUNTS {
            return;
        }
        let idle = |account: &Account| account.sessions == 0 && account.waiting.is_empty();
        let blank = |account: &Account| idle(account) && account.usage.is_empty();
        let before = self.accounts.len();
        self.accounts.retain(|_, account| !blank(account));
        if self.accounts.len() == before {
            let oldest = self.accounts.iter().filter(|(_, account)| idle(account)).min_by_key(|(_, a)| a.last_seen);
            if let Some(client) = oldest.map(|(client, _)| *client) {
                self.accounts.remove(&client);
            }
        }
    }
}

/// Returns the rate of a new session: the free rate, divided evenly among the waiting sessions, and at most the
/// `requested` rate. Returns `None` if the result would be below an even part of the total rate; the session then waits.
fn fair_rate(
    share: &QuotaLimits,
    sessions: u32,
    taken: BitRate,
    waiting: usize,
    requested: Option<BitRate>,
) -> Option<Option<BitRate>> {
    let Some(whole) = share.rate else { return Some(requested) };
    let free = whole.0.saturating_sub(taken.0);
    let even = (whole.0 / u64::from(share.sessions.max(1))).max(1);
    let places = u64::from(share.sessions.saturating_sub(sessions)).max(1);
    let dealt = (free / (waiting as u64).clamp(1, places)).max(even).min(free);
    let wanted = requested.map_or(dealt, |requested| requested.0.min(dealt));
    let least = requested.map_or(even, |requested| requested.0.min(even)).max(1);
    (wanted >= least).then_some(Some(BitRate(wanted)))
}
