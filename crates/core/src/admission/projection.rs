//! How long those who wait may still wait: the queue played forward on what the running sessions may still take.

use std::collections::HashMap;
use std::time::Duration;

use super::gate::{Account, Gate, Running};
use super::{Ask, Quotas, Share, Whose};
use crate::time::Instant;
use crate::units::Bytes;

/// What a session takes beyond its own time: connecting, and the last figures.
const AROUND: Duration = Duration::from_secs(1);

/// What somebody who waits is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// How long it may still take, if every session takes all the time it may; `None` if one of those before it has
    /// not said how long it takes, and shows no progress that tells.
    pub wait: Option<Duration>,
    /// How many go in before.
    pub ahead: usize,
    /// Whose quota it waits for.
    pub held_by: Whose,
}

impl Gate {
    /// What to tell each that waits.
    pub fn expected(&self, now: Instant) -> HashMap<u64, Expected> {
        let mut played = self.without_spending();
        let mut ends: HashMap<u64, Option<Instant>> =
            self.running.iter().map(|(id, running)| (*id, self.end_of(running, now))).collect();
        let waiting = self.accounts.iter().flat_map(|(client, account)| account.waiting.iter().map(|w| (*client, w)));
        let waiting: HashMap<u64, (Ask, Whose)> =
            waiting.map(|(client, w)| (w.id, (w.ask, self.held_by(client, &w.ask, now)))).collect();
        let held_by = |id: u64| waiting.get(&id).map_or(Whose::All, |(_, whose)| *whose);
        let mut expected = HashMap::new();
        let mut at = now;
        loop {
            for turn in played.admit(at) {
                let ahead = expected.len();
                let wait = Some(at.saturating_since(now));
                expected.insert(turn.id, Expected { wait, ahead, held_by: held_by(turn.id) });
                let end = waiting.get(&turn.id).and_then(|(ask, _)| self.time_of(ask)).map(|time| at + time + AROUND);
                ends.insert(turn.id, end);
            }
            let next = ends.iter().filter_map(|(id, end)| end.map(|end| (end, *id))).min();
            let Some((end, id)) = next else { break };
            ends.remove(&id);
            played.end(id, end);
            at = at.max(end);
        }
        // Who never got in while played: behind all others, and nobody can say until when.
        for id in played.left() {
            let ahead = expected.len();
            expected.insert(id, Expected { wait: None, ahead, held_by: held_by(id) });
        }
        expected
    }

    /// Who still waits, in turns.
    fn left(&self) -> Vec<u64> {
        let queue = |client| self.accounts.get(client).map_or(0, |account: &Account| account.waiting.len());
        let longest = self.order.iter().map(queue).max().unwrap_or(0);
        let of_round = |round: usize| {
            let accounts = self.order.iter().filter_map(|client| self.accounts.get(client));
            accounts.filter_map(move |account| account.waiting.get(round)).map(|waiting| waiting.id)
        };
        (0..longest).flat_map(of_round).collect()
    }

    /// The gate with what is spent left out: what is spent makes nobody wait.
    fn without_spending(&self) -> Gate {
        let free = |share: &Share| Share { bytes: None, time: None, ..*share };
        let quotas = Quotas { all: free(&self.quotas.all), client: free(&self.quotas.client), ..self.quotas };
        let mut played = Gate::new(quotas);
        let bare = |account: &Account| Account { spent: Default::default(), ..account.clone() };
        let busy = self.accounts.iter().filter(|(_, account)| account.sessions > 0 || !account.waiting.is_empty());
        played.accounts = busy.map(|(client, account)| (*client, bare(account))).collect();
        played.all = bare(&self.all);
        played.running.clone_from(&self.running);
        played.order.clone_from(&self.order);
        played.clients = self.clients;
        played
    }

    /// When a running session may end at the latest; nobody can say of one that has gone on for longer than it may.
    fn end_of(&self, running: &Running, now: Instant) -> Option<Instant> {
        let so_far = now.saturating_since(running.since);
        let by_progress = running.ask.bytes.filter(|_| running.moved.0 > 0).map(|bytes| {
            let left = bytes.0.saturating_sub(running.moved.0) as f64 / running.moved.0 as f64;
            now + Duration::try_from_secs_f64(so_far.as_secs_f64() * left).unwrap_or(Duration::MAX)
        });
        let by_time = running.allowed.time.map(|time| running.since + time.saturating_add(running.ask.grace));
        let end = [by_progress, by_time].into_iter().flatten().min()? + AROUND;
        (end > now).then_some(end)
    }

    /// How long a session that has not begun may take.
    fn time_of(&self, ask: &Ask) -> Option<Duration> {
        let by_rate = ask.rate.zip(ask.bytes).map(|(rate, bytes): (_, Bytes)| rate.time_for(bytes));
        let most = (!ask.unbounded).then_some(self.quotas.session_time);
        Some(ask.time.or(by_rate).or(most)?.saturating_add(ask.grace))
    }
}
