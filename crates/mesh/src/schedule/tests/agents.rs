//! Agents in virtual time, with wrong clocks and restarts: no resource ever carries two loads.

use std::time::Duration;

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{TODAY, Use, any_sites, any_two_plans, check_uses, sites_of};
use crate::schedule::timing::{CLOSING_TIME, LATEST_START, MAX_CLOCK_ERROR, START_PAUSE};
use crate::schedule::{Dated, DatedPlans, DayPlan, LoadStarter, Slot, next_valid_from};
use crate::sites::Sites;

/// Steps of the virtual time.
const STEP: Duration = Duration::from_millis(100);

/// A plan that agents hear of.
#[derive(Clone, Copy)]
struct Announced<'p> {
    plan: &'p DayPlan,
    valid_from: Duration,
}

impl Dated for Announced<'_> {
    fn valid_from(&self) -> Duration {
        self.valid_from
    }
}

/// An agent with its own clock. A restarted agent has forgotten everything but its plans.
struct Agent<'p> {
    host: String,
    plans: DatedPlans<Announced<'p>>,
    /// A plan that the agent hears of at a true time, or when it is up again.
    news: Option<(Duration, Announced<'p>)>,
    /// Clock minus true time plus one second: 0 to 2 s.
    clock: Duration,
    /// `None` after a failure.
    starter: Option<LoadStarter>,
    running: Option<(Slot, Duration)>,
    /// True time at which the agent is up again.
    down_until: Duration,
}

impl<'p> Agent<'p> {
    fn new(host: &str, plan: &'p DayPlan, random: &mut Pcg64Mcg) -> Self {
        let clock = Duration::from_millis(random.random_range(0..=2000));
        let mut plans = DatedPlans::default();
        plans.announce(Announced { plan, valid_from: Duration::ZERO }, Duration::ZERO);
        let host = host.to_owned();
        Agent { host, plans, news: None, clock, starter: None, running: None, down_until: Duration::ZERO }
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

    /// Moves the agent to `now`.
    fn step(&mut self, now: Duration, random: &mut Pcg64Mcg, uses: &mut Vec<Use>) {
        if now < self.down_until {
            return;
        }
        let local = self.local(now);
        if let Some((_, plan)) = self.news.take_if(|(heard, _)| *heard <= now) {
            self.plans.announce(plan, local);
        }
        if self.running.as_ref().is_some_and(|(slot, _)| local >= slot.deadline()) {
            self.end(now, uses);
        }
        let starter = self.starter.get_or_insert_with(|| LoadStarter::new(local));
        let Some((announced, validity)) = self.plans.valid_at(local) else { return };
        let slot = starter.due(announced.plan, &self.host, local);
        if let Some(slot) = slot.filter(|slot| validity.permits(slot)) {
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
    let mut agents: Vec<Agent> = hosts.iter().map(|host| Agent::new(host, plan, &mut random)).collect();
    let mut uses = Vec::new();
    let Some(last) = plan.slots.get(slots.min(plan.slots.len()).saturating_sub(1)) else { return uses };
    let mut now = plan.slots[0].start - 5 * MAX_CLOCK_ERROR;
    while now <= last.end() + 3 * MAX_CLOCK_ERROR {
        let mut is_busy = false;
        for agent in &mut agents {
            agent.step(now, &mut random, &mut uses);
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

/// Runs all agents while a second plan is announced: they hear of it within a minute. Returns the loads in true time, and the
/// time from which the second plan is valid.
fn change_plans(sites: [&Sites; 2], plans: [&DayPlan; 2], announced: Duration, seed: u64) -> (Vec<Use>, Duration) {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let valid_from = next_valid_from(announced, sites[0]);
    let next = Announced { plan: plans[1], valid_from };
    let mut agents: Vec<Agent> = sites[0].hosts().map(|host| Agent::new(&host.name, plans[0], &mut random)).collect();
    for agent in &mut agents {
        agent.news = Some((announced + Duration::from_millis(random.random_range(0..60_000)), next));
    }
    let mut uses = Vec::new();
    let mut now = announced - Duration::from_secs(300);
    while now <= valid_from + Duration::from_secs(300) {
        for agent in &mut agents {
            agent.step(now, &mut random, &mut uses);
        }
        now += STEP;
    }
    for agent in &mut agents {
        agent.end(now, &mut uses);
    }
    (uses, valid_from)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn change_of_the_plan_never_overlaps_loads((old, new) in any_two_plans(), minute in 10..1400_u64, seed in any::<u64>()) {
        let plans = [DayPlan::of_day(&old, TODAY), DayPlan::of_day(&new, TODAY)];
        let announced = TODAY + Duration::from_secs(minute * 60 + seed % 60);
        let (uses, valid_from) = change_plans([&old, &new], [&plans[0], &plans[1]], announced, seed);
        check_uses(&new, &uses)?;
        // The last load of the old plan has ended.
        let moment = Duration::from_secs(1);
        let is_of = |plan: &DayPlan, item: &Use| {
            let mut near = plan.slots.iter().filter(|slot| slot.start <= item.start + 2 * moment && item.start <= slot.end());
            near.any(|slot| *slot.from == *item.from && *slot.to == *item.to)
        };
        for item in uses.iter().filter(|item| item.end > valid_from) {
            prop_assert!(item.start + moment >= valid_from && is_of(&plans[1], item), "{item:?}");
        }
    }

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

#[test]
fn a_plan_is_announced_before_it_is_valid() {
    let sites = sites_of(2, &super::load("t", "1d", "time = \"10min\""));
    let now = TODAY + Duration::from_millis(1);
    // Notice, the longest slot and the guard are 697 s.
    assert_eq!(next_valid_from(now, &sites), TODAY + Duration::from_secs(12 * 60));
    assert_eq!(next_valid_from(now, &sites_of(2, "")), TODAY + Duration::from_secs(2 * 60));
    let plans = [DayPlan::of_day(&sites, TODAY), DayPlan::of_day(&sites_of(3, ""), TODAY)];
    let mut known = DatedPlans::default();
    let at = |second: u64| TODAY + Duration::from_secs(second);
    known.announce(Announced { plan: &plans[0], valid_from: Duration::ZERO }, at(0));
    known.announce(Announced { plan: &plans[1], valid_from: at(120) }, at(0));
    let valid = |known: &mut DatedPlans<Announced>, second: u64| {
        known.valid_at(at(second)).map(|(plan, validity)| (plan.valid_from, validity.until))
    };
    assert_eq!(valid(&mut known, 119), Some((Duration::ZERO, Some(at(120)))));
    assert_eq!(valid(&mut known, 120), Some((at(120), None)));
    // A clock that is set back does not bring the old plan back.
    assert_eq!(valid(&mut known, 60), Some((at(120), None)));
}
