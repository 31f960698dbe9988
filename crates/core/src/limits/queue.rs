//! Running and waiting sessions of a server: first in, first out.
//!
//! A session starts if no session waits before it and its resources are free. A client at its own limit does not block
//! others: its sessions are skipped until it has room. A session that waits for a limit of all clients blocks the
//! sessions behind it, so that small sessions do not starve a large one.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use super::accounts::Accounts;
use super::denial::{Denial, QuotaResource, nanos};
use super::resources::{Client, LimitScope, ResourceGrant, ResourceRequest, ServerLimits};
use crate::time::Instant;
use crate::units::{BitRate, Bytes};

/// Maximum concurrent sessions that no limit counts: each has threads and a list in memory.
const MAX_UNCOUNTED: usize = 64;

/// Maximum of a requested rate, so that the sum of a million sessions does not overflow.
const MAX_RATE: BitRate = BitRate(1 << 44);

/// Sessions of a server, and the resources that they use.
#[derive(Clone, Debug)]
pub struct SessionQueue {
    limits: ServerLimits,
    accounts: Accounts,
    running: BTreeMap<u64, RunningSession>,
    waiting: VecDeque<WaitingSession>,
    /// Smoothed duration of the finished sessions.
    mean_time: Option<Duration>,
    next_id: u64,
    is_stopping: bool,
}

#[derive(Clone, Copy, Debug)]
struct WaitingSession {
    id: u64,
    client: Client,
    request: ResourceRequest,
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

/// QueueDecision about a waiting session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueDecision {
    pub id: u64,
    /// The session starts, or it need not wait any longer.
    pub outcome: Result<ResourceGrant, Denial>,
}

/// Place of a waiting session, and an estimate of its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueEstimate {
    /// Count of sessions that wait before it for the same limit.
    pub ahead: usize,
    /// Estimate of the remaining wait: the remaining time of the running sessions and of the sessions ahead, divided by
    /// the number of running sessions. A session that declared no time, or exceeds it, counts with the mean of the
    /// finished sessions. `None` before the first one has finished.
    pub wait: Option<Duration>,
    /// Scope of the limit that the session waits for.
    pub limited_by: LimitScope,
}

impl SessionQueue {
    /// Creates a queue without sessions.
    pub fn new(limits: ServerLimits) -> Self {
        SessionQueue {
            limits,
            accounts: Accounts::new(limits),
            running: BTreeMap::new(),
            waiting: VecDeque::new(),
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

    /// Adds a session to the queue. Call [`SessionQueue::admit`] afterwards to learn whether it starts at once.
    pub fn enqueue(&mut self, client: Client, request: ResourceRequest, now: Instant) -> Result<u64, Denial> {
        // The rate comes from a peer and will be summed.
        let request = ResourceRequest { rate: request.rate.map(|rate| rate.clamp(BitRate(1), MAX_RATE)), ..request };
        self.check_possible(&request)?;
        self.accounts.check_quota(QuotaResource::Bytes, client, request.bytes.map(|bytes| bytes.0), now)?;
        self.accounts.check_quota(QuotaResource::Time, client, request.time.map(nanos), now)?;
        if let Some(limited_by) = self.waits_for(self.waiting.len(), client, &request) {
            let own = self.waiting_of(client);
            for (scope, waiting, max) in [
                (LimitScope::Client, own, self.limits.client.queue),
                (LimitScope::Total, self.waiting.len(), self.limits.total.queue),
            ] {
                if waiting >= max as usize {
                    let QueueEstimate { wait, .. } = self.estimate_at(self.waiting.len(), client, limited_by, now);
                    return Err(Denial::QueueFull { limited_by, scope, waiting: waiting as u32, wait });
                }
            }
        }
        let id = self.next_id;
        self.next_id += 1;
        let session = WaitingSession { id, client, request };
        // An uncounted session always has room, and starts at the next admission.
        if request.uncounted {
            self.waiting.push_front(session)
        } else {
            self.waiting.push_back(session)
        }
        Ok(id)
    }

    /// Starts the waiting sessions that have room now, and returns the decisions. Call it after each
    /// [`SessionQueue::enqueue`], [`SessionQueue::leave`] and [`SessionQueue::end`].
    pub fn admit(&mut self, now: Instant) -> Vec<QueueDecision> {
        let (mut decisions, mut skipped, mut at) = (Vec::new(), HashSet::new(), 0);
        while let Some(&session) = self.waiting.get(at) {
            let WaitingSession { id, client, request } = session;
            match self.free_rate(client, &request) {
                Err(LimitScope::Total) => break,
                Ok(rate) if !skipped.contains(&client) => {
                    self.waiting.remove(at);
                    decisions.push(QueueDecision { id, outcome: self.start(session, rate, now) });
                }
                _ => {
                    skipped.insert(client);
                    at += 1;
                }
            }
        }
        decisions
    }

    /// Removes a waiting session because its client disconnected.
    pub fn leave(&mut self, id: u64) {
        self.waiting.retain(|session| session.id != id);
    }

    /// Returns the place and the estimated wait of a waiting session.
    pub fn estimate(&self, id: u64, now: Instant) -> Option<QueueEstimate> {
        let at = self.waiting.iter().position(|session| session.id == id)?;
        let WaitingSession { client, request, .. } = self.waiting[at];
        let limited_by = self.waits_for(at, client, &request).unwrap_or(LimitScope::Total);
        Some(self.estimate_at(at, client, limited_by, now))
    }

    /// Takes up to `wanted` bytes from the quotas of the session's client and of all clients. Returns less than
    /// `wanted`, or finally zero, when a quota is exhausted.
    pub fn take(&mut self, id: u64, wanted: Bytes, now: Instant) -> Bytes {
        let Some(&RunningSession { client, .. }) = self.running.get(&id) else { return Bytes(0) };
        let left = self.accounts.quota_left(QuotaResource::Bytes, client, now);
        let bytes = wanted.min(left.map_or(wanted, |(_, left)| Bytes(left)));
        self.accounts.charge(QuotaResource::Bytes, client, bytes.0, now);
        if let Some(session) = self.running.get_mut(&id) {
            session.taken.0 = session.taken.0.saturating_add(bytes.0);
        }
        bytes
    }

    /// Reports whether a quota of bytes exists.
    pub fn counts_bytes(&self) -> bool {
        self.limits.total.bytes.or(self.limits.client.bytes).is_some()
    }

    /// Checks that a session may move `all` bytes in total, `requested` of which are a new request. Takes nothing: other
    /// sessions may use the same bytes.
    pub fn affords(&mut self, id: u64, all: Bytes, requested: Bytes, now: Instant) -> Result<(), Denial> {
        let Some(&RunningSession { client, taken, .. }) = self.running.get(&id) else { return Ok(()) };
        let Some((scope, left)) = self.accounts.quota_left(QuotaResource::Bytes, client, now) else { return Ok(()) };
        let allowance = taken.0.saturating_add(left);
        if all.0 <= allowance {
            return Ok(());
        }
        let remaining = allowance.saturating_sub(all.0.saturating_sub(requested.0));
        Err(self.accounts.quota_denial(QuotaResource::Bytes, scope, client, Some(requested.0), remaining, now))
    }

    /// Returns the denial of a session whose quota of bytes is exhausted, if any.
    pub fn out_of_bytes(&mut self, id: u64, now: Instant) -> Option<Denial> {
        let client = self.running.get(&id)?.client;
        self.accounts.check_quota(QuotaResource::Bytes, client, None, now).err()
    }

    /// Returns bytes to the quotas that were taken but not moved.
    pub fn refund(&mut self, id: u64, bytes: Bytes) {
        let Some(session) = self.running.get_mut(&id) else { return };
        let bytes = bytes.min(session.taken);
        session.taken.0 -= bytes.0;
        self.accounts.refund(session.client, bytes);
    }

    /// Charges the session's time until `now`. An error means that the quota of time is exhausted and the session must
    /// end.
    pub fn charge_time(&mut self, id: u64, now: Instant) -> Result<(), Denial> {
        let Some(session) = self.running.get_mut(&id).filter(|session| !session.request.uncounted) else {
            return Ok(());
        };
        let (client, time) = (session.client, now.saturating_since(session.charged_until));
        session.charged_until = now;
        self.accounts.charge(QuotaResource::Time, client, nanos(time), now);
        self.accounts.check_quota(QuotaResource::Time, client, None, now).map(drop)
    }

    /// Ends a running session.
    pub fn end(&mut self, id: u64, now: Instant) {
        // An exhausted quota of time no longer matters.
        let _ = self.charge_time(id, now);
        let Some(session) = self.running.remove(&id).filter(|session| !session.request.uncounted) else { return };
        let time = now.saturating_since(session.started_at);
        // The mean is smoothed as the RTT of RFC 6298: the last sessions count most.
        self.mean_time = Some(self.mean_time.map_or(time, |mean| mean - mean / 8 + time / 8));
        self.accounts.release(session.client, &session.grant, now);
    }

    /// Stops admission. Returns a decision for each waiting session.
    pub fn stop(&mut self) -> Vec<QueueDecision> {
        self.is_stopping = true;
        let waiting = self.waiting.drain(..);
        waiting.map(|session| QueueDecision { id: session.id, outcome: Err(Denial::Stopping) }).collect()
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

    fn waiting_of(&self, client: Client) -> usize {
        self.waiting.iter().filter(|session| session.client == client).count()
    }

    /// Returns the scope of the limit that makes a session wait behind the first `ahead` waiting sessions.
    fn waits_for(&self, ahead: usize, client: Client, request: &ResourceRequest) -> Option<LimitScope> {
        let blocked = |session: &WaitingSession| {
            let limit = self.free_rate(session.client, &session.request).err()?;
            (session.client == client || limit == LimitScope::Total).then_some(limit)
        };
        let own = self.free_rate(client, request).err();
        own.or_else(|| self.waiting.range(..ahead).filter(|_| !request.uncounted).find_map(blocked))
    }

    fn estimate_at(&self, at: usize, client: Client, limited_by: LimitScope, now: Instant) -> QueueEstimate {
        let counts = |other: Client| limited_by == LimitScope::Total || other == client;
        let expected = |request: &ResourceRequest| Some(request.expected_time()?.saturating_add(request.grace));
        let left = |session: &RunningSession| {
            let left = (session.started_at + expected(&session.request)?).saturating_since(now);
            (!left.is_zero()).then_some(left)
        };
        let running = self.running.values().filter(|session| !session.request.uncounted && counts(session.client));
        let ahead = self.waiting.range(..at).filter(|session| counts(session.client));
        let (sessions, ahead_count) = (running.clone().count(), ahead.clone().count());
        let times = running.map(left).chain(ahead.map(|session| expected(&session.request)));
        let sum = |sum: Duration, time: Option<Duration>| Some(sum.saturating_add(time.or(self.mean_time)?));
        let wait = times.into_iter().try_fold(Duration::ZERO, sum);
        let wait = wait.map(|wait| wait / u32::try_from(sessions.max(1)).unwrap_or(u32::MAX));
        QueueEstimate { ahead: ahead_count, wait, limited_by }
    }

    /// Returns the rate of a session that has room now (`None` is unlimited), or the scope of the limit in its way.
    fn free_rate(&self, client: Client, request: &ResourceRequest) -> Result<Option<BitRate>, LimitScope> {
        if request.uncounted {
            return Ok(None);
        }
        self.accounts.free_rate(client, request, || (self.waiting_of(client), self.waiting.len()))
    }

    fn start(
        &mut self,
        WaitingSession { id, client, request }: WaitingSession,
        rate: Option<BitRate>,
        now: Instant,
    ) -> Result<ResourceGrant, Denial> {
        let (mut bytes, mut time) = (None, None);
        if !request.uncounted {
            bytes = self.accounts.check_quota(QuotaResource::Bytes, client, None, now)?.map(Bytes);
            let max = (!request.unbounded).then_some(self.limits.test_time);
            let left = self.accounts.check_quota(QuotaResource::Time, client, None, now)?.map(Duration::from_nanos);
            time = [left, request.time, max].into_iter().flatten().min();
        }
        let grant = ResourceGrant { streams: request.streams, rate, bytes, time };
        if !request.uncounted {
            self.accounts.occupy(client, &grant, now);
        }
        let session = RunningSession { client, request, grant, started_at: now, charged_until: now, taken: Bytes(0) };
        self.running.insert(id, session);
        Ok(grant)
    }
}
