//! Path MTU discovery that needs no ICMP (RFC 8899): padded probes that the peer acknowledges, and nothing else believed.
//!
//! A probe that is not acknowledged says nothing by itself: packets get lost. Only a size of which [`MOST_TRIES`] probes
//! in a row were lost counts as too large (`MAX_PROBES`, RFC 8899 §5.1.2), and a later acknowledgement undoes that. A
//! long path has no time for one size after the other, so a round asks for several at once: first the sizes that links
//! usually have, then ever finer steps between the largest acknowledged and the smallest lost. An ICMP message is a hint
//! which size to try next, never more (§4.6.1). One search is one direction; who sends the probes is the caller's matter.

use std::time::Duration;

use super::report::{MtuFound, Searched};
use crate::time::Instant;

/// Probes of one size that must be lost in a row for it to count as too large (RFC 8899 §5.1.2).
pub const MOST_TRIES: u8 = 3;
/// The size that should get through everywhere (`BASE_PLPMTU`, RFC 8899 §5.1.2).
pub const BASE: u32 = 1200;
/// The size that must (`MIN_PLPMTU`): what every IPv4 host has to take (RFC 1122 §3.3.2).
pub const LEAST: u32 = 576;
/// Largest packet IP can carry without jumbograms.
pub const MOST: u32 = 65_535;
/// Sizes asked for between two bounds in one round.
const STEPS: u32 = 8;
/// MTUs that links and tunnels have: Ethernet (RFC 894) and less one or more of PPPoE, GRE, IPsec, VXLAN and 6in4 headers,
/// IPv6's least (RFC 8200), FDDI (RFC 1390), ATM (RFC 2225), HIPPI (RFC 2067), jumbo frames.
const USUAL: [u32; 18] =
    [1280, 1350, 1380, 1400, 1420, 1440, 1450, 1462, 1476, 1480, 1492, 1500, 4352, 4470, 8900, 9000, 9180, 16_384];

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The sender's interface takes nothing larger (`MAX_PLPMTU`).
    pub most: u32,
    /// How long an acknowledgement may take (`PROBE_TIMER`, which §5.1.1 wants well above the round-trip time).
    pub wait: Duration,
    /// Time between two probes, so that they are no burst.
    pub gap: Duration,
    /// How long the whole search may take.
    pub within: Duration,
}

impl Settings {
    /// For a path of this round-trip time.
    pub fn new(most: u32, rtt: Duration) -> Self {
        Settings {
            most: most.clamp(LEAST, MOST),
            wait: rtt + rtt / 4 + Duration::from_millis(80),
            gap: Duration::from_millis(1),
            within: Duration::from_secs(20),
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send a probe of this size, numbered so.
    Send {
        /// IP packet, bytes.
        size: u32,
        /// Different for each probe.
        number: u32,
    },
    /// Nothing until then, unless something arrives.
    Wait(Instant),
    /// The search is over.
    Done,
}

/// A size in the present round.
#[derive(Clone, Copy, Debug)]
struct Asked {
    size: u32,
    tries: u8,
    /// When its last probe may still be answered.
    due: Instant,
}

/// One search of one direction.
#[derive(Debug)]
pub struct Search {
    settings: Settings,
    deadline: Instant,
    /// The largest acknowledged.
    confirmed: Option<u32>,
    /// The smallest given up.
    lost: Option<u32>,
    round: Vec<Asked>,
    hints: Vec<u32>,
    next_send: Instant,
    sent: u32,
    arrived: u32,
    /// Probes that were not acknowledged yet, as (number, size).
    open: Vec<(u32, u32)>,
}

impl Search {
    /// Begins.
    pub fn new(settings: Settings, now: Instant) -> Self {
        let mut search = Search {
            settings,
            deadline: now + settings.within,
            confirmed: None,
            lost: None,
            round: Vec::new(),
            hints: Vec::new(),
            next_send: now,
            sent: 0,
            arrived: 0,
            open: Vec::new(),
        };
        let usual = USUAL.into_iter().chain([LEAST, BASE, settings.most]);
        search.ask(usual.collect(), now);
        search
    }

    /// What to do at `now`.
    pub fn next(&mut self, now: Instant) -> Next {
        if self.is_complete() || now >= self.deadline {
            return Next::Done;
        }
        if self.give_up(now) {
            let sizes = self.between();
            self.ask(sizes, now);
            if self.round.is_empty() {
                return Next::Done;
            }
        }
        let gap = self.next_send;
        match self.due(now) {
            Some(_) if now < gap => Next::Wait(gap.min(self.deadline)),
            Some(index) => self.send(index, now),
            None => {
                let next = self.round.iter().map(|asked| asked.due).min().unwrap_or(self.deadline);
                Next::Wait(next.min(self.deadline))
            }
        }
    }

    /// The peer says that probe `number` of `size` arrived. What was never sent is not believed.
    pub fn acknowledged(&mut self, number: u32, size: u32) {
        let Some(at) = self.open.iter().position(|&probe| probe == (number, size)) else { return };
        self.open.swap_remove(at);
        self.arrived += 1;
        self.confirmed = self.confirmed.max(Some(size));
        // What was given up too early, or lost by chance.
        self.lost = self.lost.filter(|&lost| lost > size);
        self.round.retain(|asked| asked.size > size);
    }

    /// Something on the way, or the sender's own kernel, said that no more than `mtu` fits: a size to try, if it is one
    /// that could be (RFC 8899 §4.6.2).
    pub fn told(&mut self, mtu: u32) {
        let lowest = self.confirmed.map_or(LEAST, |confirmed| confirmed + 1);
        if (lowest..self.settings.most).contains(&mtu) && !self.hints.contains(&mtu) && self.hints.len() < 8 {
            self.hints.push(mtu);
        }
    }

    /// The sender cannot send more than this at all: its interface is smaller than was thought.
    pub fn limited(&mut self, most: u32) {
        self.settings.most = self.settings.most.min(most.max(LEAST));
        let most = self.settings.most;
        self.round.retain(|asked| asked.size <= most);
        if self.round.iter().all(|asked| asked.size != most) && self.confirmed < Some(most) {
            self.round.push(Asked { size: most, tries: 0, due: Instant::ZERO });
        }
    }

    /// What was found; `None` if not even the least size was acknowledged.
    pub fn found(&self) -> Option<MtuFound> {
        Some(MtuFound {
            path_mtu_bytes: self.confirmed?,
            smallest_lost_bytes: self.lost,
            search: if self.is_complete() { Searched::Complete } else { Searched::OutOfTime },
            probes_sent: self.sent,
            probes_arrived: self.arrived,
            black_hole: false,
        })
    }

    fn is_complete(&self) -> bool {
        match (self.confirmed, self.lost) {
            (Some(confirmed), _) if confirmed >= self.settings.most => true,
            (Some(confirmed), Some(lost)) => lost <= confirmed + 1,
            _ => false,
        }
    }

    /// Takes sizes that were lost often enough out of the round; says whether the round is over.
    fn give_up(&mut self, now: Instant) -> bool {
        let given_up = |asked: &Asked| asked.tries >= MOST_TRIES && now >= asked.due;
        let lost = self.round.iter().filter(|asked| given_up(asked)).map(|asked| asked.size).min();
        if let Some(lost) = lost {
            self.lost = Some(self.lost.map_or(lost, |before| before.min(lost)));
            // The larger ones need no more tries.
            self.round.retain(|asked| asked.size < lost);
        }
        self.round.is_empty()
    }

    /// The next sizes to ask for: even steps between the bounds, and what was hinted at with the next larger size.
    fn between(&mut self) -> Vec<u32> {
        // Without an acknowledgement there is no bound to search from; without a loss none to search up to.
        let low = self.confirmed.map_or(0, |confirmed| confirmed + 1);
        let high = self.lost.unwrap_or(self.settings.most + 1);
        if self.confirmed.is_none() || low >= high {
            return Vec::new();
        }
        let span = high - low;
        let mut sizes: Vec<u32> = match span {
            1..=STEPS => (low..high).collect(),
            _ => (1..=STEPS)
                .map(|step| low - 1 + (u64::from(span) * u64::from(step) / u64::from(STEPS + 1)) as u32)
                .collect(),
        };
        for hint in self.hints.drain(..) {
            sizes.extend([hint, hint + 1].into_iter().filter(|size| (low..high).contains(size)));
        }
        sizes
    }

    /// Makes these sizes the round, the largest first: it may spare all others.
    fn ask(&mut self, mut sizes: Vec<u32>, now: Instant) {
        sizes.retain(|size| (LEAST..=self.settings.most).contains(size));
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        self.round = sizes.into_iter().map(|size| Asked { size, tries: 0, due: now }).collect();
    }

    /// The size that is to be sent next: the one with the fewest tries whose time has come.
    fn due(&self, now: Instant) -> Option<usize> {
        let ready = self.round.iter().enumerate().filter(|(_, asked)| asked.tries < MOST_TRIES && now >= asked.due);
        ready.min_by_key(|(_, asked)| asked.tries).map(|(index, _)| index)
    }

    fn send(&mut self, index: usize, now: Instant) -> Next {
        self.next_send = now + self.settings.gap;
        let asked = &mut self.round[index];
        asked.tries += 1;
        asked.due = now + self.settings.wait;
        let (size, number) = (asked.size, self.sent);
        self.sent += 1;
        self.open.push((number, size));
        Next::Send { size, number }
    }
}
