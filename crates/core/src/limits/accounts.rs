//! Resources in use, per client and in total: concurrent ones, and the quotas of bytes and time.

use std::collections::HashMap;
use std::time::Duration;

use super::denial::{Denial, QuotaResource};
use super::resources::{Client, LimitScope, ResourceGrant, ResourceLimits, ResourceRequest, ServerLimits};
use super::usage::Usage;
use crate::time::Instant;
use crate::units::{BitRate, Bytes};

/// Maximum clients whose usage is remembered. Beyond it, the client that was idle longest is forgotten.
const MAX_ACCOUNTS: usize = 65_536;

/// Resources in use by all clients.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    limits: ServerLimits,
    total: Account,
    clients: HashMap<Client, Account>,
    /// Count of clients with a running session.
    busy_clients: u32,
}

/// Resources in use by one client, or by all clients.
#[derive(Clone, Debug, Default)]
struct Account {
    sessions: u32,
    streams: u32,
    rate: BitRate,
    /// Used bytes and time, by [`QuotaResource`].
    usage: [Usage; 2],
    last_seen: Instant,
}

impl Accounts {
    pub(super) fn new(limits: ServerLimits) -> Self {
        Accounts { limits, total: Account::default(), clients: HashMap::new(), busy_clients: 0 }
    }

    /// Returns the rate of a session that has room now (`None` is unlimited), or the scope of the limit in its way.
    /// `waiting` are the counts of waiting sessions of the client and in total.
    pub(super) fn free_rate(
        &self,
        client: Client,
        request: &ResourceRequest,
        waiting: impl Fn() -> (usize, usize),
    ) -> Result<Option<BitRate>, LimitScope> {
        let unused = Account::default();
        let own = self.clients.get(&client).unwrap_or(&unused);
        let own_rate = own.free_rate(&self.limits.client, request, request.rate, || waiting().0);
        let rate = own_rate.ok_or(LimitScope::Client)?;
        if own.sessions == 0 && self.busy_clients >= self.limits.clients {
            return Err(LimitScope::Total);
        }
        self.total.free_rate(&self.limits.total, request, rate, || waiting().1).ok_or(LimitScope::Total)
    }

    /// Counts the resources of a session that starts.
    pub(super) fn occupy(&mut self, client: Client, grant: &ResourceGrant, now: Instant) {
        self.busy_clients += u32::from(self.account(client, now).sessions == 0);
        for account in [Some(&mut self.total), self.clients.get_mut(&client)].into_iter().flatten() {
            account.sessions += 1;
            account.streams += u32::from(grant.streams);
            account.rate.0 = account.rate.0.saturating_add(grant.rate.unwrap_or_default().0);
        }
    }

    /// Frees the resources of a session that ends.
    pub(super) fn release(&mut self, client: Client, grant: &ResourceGrant, now: Instant) {
        let Some(own) = self.clients.get_mut(&client) else { return };
        for account in [&mut self.total, &mut *own] {
            account.sessions -= 1;
            account.streams -= u32::from(grant.streams);
            account.rate.0 = account.rate.0.saturating_sub(grant.rate.unwrap_or_default().0);
            account.last_seen = now;
        }
        if own.sessions == 0 {
            self.busy_clients -= 1;
            if own.usage.iter().all(Usage::is_empty) {
                self.clients.remove(&client);
            }
        }
    }

    /// Returns bytes to the quotas.
    pub(super) fn refund(&mut self, client: Client, bytes: Bytes) {
        for account in [Some(&mut self.total), self.clients.get_mut(&client)].into_iter().flatten() {
            account.usage[QuotaResource::Bytes as usize].refund(bytes.0);
        }
    }

    /// Returns the account of a client. If there are too many, the client that was idle longest is forgotten.
    fn account(&mut self, client: Client, now: Instant) -> &mut Account {
        if self.clients.len() >= MAX_ACCOUNTS && !self.clients.contains_key(&client) {
            let idle = self.clients.iter().filter(|(_, account)| account.sessions == 0);
            if let Some(oldest) = idle.min_by_key(|(_, account)| account.last_seen).map(|(client, _)| *client) {
                self.clients.remove(&oldest);
            }
        }
        let account = self.clients.entry(client).or_default();
        account.last_seen = now;
        account
    }

    /// Adds used bytes or nanoseconds to the quotas that exist.
    pub(super) fn charge(&mut self, resource: QuotaResource, client: Client, amount: u64, now: Instant) {
        let window = self.limits.quota_window;
        if resource.limit(&self.limits.total).is_some() {
            self.total.usage[resource as usize].add(amount, window, now);
        }
        if resource.limit(&self.limits.client).is_some() {
            self.account(client, now).usage[resource as usize].add(amount, window, now);
        }
    }

    /// Returns the quota with the least left, and the amount; `None` without a quota.
    pub(super) fn quota_left(
        &mut self,
        resource: QuotaResource,
        client: Client,
        now: Instant,
    ) -> Option<(LimitScope, u64)> {
        let window = self.limits.quota_window;
        let left = |scope, limits: &ResourceLimits, account: Option<&mut Account>| {
            let used = account.map_or(0, |account| account.usage[resource as usize].used(window, now));
            Some((scope, resource.limit(limits)?.saturating_sub(used)))
        };
        let own = left(LimitScope::Client, &self.limits.client, self.clients.get_mut(&client));
        let total = left(LimitScope::Total, &self.limits.total, Some(&mut self.total));
        [own, total].into_iter().flatten().min_by_key(|(_, left)| *left)
    }

    /// Returns what is left of a quota, if it is not zero and covers the request.
    pub(super) fn check_quota(
        &mut self,
        resource: QuotaResource,
        client: Client,
        requested: Option<u64>,
        now: Instant,
    ) -> Result<Option<u64>, Denial> {
        match self.quota_left(resource, client, now) {
            None => Ok(None),
            Some((_, left)) if left > 0 && requested.is_none_or(|requested| requested <= left) => Ok(Some(left)),
            Some((scope, left)) => Err(self.quota_denial(resource, scope, client, requested, left, now)),
        }
    }

    /// Returns the denial of a request that exceeds a quota.
    pub(super) fn quota_denial(
        &self,
        resource: QuotaResource,
        scope: LimitScope,
        client: Client,
        requested: Option<u64>,
        remaining: u64,
        now: Instant,
    ) -> Denial {
        let (limits, account) = match scope {
            LimitScope::Client => (&self.limits.client, self.clients.get(&client)),
            LimitScope::Total => (&self.limits.total, Some(&self.total)),
        };
        let (limit, window) = (resource.limit(limits).unwrap_or(0), self.limits.quota_window);
        let most = limit.saturating_sub(requested.unwrap_or(resource.minimum()));
        let retry_after =
            account.map_or(Duration::ZERO, |account| account.usage[resource as usize].time_until(most, window, now));
        Denial::Quota { resource, scope, requested, remaining, limit, window, retry_after }
    }
}

impl Account {
    /// Returns the rate of one more session, or `None` if it must wait. The free rate is divided evenly among the
    /// `waiting` sessions. A session waits if it would get less than an even part of the total rate.
    fn free_rate(
        &self,
        limits: &ResourceLimits,
        request: &ResourceRequest,
        requested: Option<BitRate>,
        waiting: impl FnOnce() -> usize,
    ) -> Option<Option<BitRate>> {
        if self.sessions >= limits.sessions || self.streams + u32::from(request.streams) > limits.streams {
            return None;
        }
        let Some(whole) = limits.rate else { return Some(requested) };
        let free = whole.0.saturating_sub(self.rate.0);
        let even = (whole.0 / u64::from(limits.sessions.max(1))).max(1);
        let places = u64::from(limits.sessions - self.sessions);
        let dealt = (free / (waiting() as u64).clamp(1, places)).max(even).min(free);
        let wanted = requested.map_or(dealt, |requested| requested.0.min(dealt));
        let least = requested.map_or(even, |requested| requested.0.min(even)).max(1);
        (wanted >= least).then_some(Some(BitRate(wanted)))
    }
}
