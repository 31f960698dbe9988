//! Agents in virtual time, with wrong clocks and restarts: no resource ever carries two loads.

use std::time::Duration;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{TODAY, Use, any_sites, check_uses, sites_of};
use crate::schedule::timing::{CLOSING_TIME, LATEST_START, MAX_CLOCK_ERROR, START_PAUSE};
use crate::schedule::{DayPlan, LoadStarter, Slot};

/// Steps of the virtual time.
const STEP: Duration = Duration::from_millis(100);

/// An agent with its own clock. A restarted agent has forgotten everything.
struct Agent {
    host: String,
    /// Clock minus true time plus one second: 0 to 2 s.
    clock: Duration,
    /// `None` after a failure.
    starter: Option<LoadStarter>,
    running: Option<(Slot, Duration)>,
    /// True time at which the agent is up again.
    down_until: Duration,
}

impl Agent {
    fn new(host: &str, random: &mut Pcg64Mcg) -> Self {
        let clock = Duration::from_millis(random.random_range(0..=2000));
        Agent { host: host.to_owned(), clock, starter: None, running: None, down_until: Duration::ZERO }
    }

    /// Returns the time by the clock of the agent.
    fn local(&self, now: Duration) -> Duration {
        now + self.clock - MAX_CLOCK_ERROR
    }

    /// Ends the running load. Its last data arrives later; the agent notices the deadline up to one step late.
    fn end(&mut self, now: Duration, uses: &mut Vec<Use>) {
        if let Some((slot, start)) = self.running.take() {
            let end = now + CLOSING_TIME - STEP;
            uses.push(Use { from: slot.from.to_string(), to: slot.to.to_string(), start, end });
        }
    }

    fn step(&mut self, plan: &DayPlan, now: Duration, random: &mut Pcg64Mcg, uses: &mut Vec<Use>) {
        if now < self.down_until {
            return;
        }
        let local = self.local(now);
        if self.running.as_ref().is_some_and(|(slot, _)| local >= slot.deadline()) {
            self.end(now, uses);
        }
        let starter = self.starter.get_or_insert_with(|| LoadStarter::new(local));
        if let Some(slot) = starter.due(plan, &self.host, local) {
            assert!(self.running.is_none(), "{} starts {slot:?} during another load", self.host);
            self.running = Some((slot.clone(), now));
        }
        // The agent fails rarely, more often during a load, and comes back after up to 30 s, sometimes at once.
        let failures = if self.running.is_some() { 200 } else { 20_000 };
        if random.random_range(0..failures) == 0 {
            self.end(now, uses);
            self.starter = None;
            let pause = random.random_range(0..30_000_u64);
            self.down_until = now + Duration::from_millis(if pause % 2 == 0 { 0 } else { pause });
            self.clock = Duration::from_millis(random.random_range(0..=2000));
        }
    }
}

/// Runs all agents over the first slots of a day, and returns the loads in true time.
fn run_agents(plan: &DayPlan, hosts: &[String], seed: u64, slots: usize) -> Vec<Use> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut agents: Vec<Agent> = hosts.iter().map(|host| Agent::new(host, &mut random)).collect();
    let mut uses = Vec::new();
    let Some(last) = plan.slots.get(slots.min(plan.slots.len()).saturating_sub(1)) else { return uses };
    let mut now = plan.slots[0].start - 5 * MAX_CLOCK_ERROR;
    while now <= last.end() + 3 * MAX_CLOCK_ERROR {
        let mut is_busy = false;
        for agent in &mut agents {
            agent.step(plan, now, &mut random, &mut uses);
            is_busy |= agent.running.is_some();
        }
        // Nothing happens before the next slot.
        let next = plan.slots[plan.slots.partition_point(|slot| slot.start <= now)..].first();
        let quiet = next.map(|next| next.start - 4 * MAX_CLOCK_ERROR).filter(|quiet| !is_busy && *quiet > now);
        now = quiet.unwrap_or(now + STEP);
    }
    for agent in &mut agents {
        agent.end(now, &mut uses);
    }
    uses
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn wrong_clocks_and_restarts_never_overlap_loads(sites in any_sites(), seed in any::<u64>()) {
        let plan = DayPlan::of_day(&sites, TODAY);
        let hosts: Vec<String> = sites.hosts().map(|host| host.name.clone()).collect();
        let uses = run_agents(&plan, &hosts, seed, 150);
        check_uses(&sites, &uses)?;
    }
}

#[test]
fn agents_run_every_slot_of_a_quiet_day() {
    let sites = sites_of(5, &super::load("t", "6h", "time = \"10s\""));
    let plan = DayPlan::of_day(&sites, TODAY);
    let mut starter = LoadStarter::new(TODAY - Duration::from_secs(10));
    let (mut started, mut now) = (0, TODAY);
    while now < TODAY + Duration::from_secs(86_400) {
        started += u32::from(starter.due(&plan, "s0", now).is_some());
        now += Duration::from_millis(500);
    }
    // Four other hosts, four windows; s0 is the client of the loads that it sends.
    assert_eq!(started, 16);
}

#[test]
fn a_missed_slot_is_not_started_late() {
    let sites = sites_of(2, &super::load("t", "1d", "directions = \"forward\""));
    let plan = DayPlan::of_day(&sites, TODAY);
    let start = plan.slots[0].start;
    let at = |host: &str, now: Duration| LoadStarter::new(TODAY).due(&plan, host, now).map(|slot| slot.start);
    let moment = Duration::from_millis(1);
    assert_eq!(at("s0", start - moment), None);
    assert_eq!(at("s0", start), Some(start));
    assert_eq!(at("s0", start + LATEST_START), Some(start));
    assert_eq!(at("s0", start + LATEST_START + moment), None);
    assert_eq!(at("s1", start), None);
    let mut starter = LoadStarter::new(TODAY);
    assert!(starter.due(&plan, "s0", start).is_some() && starter.due(&plan, "s0", start).is_none());
    // An agent that started a moment ago waits for the next slot.
    assert!(LoadStarter::new(start - START_PAUSE).due(&plan, "s0", start).is_none());
}
