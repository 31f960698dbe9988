//! The gate itself: what is taken, who waits in which order, who goes in.
//!
//! The order is round robin between clients, first come first served within one. A client whose own quota holds its
//! first session back is passed by; one that the quotas of all hold back is passed by nobody, so that a large session
//! is not starved by small ones.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::spent::Spent;
use super::{Allowed, Ask, Client, Denied, Quotas, Share, Whose};
use crate::time::Instant;
use crate::units::{BitRate, Bytes};

/// Most clients whose spending is remembered. Beyond it the one that was idle longest is forgotten.
const REMEMBERED: usize = 65_536;

/// Most sessions at once that no quota counts: each is threads, and a list that it has read ahead.
const UNCOUNTED: usize = 64;

/// No session needs more, and a million of them can be added up.
const FASTEST: BitRate = BitRate(1 << 44);

/// Quotas, sessions that run, sessions that wait.
#[derive(Clone, Debug)]
pub struct Gate {
    pub(super) quotas: Quotas,
    pub(super) accounts: HashMap<Client, Account>,
    pub(super) all: Account,
    pub(super) running: BTreeMap<u64, Running>,
    /// Clients that have sessions waiting, in the order of their turns.
    pub(super) order: VecDeque<Client>,
    /// Clients that have a session running.
    pub(super) clients: u32,
    next: u64,
    stopping: bool,
}

/// What one client, or everybody, has.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) sessions: u32,
    pub(super) streams: u32,
    pub(super) rate: BitRate,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) spent: Spent,
    pub(super) seen: Instant,
}

/// A session that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) ask: Ask,
}

/// A session that was let in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) client: Client,
    pub(super) ask: Ask,
    pub(super) allowed: Allowed,
    pub(super) since: Instant,
    /// Taken of the quotas.
    taken: Bytes,
    /// Moved of that.
    pub(super) moved: Bytes,
    charged: Instant,
}

/// What became of a session that waited.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Which.
    pub id: u64,
    /// It goes in, or it need not wait any longer.
    pub outcome: Result<Allowed, Denied>,
}

/// How the first waiting session of a client stands.
enum Fit {
    Now(Allowed),
    Never(Denied),
    /// Its client has all it may have.
    Own,
    /// Everybody together has.
    Shared,
}

impl Gate {
    /// Nobody is in, nobody waits.
    pub fn new(quotas: Quotas) -> Self {
        Gate {
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

    /// Sessions that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Sessions that wait.
    pub fn waiting(&self) -> usize {
        self.order.iter().filter_map(|client| self.accounts.get(client)).map(|account| account.waiting.len()).sum()
    }

    /// Puts a session into the queue; [`Gate::admit`] says whether it goes in at once.
    pub fn ask(&mut self, client: Client, ask: Ask, now: Instant) -> Result<u64, Denied> {
        // What is asked for comes from a peer, and is added up.
        let ask = Ask { rate: ask.rate.map(|rate| rate.clamp(BitRate(1), FASTEST)), ..ask };
        self.possible(&ask)?;
        self.forget_somebody();
        let window = self.quotas.window;
        self.all.spent.forget(window, now);
        let account = self.accounts.entry(client).or_default();
        account.seen = now;
        account.spent.forget(window, now);
        self.affordable(client, &ask, now)?;
        self.place_to_wait(client, &ask, now)?;
        let id = self.next;
        self.next += 1;
        let account = self.accounts.entry(client).or_default();
        if account.waiting.is_empty() {
            self.order.push_back(client);
        }
        account.waiting.push_back(Waiting { id, ask });
        Ok(id)
    }

    /// Everybody whose turn it is now. To be called after each [`Gate::ask`], [`Gate::leave`] and [`Gate::end`].
    pub fn admit(&mut self, now: Instant) -> Vec<Turn> {
        let mut turns = Vec::new();
        let mut at = 0;
        while let Some(&client) = self.order.get(at) {
            let Some(first) = self.accounts.get(&client).and_then(|account| account.waiting.front().copied()) else {
                self.order.remove(at);
                continue;
            };
            let outcome = match self.fit(client, &first.ask, now) {
                Fit::Own => {
                    at += 1;
                    continue;
                }
                Fit::Shared => break,
                Fit::Never(denied) => Err(denied),
                Fit::Now(allowed) => Ok(allowed),
            };
            self.leave_queue(client, first.id);
            // Its next turn is after everybody else's.
            if let Some(moved) = self.order.iter().position(|other| *other == client) {
                self.order.remove(moved);
                self.order.push_back(client);
            }
            if let Ok(allowed) = outcome {
                self.start(first, client, allowed, now);
            }
            turns.push(Turn { id: first.id, outcome });
        }
        turns
    }

    /// A session that waited goes away.
    pub fn leave(&mut self, id: u64) {
        let waits = |client: &&Client| {
            self.accounts.get(client).is_some_and(|account| account.waiting.iter().any(|waiting| waiting.id == id))
        };
        let client = self.order.iter().find(waits).copied();
        if let Some(client) = client {
            self.leave_queue(client, id);
        }
    }

    /// Takes up to `wanted` bytes of what the session, its client and everybody together may still move; less than
    /// `wanted`, in the end nothing, when the quotas are spent.
    pub fn take(&mut self, id: u64, wanted: Bytes, now: Instant) -> Bytes {
        let Some(&Running { client, .. }) = self.running.get(&id) else { return Bytes(0) };
        let window = self.quotas.window;
        let bytes = wanted.min(self.bytes_left(client, now).map_or(wanted, |(_, left)| left));
        for account in [Some(&mut self.all), self.accounts.get_mut(&client)].into_iter().flatten() {
            account.spent.add(bytes, Duration::ZERO, window, now);
        }
        if let Some(running) = self.running.get_mut(&id) {
            running.taken.0 = running.taken.0.saturating_add(bytes.0);
        }
        bytes
    }

    /// What the session has moved so far, by which it is judged how long it still takes: bytes are taken in large parts,
    /// and before they are moved.
    pub fn moved(&mut self, id: u64, bytes: Bytes) {
        if let Some(running) = self.running.get_mut(&id) {
            running.moved = bytes;
        }
    }

    /// Whether bytes are counted, so that they may come to an end.
    pub fn counts_bytes(&self) -> bool {
        self.quotas.all.bytes.or(self.quotas.client.bytes).is_some()
    }

    /// Whether a session may move `all` bytes from its beginning to its end, `asked` of which nobody has spoken of before.
    /// Nothing is taken: others may spend the same.
    pub fn affords(&self, id: u64, all: Bytes, asked: Bytes, now: Instant) -> Result<(), Denied> {
        let Some(&Running { client, taken, .. }) = self.running.get(&id) else { return Ok(()) };
        let Some((whose, left)) = self.bytes_left(client, now) else { return Ok(()) };
        let allowance = taken.0.saturating_add(left.0);
        if all.0 <= allowance {
            return Ok(());
        }
        let spoken_of = all.0.saturating_sub(asked.0);
        Err(self.too_few(whose, client, Some(asked), Bytes(allowance.saturating_sub(spoken_of)), now))
    }

    /// Which quota of bytes a session has come to the end of, if one.
    pub fn out_of_bytes(&self, id: u64, now: Instant) -> Option<Denied> {
        let client = self.running.get(&id)?.client;
        self.bytes_for(client, None, now).err()
    }

    /// Gives back what was taken and not moved.
    pub fn give_back(&mut self, id: u64, bytes: Bytes) {
        let Some(running) = self.running.get_mut(&id) else { return };
        let bytes = bytes.min(running.taken);
        running.taken.0 -= bytes.0;
        for account in [Some(&mut self.all), self.accounts.get_mut(&running.client)].into_iter().flatten() {
            account.spent.give_back(bytes);
        }
    }

    /// Counts the session's time until `now`. An error is the end of it: the seconds are spent.
    pub fn spend(&mut self, id: u64, now: Instant) -> Result<(), Denied> {
        let Some(running) = self.running.get_mut(&id).filter(|running| !running.ask.uncounted) else { return Ok(()) };
        let (client, time) = (running.client, now.saturating_since(running.charged));
        running.charged = now;
        let window = self.quotas.window;
        for account in [Some(&mut self.all), self.accounts.get_mut(&client)].into_iter().flatten() {
            account.spent.add(Bytes(0), time, window, now);
        }
        self.seconds_for(client, None, now).map(drop)
    }

    /// A session that ran has ended.
    pub fn end(&mut self, id: u64, now: Instant) {
        // That the seconds are spent is of no matter any more.
        let _ = self.spend(id, now);
        let Some(running) = self.running.remove(&id).filter(|running| !running.ask.uncounted) else { return };
        for account in [Some(&mut self.all), self.accounts.get_mut(&running.client)].into_iter().flatten() {
            account.sessions -= 1;
            account.streams -= u32::from(running.allowed.streams);
            account.rate.0 = account.rate.0.saturating_sub(running.allowed.rate.unwrap_or_default().0);
            account.seen = now;
        }
        let left = self.accounts.get(&running.client).is_some_and(|own| own.sessions == 0);
        self.clients -= u32::from(left);
    }

    /// Nobody is let in any more; returns those that waited.
    pub fn stop(&mut self) -> Vec<Turn> {
        self.stopping = true;
        self.order.clear();
        let waiting = self.accounts.values_mut().flat_map(|account| account.waiting.drain(..));
        waiting.map(|waiting| Turn { id: waiting.id, outcome: Err(Denied::Stopping) }).collect()
    }

    /// What could never be, however long one waits.
    fn possible(&self, ask: &Ask) -> Result<(), Denied> {
        if self.stopping {
            return Err(Denied::Stopping);
        }
        let Quotas { all, client, session_streams, session_time, .. } = &self.quotas;
        let most = all.streams.min(client.streams).min(u32::from(*session_streams));
        if u32::from(ask.streams) > most {
            return Err(Denied::Streams { asked: ask.streams, most });
        }
        // To wait among those that are counted would be to wait for the one that it is there for.
        if ask.uncounted && self.running.values().filter(|running| running.ask.uncounted).count() >= UNCOUNTED {
            return Err(Denied::QueueFull { held_by: Whose::All, whose: Whose::All, waiting: 0, wait: None });
        }
        match ask.time {
            Some(asked) if asked > *session_time => Err(Denied::Time { asked, most: *session_time }),
            _ => Ok(()),
        }
    }

    /// Whether what is said beforehand can be paid from what is left.
    fn affordable(&self, client: Client, ask: &Ask, now: Instant) -> Result<(), Denied> {
        self.bytes_for(client, ask.bytes, now)?;
        self.seconds_for(client, ask.time, now).map(drop)
    }

    fn place_to_wait(&self, client: Client, ask: &Ask, now: Instant) -> Result<(), Denied> {
        let own = self.accounts.get(&client).map_or(0, |account| account.waiting.len()) as u32;
        let all = self.waiting() as u32;
        let (whose, waiting) = match () {
            () if own > 0 && own >= self.quotas.client_queue => (Whose::Client, own),
            () if all > 0 && all >= self.quotas.queue => (Whose::All, all),
            // Where nobody may wait, whoever does not go in at once is turned away.
            () if self.waits(client, ask, now) && self.quotas.client_queue == 0 => (Whose::Client, own),
            () if self.waits(client, ask, now) && self.quotas.queue == 0 => (Whose::All, all),
            () => return Ok(()),
        };
        let wait = self.expected(now).values().map(|expected| expected.wait).max().flatten();
        Err(Denied::QueueFull { held_by: self.held_by(client, ask, now), whose, waiting, wait })
    }

    /// Whether a session that nobody waits before would have to wait.
    fn waits(&self, client: Client, ask: &Ask, now: Instant) -> bool {
        matches!(self.fit(client, ask, now), Fit::Own | Fit::Shared)
    }

    /// Whose quota makes a session wait.
    pub(super) fn held_by(&self, client: Client, ask: &Ask, now: Instant) -> Whose {
        if matches!(self.fit(client, ask, now), Fit::Own) { Whose::Client } else { Whose::All }
    }

    fn fit(&self, client: Client, ask: &Ask, now: Instant) -> Fit {
        if ask.uncounted {
            return Fit::Now(Allowed { streams: ask.streams, ..Allowed::default() });
        }
        let own = self.accounts.get(&client);
        let (sessions, streams) = own.map_or((0, 0), |own| (own.sessions, own.streams));
        let asked = u32::from(ask.streams);
        let Quotas { all, client: share, clients, .. } = &self.quotas;
        if sessions >= share.sessions || streams + asked > share.streams {
            return Fit::Own;
        }
        let waiting = own.map_or(1, |own| own.waiting.len());
        let Some(rate) = part(share, sessions, own.map_or(BitRate(0), |own| own.rate), waiting, ask.rate) else {
            return Fit::Own;
        };
        let newcomer = sessions == 0 && self.clients >= *clients;
        if newcomer || self.all.sessions >= all.sessions || self.all.streams + asked > all.streams {
            return Fit::Shared;
        }
        let Some(rate) = part(all, self.all.sessions, self.all.rate, self.waiting(), rate) else { return Fit::Shared };
        match (self.bytes_for(client, None, now), self.seconds_for(client, None, now)) {
            (Err(denied), _) | (_, Err(denied)) => Fit::Never(denied),
            (Ok(bytes), Ok(time)) => Fit::Now(Allowed {
                streams: ask.streams,
                rate,
                bytes,
                time: [time, ask.time, (!ask.unbounded).then_some(self.quotas.session_time)]
                    .into_iter()
                    .flatten()
                    .min(),
            }),
        }
    }

    fn start(&mut self, Waiting { id, ask }: Waiting, client: Client, allowed: Allowed, now: Instant) {
        if !ask.uncounted {
            let own = self.accounts.entry(client).or_default();
            self.clients += u32::from(own.sessions == 0);
            for account in [&mut self.all, own] {
                account.sessions += 1;
                account.streams += u32::from(allowed.streams);
                account.rate.0 = account.rate.0.saturating_add(allowed.rate.unwrap_or_default().0);
            }
        }
        let running = Running { client, ask, allowed, since: now, taken: Bytes(0), moved: Bytes(0), charged: now };
        self.running.insert(id, running);
    }

    fn leave_queue(&mut self, client: Client, id: u64) {
        let Some(account) = self.accounts.get_mut(&client) else { return };
        account.waiting.retain(|waiting| waiting.id != id);
        if account.waiting.is_empty() {
            self.order.retain(|other| *other != client);
        }
    }

    /// The least that is left of the bytes, and whose that is; `None` without a quota.
    fn bytes_left(&self, client: Client, now: Instant) -> Option<(Whose, Bytes)> {
        let left = |whose, share: &Share, spent: Bytes| {
            share.bytes.map(|limit| (whose, Bytes(limit.0.saturating_sub(spent.0))))
        };
        let (own, all) = (self.spent(client, now), self.spent_by_all(now));
        let both =
            [left(Whose::Client, &self.quotas.client, own.bytes()), left(Whose::All, &self.quotas.all, all.bytes())];
        both.into_iter().flatten().min_by_key(|(_, left)| *left)
    }

    /// What is left of the bytes, if it is as much as asked for and not nothing.
    fn bytes_for(&self, client: Client, asked: Option<Bytes>, now: Instant) -> Result<Option<Bytes>, Denied> {
        let Some((whose, left)) = self.bytes_left(client, now) else { return Ok(None) };
        if left.0 > 0 && asked.is_none_or(|asked| asked <= left) {
            return Ok(Some(left));
        }
        Err(self.too_few(whose, client, asked, left, now))
    }

    fn too_few(&self, whose: Whose, client: Client, asked: Option<Bytes>, left: Bytes, now: Instant) -> Denied {
        let (share, spent) = self.quota(whose, client, now);
        let (limit, window) = (share.bytes.unwrap_or_default(), self.quotas.window);
        let most = Bytes(limit.0.saturating_sub(asked.map_or(1, |asked| asked.0)));
        let again = spent.again(most, Duration::MAX, window, now);
        Denied::Bytes { whose, asked, left, limit, window, again }
    }

    /// What is left of the seconds, if it is as much as asked for and not nothing.
    fn seconds_for(&self, client: Client, asked: Option<Duration>, now: Instant) -> Result<Option<Duration>, Denied> {
        let left = |whose| {
            let (share, spent) = self.quota(whose, client, now);
            share.time.map(|limit| (whose, limit, limit.saturating_sub(spent.time())))
        };
        let both = [left(Whose::Client), left(Whose::All)];
        let Some((whose, limit, left)) = both.into_iter().flatten().min_by_key(|(.., left)| *left) else {
            return Ok(None);
        };
        if !left.is_zero() && asked.is_none_or(|asked| asked <= left) {
            return Ok(Some(left));
        }
        let window = self.quotas.window;
        let most = limit.saturating_sub(asked.unwrap_or(Duration::from_secs(1)));
        let again = self.quota(whose, client, now).1.again(Bytes(u64::MAX), most, window, now);
        Err(Denied::Seconds { whose, asked, left, limit, window, again })
    }

    fn quota(&self, whose: Whose, client: Client, now: Instant) -> (Share, Spent) {
        match whose {
            Whose::Client => (self.quotas.client, self.spent(client, now)),
            Whose::All => (self.quotas.all, self.spent_by_all(now)),
        }
    }

    fn spent(&self, client: Client, now: Instant) -> Spent {
        let mut spent = self.accounts.get(&client).map(|account| account.spent.clone()).unwrap_or_default();
        spent.forget(self.quotas.window, now);
        spent
    }

    fn spent_by_all(&self, now: Instant) -> Spent {
        let mut spent = self.all.spent.clone();
        spent.forget(self.quotas.window, now);
        spent
    }

    /// Keeps the number of accounts within bounds.
    fn forget_somebody(&mut self) {
        if self.accounts.len() < REMEMBERED {
            return;
        }
        let idle = |account: &Account| account.sessions == 0 && account.waiting.is_empty();
        let blank = |account: &Account| idle(account) && account.spent.is_empty();
        let before = self.accounts.len();
        self.accounts.retain(|_, account| !blank(account));
        if self.accounts.len() == before {
            let oldest = self.accounts.iter().filter(|(_, account)| idle(account)).min_by_key(|(_, a)| a.seen);
            if let Some(client) = oldest.map(|(client, _)| *client) {
                self.accounts.remove(&client);
            }
        }
    }
}

/// The part of a share's rate that a session gets which asks for `asked`: what is free, dealt evenly among those that
/// wait for a place. `None` if it would be less than its even part of the whole: then it waits for others to end.
fn part(
    share: &Share,
    sessions: u32,
    taken: BitRate,
    waiting: usize,
    asked: Option<BitRate>,
) -> Option<Option<BitRate>> {
    let Some(whole) = share.rate else { return Some(asked) };
    let free = whole.0.saturating_sub(taken.0);
    let even = (whole.0 / u64::from(share.sessions.max(1))).max(1);
    let places = u64::from(share.sessions.saturating_sub(sessions)).max(1);
    let dealt = (free / (waiting as u64).clamp(1, places)).max(even).min(free);
    let wanted = asked.map_or(dealt, |asked| asked.0.min(dealt));
    let least = asked.map_or(even, |asked| asked.0.min(even)).max(1);
    (wanted >= least).then_some(Some(BitRate(wanted)))
}
