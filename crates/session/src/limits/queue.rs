//! Running and waiting sessions of a server: first in, first out.
//!
//! A session starts if no session waits before it and its resources are free. A client at its own limit does not block
//! others: its sessions are skipped until it has room. A session that waits for a limit of all clients blocks the
//! sessions behind it, so that small sessions do not starve a large one.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use super::denial::{Denial, QuotaResource, nanos};
use super::quotas::Quotas;
use super::resources::{Client, LimitScope, ResourceGrant, ResourceRequest, ScopedLimits, ServerLimits};

/// Maximum concurrent sessions that no limit counts: each has threads and a list in memory.
const MAX_UNCOUNTED: usize = 64;

/// Maximum of a requested rate, so that the sum of a million sessions does not overflow.
const MAX_RATE: BitRate = BitRate(1 << 44);

/// Sessions of a server, and the resources that they use.
#[derive(Clone, Debug)]
pub struct SessionQueue {
    limits: ServerLimits,
    quotas: Quotas,
    running: BTreeMap<u64, RunningSession>,
    /// Waiting sessions in order of arrival.
    waiting: BTreeMap<u64, WaitingSession>,
    /// Smoothed duration of the finished sessions.
    mean_time: Option<Duration>,
    next_id: u64,
    is_stopping: bool,
}

#[derive(Clone, Copy, Debug)]
struct WaitingSession {
    client: Client,
    request: ResourceRequest,
    /// Scope of the limit that it waits for, as of the last admission.
    limited_by: LimitScope,
}

#[derive(Clone, Copy, Debug)]
struct RunningSession {
    client: Client,
    request: ResourceRequest,
    grant: ResourceGrant,
    started_at: Instant,
    /// Time until which the session's time is charged to the quotas.
    charged_until: Instant,
    /// Bytes that were taken from the quotas.
    taken: Bytes,
}

/// Decision about a session that waited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueDecision {
    pub id: u64,
    /// The session starts, or it need not wait any longer.
    pub outcome: Result<ResourceGrant, Denial>,
}

/// Position of a waiting session, and an estimate of its wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueuePosition {
    /// Sessions that wait before it for the same limit.
    pub ahead: u32,
    /// Estimate of the remaining wait: the remaining time of the running sessions and of the sessions ahead, divided by
    /// the number of running sessions. A session that declared no time, or exceeds it, counts with the mean of the
    /// finished sessions. Absent before the first one has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_wait_seconds: Option<Figure>,
    /// The session waits for its own client's limit, not for the limit of all clients.
    #[serde(default)]
    pub own_limit: bool,
}

impl QueuePosition {
    /// Returns why the session waits.
    pub fn reason(&self) -> &'static str {
        let scope = if self.own_limit { LimitScope::Client } else { LimitScope::Total };
        scope.full_message()
    }

    /// Returns the estimated wait, if it is known and possible.
    pub fn expected_wait(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.expected_wait_seconds?.get()).ok()
    }
}

impl SessionQueue {
    /// Creates a queue without sessions.
    pub fn new(limits: ServerLimits) -> Self {
        SessionQueue {
            limits,
            quotas: Quotas::new(limits),
            running: BTreeMap::new(),
            waiting: BTreeMap::new(),
            mean_time: None,
            next_id: 0,
            is_stopping: false,
        }
    }

    /// Returns the count of running sessions.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the count of waiting sessions.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the grant of a running session; `None` if it waits.
    pub fn grant(&self, id: u64) -> Option<ResourceGrant> {
        self.running.get(&id).map(|session| session.grant)
    }

    /// Starts a session and returns its id, or lets it wait if there is no room now.
    pub fn request(&mut self, client: Client, request: ResourceRequest, now: Instant) -> Result<u64, Denial> {
        // The rate comes from a peer and will be summed.
        let request = ResourceRequest { rate: request.rate.map(|rate| rate.clamp(BitRate(1), MAX_RATE)), ..request };
        self.check_possible(&request)?;
        self.quotas.check(QuotaResource::Bytes, client, request.bytes.map(|bytes| bytes.0), now)?;
        self.quotas.check(QuotaResource::Time, client, request.time.map(nanos), now)?;
        let id = self.next_id;
        self.next_id += 1;
        let session = WaitingSession { client, request, limited_by: LimitScope::Total };
        if request.uncounted {
            return self.start(id, session, None, now).map(|_| id);
        }
        self.waiting.insert(id, session);
        // Sessions that waited already have no more room than before.
        for decision in self.admit(now) {
            decision.outcome?;
        }
        if let Some(denial) = self.queue_denial(id, now) {
            self.waiting.remove(&id);
            return Err(denial);
        }
        Ok(id)
    }

    /// Removes a session that ended, or that leaves the queue. Returns the decisions about the waiting sessions.
    pub fn end(&mut self, id: u64, now: Instant) -> Vec<QueueDecision> {
        // An exhausted quota of time no longer matters.
        let _ = self.charge_time(id, now);
        self.waiting.remove(&id);
        if let Some(session) = self.running.remove(&id).filter(|session| !session.request.uncounted) {
            let time = now.saturating_since(session.started_at);
            // The mean is smoothed as the RTT of RFC 6298: the last sessions count most.
            self.mean_time = Some(self.mean_time.map_or(time, |mean| mean - mean / 8 + time / 8));
        }
        self.admit(now)
    }

    /// Stops admission. Returns a decision for each waiting session.
    pub fn stop(&mut self) -> Vec<QueueDecision> {
        self.is_stopping = true;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_keys().map(|id| QueueDecision { id, outcome: Err(Denial::Stopping) }).collect()
    }

    /// Returns the position and the estimated wait of a waiting session.
    pub fn position(&self, id: u64, now: Instant) -> Option<QueuePosition> {
        let WaitingSession { client, limited_by, .. } = *self.waiting.get(&id)?;
        let own_limit = limited_by == LimitScope::Client;
        let whose = own_limit.then_some(client);
        let left = |session: &RunningSession| {
            let left = (session.started_at + session.request.expected_time()?).saturating_since(now);
            (!left.is_zero()).then_some(left)
        };
        let mut times: Vec<Option<Duration>> = self.running_of(whose).map(left).collect();
        let running = times.len();
        times.extend(
            self.waiting_of(whose).take_while(|(other, _)| **other < id).map(|(_, s)| s.request.expected_time()),
        );
        let sum = |sum: Duration, time: &Option<Duration>| Some(sum.saturating_add(time.or(self.mean_time)?));
        let wait = times.iter().try_fold(Duration::ZERO, sum);
        let parallel = u32::try_from(running.max(1)).unwrap_or(u32::MAX);
        Some(QueuePosition {
            ahead: u32::try_from(times.len() - running).unwrap_or(u32::MAX),
            expected_wait_seconds: wait.map(|wait| (wait / parallel).into()),
            own_limit,
        })
    }

    /// Takes up to `wanted` bytes from the quotas of the session's client and of all clients. Returns less than
    /// `wanted`, or finally zero, when a quota is exhausted.
    pub fn take(&mut self, id: u64, wanted: Bytes, now: Instant) -> Bytes {
        let Some(session) = self.running.get_mut(&id) else { return Bytes(0) };
        let quota = self.quotas.smallest(QuotaResource::Bytes, session.client, now);
        let bytes = wanted.min(quota.map_or(wanted, |quota| Bytes(quota.left)));
        session.taken.0 = session.taken.0.saturating_add(bytes.0);
        self.quotas.charge(QuotaResource::Bytes, session.client, bytes.0, now);
        bytes
    }

    /// Returns bytes to the quotas that were taken but not moved.
    pub fn refund(&mut self, id: u64, bytes: Bytes) {
        let Some(session) = self.running.get_mut(&id) else { return };
        let bytes = bytes.min(session.taken);
        session.taken.0 -= bytes.0;
        self.quotas.refund(QuotaResource::Bytes, session.client, bytes.0);
    }

    /// Reports whether a quota of bytes exists.
    pub fn counts_bytes(&self) -> bool {
        self.limits.total.bytes.or(self.limits.client.bytes).is_some()
    }

    /// Checks that a session may move `all` bytes in total, `requested` of which are a new request. Takes nothing: other
    /// sessions may use the same bytes.
    pub fn affords(&self, id: u64, all: Bytes, requested: Bytes, now: Instant) -> Result<(), Denial> {
        let Some(&RunningSession { client, taken, .. }) = self.running.get(&id) else { return Ok(()) };
        let Some(mut quota) = self.quotas.smallest(QuotaResource::Bytes, client, now) else { return Ok(()) };
        let earlier = Bytes(all.0.saturating_sub(requested.0));
        quota.left = taken.0.saturating_add(quota.left).saturating_sub(earlier.0);
        quota.check(Some(requested.0), now).map(drop)
    }

    /// Returns the denial of a session whose quota of bytes is exhausted, if any.
    pub fn out_of_bytes(&self, id: u64, now: Instant) -> Option<Denial> {
        let client = self.running.get(&id)?.client;
        self.quotas.check(QuotaResource::Bytes, client, None, now).err()
    }

    /// Charges the session's time until `now`. An error means that the quota of time is exhausted and the session must
    /// end.
    pub fn charge_time(&mut self, id: u64, now: Instant) -> Result<(), Denial> {
        let Some(session) = self.running.get_mut(&id).filter(|session| !session.request.uncounted) else {
            return Ok(());
        };
        let (client, time) = (session.client, now.saturating_since(session.charged_until));
        session.charged_until = now;
        self.quotas.charge(QuotaResource::Time, client, nanos(time), now);
        self.quotas.check(QuotaResource::Time, client, None, now).map(drop)
    }

    /// Rejects requests that can never be met.
    fn check_possible(&self, request: &ResourceRequest) -> Result<(), Denial> {
        if self.is_stopping {
            return Err(Denial::Stopping);
        }
        let ServerLimits { total, client, session_streams, test_time, .. } = &self.limits;
        let max = total.streams.min(client.streams).min(u32::from(*session_streams));
        if u32::from(request.streams) > max {
            return Err(Denial::Streams { requested: request.streams, max });
        }
        let uncounted = || self.running.values().filter(|session| session.request.uncounted).count();
        // If these sessions waited for counted sessions, they would wait for the session that they support.
        if request.uncounted && uncounted() >= MAX_UNCOUNTED {
            let (limited_by, scope) = (LimitScope::Total, LimitScope::Total);
            return Err(Denial::QueueFull { limited_by, scope, waiting: 0, wait: None });
        }
        match request.time {
            Some(requested) if requested > *test_time => Err(Denial::Time { requested, max: *test_time }),
            _ => Ok(()),
        }
    }

    /// Returns the denial of the last waiting session, if the queue was full before it.
    fn queue_denial(&self, id: u64, now: Instant) -> Option<Denial> {
        let WaitingSession { client, limited_by, .. } = *self.waiting.get(&id)?;
        self.limits.scopes(client).into_iter().find_map(|ScopedLimits { scope, whose, limits }| {
            let waiting = self.waiting_of(whose).count() - 1;
            let wait = || self.position(id, now).and_then(|position| position.expected_wait());
            (waiting >= limits.queue as usize).then(|| Denial::QueueFull { limited_by, scope, waiting, wait: wait() })
        })
    }

    /// Starts the waiting sessions that have room now. Notes for the others which limit they wait for.
    fn admit(&mut self, now: Instant) -> Vec<QueueDecision> {
        let (mut decisions, mut blocked, mut is_full) = (Vec::new(), HashSet::new(), false);
        for (id, mut session) in self.waiting.clone() {
            let client = session.client;
            session.limited_by = match self.free_rate(client, &session.request) {
                Err(scope) => scope,
                Ok(_) if is_full => LimitScope::Total,
                Ok(_) if blocked.contains(&client) => LimitScope::Client,
                Ok(rate) => {
                    self.waiting.remove(&id);
                    decisions.push(QueueDecision { id, outcome: self.start(id, session, rate, now) });
                    continue;
                }
            };
            is_full |= session.limited_by == LimitScope::Total;
            blocked.insert(client);
            self.waiting.insert(id, session);
        }
        decisions
    }

    fn start(
        &mut self,
        id: u64,
        WaitingSession { client, request, .. }: WaitingSession,
        rate: Option<BitRate>,
        now: Instant,
    ) -> Result<ResourceGrant, Denial> {
        let mut grant = ResourceGrant { streams: request.streams, rate, ..ResourceGrant::default() };
        if !request.uncounted {
            grant.bytes = self.quotas.check(QuotaResource::Bytes, client, None, now)?.map(Bytes);
            let max = (!request.unbounded).then_some(self.limits.test_time);
            let left = self.quotas.check(QuotaResource::Time, client, None, now)?.map(Duration::from_nanos);
            grant.time = [left, request.time, max].into_iter().flatten().min();
        }
        let session = RunningSession { client, request, grant, started_at: now, charged_until: now, taken: Bytes(0) };
        self.running.insert(id, session);
        Ok(grant)
    }

    /// Returns the rate of a session that has room now (`None` is unlimited), or the scope of the limit in its way.
    fn free_rate(&self, client: Client, request: &ResourceRequest) -> Result<Option<BitRate>, LimitScope> {
        let mut rate = request.rate;
        for ScopedLimits { scope, whose, limits } in self.limits.scopes(client) {
            let (mut sessions, mut streams, mut used_rate) = (0, u32::from(request.streams), BitRate(0));
            for RunningSession { grant, .. } in self.running_of(whose) {
                sessions += 1;
                streams += u32::from(grant.streams);
                used_rate.0 = used_rate.0.saturating_add(grant.rate.unwrap_or_default().0);
            }
            if sessions >= limits.sessions || streams > limits.streams {
                return Err(scope);
            }
            if let Some(total) = limits.rate {
                let even = (total.0 / u64::from(limits.sessions)).max(1);
                let free = total.0.saturating_sub(used_rate.0);
                let takers = (self.waiting_of(whose).count() as u64).clamp(1, u64::from(limits.sessions - sessions));
                rate = Some(share_of_rate(even, free, takers, rate).ok_or(scope)?);
            }
        }
        let clients: HashSet<Client> = self.running_of(None).map(|session| session.client).collect();
        if clients.len() >= self.limits.clients as usize && !clients.contains(&client) {
            return Err(LimitScope::Total);
        }
        Ok(rate)
    }

    /// Returns the running sessions that count, of one client or of all clients.
    fn running_of(&self, whose: Option<Client>) -> impl Iterator<Item = &RunningSession> {
        let counts = move |session: &&RunningSession| whose.is_none_or(|whose| whose == session.client);
        self.running.values().filter(|session| !session.request.uncounted).filter(counts)
    }

    /// Returns the waiting sessions of one client or of all clients, in order of arrival.
    fn waiting_of(&self, whose: Option<Client>) -> impl Iterator<Item = (&u64, &WaitingSession)> {
        self.waiting.iter().filter(move |(_, session)| whose.is_none_or(|whose| whose == session.client))
    }
}

/// Returns the rate of one more session, or `None` if it must wait. The free rate is divided evenly among the takers. A
/// session waits if it would get less than an even part of the total rate.
fn share_of_rate(even: u64, free: u64, takers: u64, requested: Option<BitRate>) -> Option<BitRate> {
    let dealt = (free / takers).max(even).min(free);
    let share = requested.map_or(dealt, |requested| requested.0.min(dealt));
    let least = requested.map_or(even, |requested| requested.0.min(even)).max(1);
    (share >= least).then_some(BitRate(share))
}
