//! Path MTU discovery without ICMP (RFC 8899): padded probes that the peer acknowledges.
//!
//! A single lost probe has no meaning, because packets get lost. A size counts as too large only after [`MAX_PROBES`]
//! consecutive losses (`MAX_PROBES`, RFC 8899 §5.1.2), and a later acknowledgement reverses that. A long path has no
//! time to try sizes one after the other, so a round probes several sizes at once: first the common sizes of links,
//! then ever finer steps between the largest acknowledged and the smallest lost size. An ICMP message is only a hint
//! for the next size (§4.6.1). One search covers one direction; the caller sends the probes.

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_results::path_report::{MtuFound, SearchEnd};

/// Consecutive lost probes after which a size counts as too large (RFC 8899 §5.1.2).
pub const MAX_PROBES: u8 = 3;
/// Size that should pass everywhere (`BASE_PLPMTU`, RFC 8899 §5.1.2).
pub const BASE_PLPMTU: u32 = 1200;
/// Minimum size that every path must carry (`MIN_PLPMTU`), because every IPv4 host must accept it (RFC 1122 §3.3.2).
pub const MIN_PLPMTU: u32 = 576;
/// Largest IP packet without jumbograms.
pub const MAX_PACKET: u32 = 65_535;
/// Sizes per round between two bounds.
const SIZES_PER_ROUND: u32 = 8;
/// Common MTUs of links and tunnels: Ethernet (RFC 894), Ethernet minus one or more of the PPPoE, GRE, IPsec, VXLAN and
/// 6in4 headers, the minimum of IPv6 (RFC 8200), FDDI (RFC 1390), ATM (RFC 2225), HIPPI (RFC 2067), jumbo frames.
const COMMON_MTUS: [u32; 18] =
    [1280, 1350, 1380, 1400, 1420, 1440, 1450, 1462, 1476, 1480, 1492, 1500, 4352, 4470, 8900, 9000, 9180, 16_384];

/// Settings of a path MTU search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtuSearchSettings {
    /// MTU of the sender's interface (`MAX_PLPMTU`).
    pub max_mtu: u32,
    /// Time to wait for an acknowledgement (`PROBE_TIMER`, which §5.1.1 requires to be well above the round-trip time).
    pub probe_timeout: Duration,
    /// Minimum time between two probes, so that they are not a burst.
    pub probe_interval: Duration,
    /// Maximum duration of the search.
    pub time_limit: Duration,
}

impl MtuSearchSettings {
    /// Returns the settings for an interface MTU and a round-trip time.
    pub fn new(mtu: u32, rtt: Duration) -> Self {
        MtuSearchSettings {
            max_mtu: mtu.clamp(MIN_PLPMTU, MAX_PACKET),
            probe_timeout: rtt + rtt / 4 + Duration::from_millis(80),
            probe_interval: Duration::from_millis(1),
            time_limit: Duration::from_secs(20),
        }
    }
}

/// The next action of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuSearchAction {
    /// Send a probe with this size and number.
    Send {
        /// Length of the IP packet, bytes.
        size: u32,
        /// Unique number of the probe.
        number: u32,
    },
    /// Wait until then, or until something arrives.
    Wait(Instant),
    Done,
}

/// A size of the current round.
#[derive(Clone, Copy, Debug)]
struct ProbedSize {
    size: u32,
    tries: u8,
    /// Deadline of the acknowledgement of its last probe.
    due: Instant,
}

/// A path MTU search in one direction.
#[derive(Debug)]
pub struct MtuSearch {
    settings: MtuSearchSettings,
    deadline: Instant,
    confirmed: Option<u32>,
    /// Smallest size that counts as too large.
    lost: Option<u32>,
    round: Vec<ProbedSize>,
    hints: Vec<u32>,
    next_send: Instant,
    sent: u32,
    arrived: u32,
    /// Unacknowledged probes as (number, size).
    open: Vec<(u32, u32)>,
}

impl MtuSearch {
    /// Starts a search at `now`.
    pub fn new(settings: MtuSearchSettings, now: Instant) -> Self {
        let mut search = MtuSearch {
            settings,
            deadline: now + settings.time_limit,
            confirmed: None,
            lost: None,
            round: Vec::new(),
            hints: Vec::new(),
            next_send: now,
            sent: 0,
            arrived: 0,
            open: Vec::new(),
        };
        let usual = COMMON_MTUS.into_iter().chain([MIN_PLPMTU, BASE_PLPMTU, settings.max_mtu]);
        search.start_round(usual.collect(), now);
        search
    }

    /// Returns the action at `now`.
    pub fn next(&mut self, now: Instant) -> MtuSearchAction {
        if self.is_complete() || now >= self.deadline {
            return MtuSearchAction::Done;
        }
        if self.mark_lost(now) {
            let sizes = self.next_sizes();
            self.start_round(sizes, now);
            if self.round.is_empty() {
                return MtuSearchAction::Done;
            }
        }
        let gap = self.next_send;
        match self.due(now) {
            Some(_) if now < gap => MtuSearchAction::Wait(gap.min(self.deadline)),
            Some(index) => self.send(index, now),
            None => {
                let next = self.round.iter().map(|probed| probed.due).min().unwrap_or(self.deadline);
                MtuSearchAction::Wait(next.min(self.deadline))
            }
        }
    }

    /// Handles an acknowledgement of probe `number` with `size`. An acknowledgement of a probe that was never sent is
    /// ignored.
    pub fn on_acknowledged(&mut self, number: u32, size: u32) {
        let Some(at) = self.open.iter().position(|&probe| probe == (number, size)) else { return };
        self.open.swap_remove(at);
        self.arrived += 1;
        self.confirmed = self.confirmed.max(Some(size));
        // The size was given up too early, or its probes were lost by chance.
        self.lost = self.lost.filter(|&lost| lost > size);
        self.round.retain(|probed| probed.size > size);
    }

    /// Takes the MTU of a packet-too-big message, or of the sender's own kernel, as the next size to try, if the size
    /// is possible (RFC 8899 §4.6.2).
    pub fn add_hint(&mut self, mtu: u32) {
        let lowest = self.confirmed.map_or(MIN_PLPMTU, |confirmed| confirmed + 1);
        if (lowest..self.settings.max_mtu).contains(&mtu) && !self.hints.contains(&mtu) && self.hints.len() < 8 {
            self.hints.push(mtu);
        }
    }

    /// Limits the search to the MTU of the sender's interface, which is smaller than expected.
    pub fn limit_mtu(&mut self, mtu: u32) {
        self.settings.max_mtu = self.settings.max_mtu.min(mtu.max(MIN_PLPMTU));
        let mtu = self.settings.max_mtu;
        self.round.retain(|probed| probed.size <= mtu);
        if self.round.iter().all(|probed| probed.size != mtu) && self.confirmed < Some(mtu) {
            self.round.push(ProbedSize { size: mtu, tries: 0, due: Instant::ZERO });
        }
    }

    /// Returns the result; `None` if not even the minimum size was acknowledged.
    pub fn result(&self) -> Option<MtuFound> {
        Some(MtuFound {
            path_mtu_bytes: self.confirmed?,
            smallest_lost_bytes: self.lost,
            search: if self.is_complete() { SearchEnd::Complete } else { SearchEnd::OutOfTime },
            probes_sent: self.sent,
            probes_arrived: self.arrived,
            black_hole: false,
        })
    }

    fn is_complete(&self) -> bool {
        match (self.confirmed, self.lost) {
            (Some(confirmed), _) if confirmed >= self.settings.max_mtu => true,
            (Some(confirmed), Some(lost)) => lost <= confirmed + 1,
            _ => false,
        }
    }

    /// Removes sizes from the round that were lost often enough; returns whether the round is over.
    fn mark_lost(&mut self, now: Instant) -> bool {
        let given_up = |probed: &ProbedSize| probed.tries >= MAX_PROBES && now >= probed.due;
        let lost = self.round.iter().filter(|probed| given_up(probed)).map(|probed| probed.size).min();
        if let Some(lost) = lost {
            self.lost = Some(self.lost.map_or(lost, |before| before.min(lost)));
            // A larger size needs no further probes.
            self.round.retain(|probed| probed.size < lost);
        }
        self.round.is_empty()
    }

    /// Returns the sizes of the next round: even steps between the bounds, and each hinted size with the next larger
    /// one.
    fn next_sizes(&mut self) -> Vec<u32> {
        // Without an acknowledgement the search has no lower bound; without a loss it has no upper bound.
        let low = self.confirmed.map_or(0, |confirmed| confirmed + 1);
        let high = self.lost.unwrap_or(self.settings.max_mtu + 1);
        if self.confirmed.is_none() || low >= high {
            return Vec::new();
        }
        let span = high - low;
        let mut sizes: Vec<u32> = match span {
            1..=SIZES_PER_ROUND => (low..high).collect(),
            _ => (1..=SIZES_PER_ROUND)
                .map(|step| low - 1 + (u64::from(span) * u64::from(step) / u64::from(SIZES_PER_ROUND + 1)) as u32)
                .collect(),
        };
        for hint in self.hints.drain(..) {
            sizes.extend([hint, hint + 1].into_iter().filter(|size| (low..high).contains(size)));
        }
        sizes
    }

    /// Starts a round with these sizes, the largest first, because its acknowledgement makes all others unnecessary.
    fn start_round(&mut self, mut sizes: Vec<u32>, now: Instant) {
        sizes.retain(|size| (MIN_PLPMTU..=self.settings.max_mtu).contains(size));
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        self.round = sizes.into_iter().map(|size| ProbedSize { size, tries: 0, due: now }).collect();
    }

    /// Returns the size to send next: of the due sizes, the one with the fewest tries.
    fn due(&self, now: Instant) -> Option<usize> {
        let ready = self.round.iter().enumerate().filter(|(_, probed)| probed.tries < MAX_PROBES && now >= probed.due);
        ready.min_by_key(|(_, probed)| probed.tries).map(|(index, _)| index)
    }

    fn send(&mut self, index: usize, now: Instant) -> MtuSearchAction {
        self.next_send = now + self.settings.probe_interval;
        let probed = &mut self.round[index];
        probed.tries += 1;
        probed.due = now + self.settings.probe_timeout;
        let (size, number) = (probed.size, self.sent);
        self.sent += 1;
        self.open.push((number, size));
        MtuSearchAction::Send { size, number }
    }
}
