//! Quotas of bytes and time, per client and in total: one account for each client, and one for all clients.

use std::collections::HashMap;
use std::time::Duration;

use lfn_base::time::Instant;

use super::denial::{Denial, QuotaResource};
use super::resources::{Client, LimitScope, ScopedLimits, ServerLimits};
use super::usage::Usage;

/// Maximum clients whose usage is remembered. Beyond it, the client whose last use is oldest is forgotten.
const MAX_ACCOUNTS: usize = 65_536;

/// Bytes and time that the clients used in the last window.
#[derive(Clone, Debug)]
pub(super) struct Quotas {
    limits: ServerLimits,
    /// Usage by [`QuotaResource`], of each client. `None` is the sum of all clients.
    accounts: HashMap<Option<Client>, [Usage; 2]>,
}

/// The remainder of one quota.
#[derive(Debug)]
pub(super) struct Quota<'a> {
    resource: QuotaResource,
    scope: LimitScope,
    limit: u64,
    window: Duration,
    usage: Option<&'a Usage>,
    pub(super) left: u64,
}

impl Quotas {
    pub(super) fn new(limits: ServerLimits) -> Self {
        Quotas { limits, accounts: HashMap::new() }
    }

    /// Adds used bytes or nanoseconds to the quotas that exist.
    pub(super) fn charge(&mut self, resource: QuotaResource, client: Client, amount: u64, now: Instant) {
        let window = self.limits.quota_window;
        for ScopedLimits { whose, limits, .. } in self.limits.scopes(client) {
            if resource.limit(&limits).is_some() {
                self.account(whose)[resource as usize].add(amount, window, now);
            }
        }
    }

    /// Returns bytes or nanoseconds that were charged and not used.
    pub(super) fn refund(&mut self, resource: QuotaResource, client: Client, amount: u64) {
        for account in [Some(client), None] {
            if let Some(usage) = self.accounts.get_mut(&account) {
                usage[resource as usize].refund(amount);
            }
        }
    }

    /// Returns the quota with the least left; `None` without a quota.
    pub(super) fn smallest(&self, resource: QuotaResource, client: Client, now: Instant) -> Option<Quota<'_>> {
        let window = self.limits.quota_window;
        let quotas = self.limits.scopes(client).into_iter().filter_map(|ScopedLimits { scope, whose, limits }| {
            let limit = resource.limit(&limits)?;
            let usage = self.accounts.get(&whose).map(|usage| &usage[resource as usize]);
            let left = limit.saturating_sub(usage.map_or(0, |usage| usage.used(window, now)));
            Some(Quota { resource, scope, limit, window, usage, left })
        });
        quotas.min_by_key(|quota| quota.left)
    }

    /// Returns what is left of the smallest quota, if it is not zero and covers the request.
    pub(super) fn check(
        &self,
        resource: QuotaResource,
        client: Client,
        requested: Option<u64>,
        now: Instant,
    ) -> Result<Option<u64>, Denial> {
        self.smallest(resource, client, now).map(|quota| quota.check(requested, now)).transpose()
    }

    /// Returns the account of a client. If there are too many, the client whose last use is oldest is forgotten.
    fn account(&mut self, whose: Option<Client>) -> &mut [Usage; 2] {
        if self.accounts.len() >= MAX_ACCOUNTS && !self.accounts.contains_key(&whose) {
            let clients = self.accounts.iter().filter(|(whose, _)| whose.is_some());
            let oldest = clients.min_by_key(|(_, usage)| usage.iter().filter_map(Usage::newest_slot).max());
            if let Some(oldest) = oldest.map(|(whose, _)| *whose) {
                self.accounts.remove(&oldest);
            }
        }
        self.accounts.entry(whose).or_default()
    }
}

impl Quota<'_> {
    /// Returns what is left, if it is not zero and covers the request. The denial has the time until enough is left.
    pub(super) fn check(&self, requested: Option<u64>, now: Instant) -> Result<u64, Denial> {
        let Quota { resource, scope, limit, window, usage, left: remaining } = *self;
        if remaining >= requested.unwrap_or(0).max(1) {
            return Ok(remaining);
        }
        let max_used = limit.saturating_sub(requested.unwrap_or(resource.minimum()));
        let retry_after = usage.map_or(Duration::ZERO, |usage| usage.time_until(max_used, window, now));
        Err(Denial::Quota { resource, scope, requested, remaining, limit, window, retry_after })
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use lfn_base::units::Bytes;

    use super::*;
    use crate::limits::ResourceLimits;

    #[test]
    fn accounts_are_bounded_and_the_oldest_is_forgotten() {
        let bytes = Some(Bytes(10));
        let [total, client] = [ServerLimits::default().total, ServerLimits::default().client]
            .map(|limits| ResourceLimits { bytes, ..limits });
        let mut quotas = Quotas::new(ServerLimits { total, client, ..ServerLimits::default() });
        let client = |number: usize| Client::of(Ipv4Addr::from_bits(number as u32).into());
        let at = |hour: u64| Instant::ZERO + Duration::from_secs(3600 * hour);
        for number in 0..=MAX_ACCOUNTS {
            quotas.charge(QuotaResource::Bytes, client(number), 1, at(u64::from(number != 7)));
        }
        assert_eq!(quotas.accounts.len(), MAX_ACCOUNTS);
        assert!(!quotas.accounts.contains_key(&Some(client(7))) && quotas.accounts.contains_key(&None));
    }
}
