//! Estimates the remaining wait of queued sessions by simulating the queue with the maximum time of each running
//! session.

use std::collections::HashMap;
use std::time::Duration;

use super::gate::{Account, AdmissionGate, Running};
use super::{QuotaLimits, QuotaScope, Quotas, SessionDemand};
use crate::time::Instant;
use crate::units::Bytes;

/// Duration of a session besides its own time: connection setup and final report.
const SESSION_OVERHEAD: Duration = Duration::from_secs(1);

/// Estimate for a waiting session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedWait {
    /// Upper bound of the remaining wait, if every session takes its maximum time. `None` if an earlier session has
    /// declared no duration and its progress shows none.
    pub wait: Option<Duration>,
    /// Count of sessions that are admitted before.
    pub ahead: usize,
    /// Scope of the quota that the session waits for.
    pub limited_by: QuotaScope,
}

impl AdmissionGate {
    /// Returns the estimate for each waiting session.
    pub fn expected(&self, now: Instant) -> HashMap<u64, ExpectedWait> {
        let mut simulated = self.without_usage();
        let mut ends: HashMap<u64, Option<Instant>> =
            self.running.iter().map(|(id, running)| (*id, self.latest_end(running, now))).collect();
        let waiting = self.accounts.iter().flat_map(|(client, account)| account.waiting.iter().map(|w| (*client, w)));
        let waiting: HashMap<u64, (SessionDemand, QuotaScope)> =
            waiting.map(|(client, w)| (w.id, (w.demand, self.limiting_scope(client, &w.demand, now)))).collect();
        let limiting_scope = |id: u64| waiting.get(&id).map_or(QuotaScope::All, |(_, scope)| *scope);
        let mut expected = HashMap::new();
        let mut at = now;
        loop {
            for turn in simulated.admit(at) {
                let ahead = expected.len();
                let wait = Some(at.saturating_since(now));
                expected.insert(turn.id, ExpectedWait { wait, ahead, limited_by: limiting_scope(turn.id) });
                let end = waiting
                    .get(&turn.id)
                    .and_then(|(demand, _)| self.max_duration(demand))
                    .map(|time| at + time + SESSION_OVERHEAD);
                ends.insert(turn.id, end);
            }
            let next = ends.iter().filter_map(|(id, end)| end.map(|end| (end, *id))).min();
            let Some((end, id)) = next else { break };
            ends.remove(&id);
            simulated.end(id, end);
            at = at.max(end);
        }
        // Sessions that were not admitted in the simulation come last, with an unknown wait.
        for id in simulated.still_waiting() {
            let ahead = expected.len();
            expected.insert(id, ExpectedWait { wait: None, ahead, limited_by: limiting_scope(id) });
        }
        expected
    }

    /// Returns the sessions that still wait, in the order of their turns.
    fn still_waiting(&self) -> Vec<u64> {
        let queue = |client| self.accounts.get(client).map_or(0, |account: &Account| account.waiting.len());
        let longest = self.order.iter().map(queue).max().unwrap_or(0);
        let of_round = |round: usize| {
            let accounts = self.order.iter().filter_map(|client| self.accounts.get(client));
            accounts.filter_map(move |account| account.waiting.get(round)).map(|waiting| waiting.id)
        };
        (0..longest).flat_map(of_round).collect()
    }

    /// Returns a copy of the gate without usage quotas, because these never make a session wait.
    fn without_usage(&self) -> AdmissionGate {
        let free = |share: &QuotaLimits| QuotaLimits { bytes: None, time: None, ..*share };
        let quotas = Quotas { all: free(&self.quotas.all), client: free(&self.quotas.client), ..self.quotas };
        let mut simulated = AdmissionGate::new(quotas);
        let bare = |account: &Account| Account { usage: Default::default(), ..account.clone() };
        let busy = self.accounts.iter().filter(|(_, account)| account.sessions > 0 || !account.waiting.is_empty());
        simulated.accounts = busy.map(|(client, account)| (*client, bare(account))).collect();
        simulated.all = bare(&self.all);
        simulated.running.clone_from(&self.running);
        simulated.order.clone_from(&self.order);
        simulated.clients = self.clients;
        simulated
    }

    /// Returns the latest end of a running session. Unknown if it already exceeded its maximum.
    fn latest_end(&self, running: &Running, now: Instant) -> Option<Instant> {
        let so_far = now.saturating_since(running.since);
        let by_progress = running.demand.bytes.filter(|_| running.moved.0 > 0).map(|bytes| {
            let left = bytes.0.saturating_sub(running.moved.0) as f64 / running.moved.0 as f64;
            now + Duration::try_from_secs_f64(so_far.as_secs_f64() * left).unwrap_or(Duration::MAX)
        });
        let by_time = running.allowed.time.map(|time| running.since + time.saturating_add(running.demand.grace));
        let end = [by_progress, by_time].into_iter().flatten().min()? + SESSION_OVERHEAD;
        (end > now).then_some(end)
    }

    /// Returns the maximum duration of a session that has not started.
    fn max_duration(&self, demand: &SessionDemand) -> Option<Duration> {
        let by_rate = demand.rate.zip(demand.bytes).map(|(rate, bytes): (_, Bytes)| rate.time_for(bytes));
        let most = (!demand.unbounded).then_some(self.quotas.session_time);
        Some(demand.time.or(by_rate).or(most)?.saturating_add(demand.grace))
    }
}
