//! A traceroute of one flow: the next probe to send, and the hops from its answers.
//!
//! The machine creates probes (a number and a TTL), several in flight, and takes their answers. It knows no protocol:
//! the caller reports that a probe expired, arrived or was refused. Some routers quote too little of a probe to
//! identify it. Their answers are accepted only while a single probe is in flight, so the trace then sends one probe at
//! a time. A hop without an answer is a hop without nodes, not an error.

use core::net::IpAddr;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_results::path_report::{Hop, Label, Node, TraceEnd};

/// Settings of a traceroute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracerouteSettings {
    /// Maximum number of hops.
    pub max_hops: u8,
    pub probes: u8,
    /// Maximum number of probes in flight.
    pub in_flight: usize,
    /// Unanswered probes after which a hop gets no more probes.
    pub silent_probes: u8,
    /// Consecutive silent hops after which the trace ends.
    pub silent_hops: u8,
    /// Time to wait for an answer.
    pub probe_timeout: Duration,
    /// Maximum duration of the trace.
    pub time_limit: Duration,
}

impl Default for TracerouteSettings {
    fn default() -> Self {
        TracerouteSettings {
            max_hops: 30,
            probes: 3,
            in_flight: 12,
            silent_probes: 3,
            silent_hops: 6,
            probe_timeout: Duration::from_secs(1),
            time_limit: Duration::from_secs(15),
        }
    }
}

/// Outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The TTL expired at a router.
    Expired,
    /// The probe reached the destination.
    Arrived,
    /// A router reported the destination as unreachable.
    Refused,
}

/// An answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopAnswer {
    pub outcome: ProbeOutcome,
    /// Address that sent the answer.
    pub from: IpAddr,
    /// MPLS labels in the answer, if any.
    pub mpls: Vec<Label>,
}

/// The next action of a traceroute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracerouteAction {
    Send {
        /// Unique number of the probe.
        number: u16,
        ttl: u8,
    },
    /// Wait until then, or until something arrives.
    Wait(Instant),
    Done,
}

#[derive(Debug)]
struct Probe {
    ttl: u8,
    sent: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    InFlight,
    Lost,
    Answered(Duration, HopAnswer),
}

/// A traceroute of one flow.
#[derive(Debug)]
pub struct Traceroute {
    settings: TracerouteSettings,
    deadline: Instant,
    probes: Vec<Probe>,
    /// Lowest TTL of a probe that arrived or was refused.
    last: Option<(u8, ProbeOutcome)>,
    end: Option<TraceEnd>,
    /// No probe is sent before this time, because answers that cannot be matched may still be in flight.
    quiet_until: Option<Instant>,
}

impl Traceroute {
    /// Starts a trace at `now`.
    pub fn new(settings: TracerouteSettings, now: Instant) -> Self {
        Traceroute {
            settings,
            deadline: now + settings.time_limit,
            probes: Vec::new(),
            last: None,
            end: None,
            quiet_until: None,
        }
    }

    /// Returns the action at `now`. A probe of [`TracerouteAction::Send`] counts as sent at that time.
    pub fn next(&mut self, now: Instant) -> TracerouteAction {
        self.expire_probes(now);
        if self.end.is_none() && now >= self.deadline {
            self.end = Some(TraceEnd::OutOfTime);
        }
        if self.end.is_some() {
            return TracerouteAction::Done;
        }
        if let Some(until) = self.quiet_until.filter(|&until| now < until) {
            return TracerouteAction::Wait(until.min(self.deadline));
        }
        match self.next_step() {
            NextStep::Ttl(ttl) if self.in_flight().count() < self.settings.in_flight => self.send(ttl, now),
            NextStep::End(end) if self.in_flight().next().is_none() => {
                self.end = Some(end);
                TracerouteAction::Done
            }
            _ => {
                let due = self.in_flight().map(|probe| probe.sent + self.settings.probe_timeout).min();
                TracerouteAction::Wait(due.unwrap_or(self.deadline).min(self.deadline))
            }
        }
    }

    /// Handles the answer to probe `number`.
    pub fn on_answer(&mut self, number: u16, answer: HopAnswer, now: Instant) {
        let Some(probe) = self.probes.get_mut(usize::from(number)) else { return };
        // The first answer counts, also if the probe was given up before.
        if matches!(probe.state, State::Answered(..)) {
            return;
        }
        let (ttl, outcome) = (probe.ttl, answer.outcome);
        probe.state = State::Answered(now.saturating_since(probe.sent), answer);
        if outcome != ProbeOutcome::Expired && self.last.is_none_or(|(last, _)| ttl < last) {
            self.last = Some((ttl, outcome));
        }
    }

    /// Handles an answer without a probe number. Returns whether only one probe can be meant.
    pub fn on_unmatched_answer(&mut self, answer: HopAnswer, now: Instant) -> bool {
        let mut open = self.probes.iter().enumerate().filter(|(_, probe)| matches!(probe.state, State::InFlight));
        let only = open.next().map(|(number, _)| number).filter(|_| open.next().is_none());
        // A probe that was sent earlier could also be meant, so nothing is certain.
        match only.and_then(|number| u16::try_from(number).ok()) {
            Some(number) if self.settings.in_flight == 1 || self.probes.len() == 1 => {
                self.on_answer(number, answer, now);
                true
            }
            _ => {
                self.probe_one_at_a_time(now);
                false
            }
        }
    }

    /// Switches to one probe at a time. Probes in flight are given up and sent again.
    fn probe_one_at_a_time(&mut self, now: Instant) {
        if self.settings.in_flight > 1 {
            self.quiet_until = Some(now + self.settings.probe_timeout);
            self.settings.in_flight = 1;
            // Unanswered probes are sent again, as if they had never been sent.
            for probe in self.probes.iter_mut().filter(|probe| !matches!(probe.state, State::Answered(..))) {
                probe.ttl = 0;
                probe.state = State::Lost;
            }
        }
    }

    /// Returns the hops so far in order, and the reason for the end.
    pub fn hops(&self) -> (Vec<Hop>, TraceEnd) {
        let last = self.last.map(|(ttl, _)| ttl);
        let highest = self.probes.iter().map(|probe| probe.ttl).max().unwrap_or(0);
        let answered = self.answered_ttls().max().unwrap_or(0);
        let count = last.unwrap_or(match self.end {
            // Silence at the end has no information per hop.
            Some(TraceEnd::Silent) => (answered + 1).min(highest),
            _ => highest,
        });
        let hops = (1..=count).map(|ttl| self.hop(ttl, last)).collect();
        (hops, self.end.unwrap_or(TraceEnd::OutOfTime))
    }

    fn hop(&self, ttl: u8, last: Option<u8>) -> Hop {
        let is_last = last == Some(ttl);
        // Probes with a higher TTL than the destination's also arrived there.
        let of_hop = |probe: &&Probe| {
            probe.ttl == ttl || is_last && probe.ttl > ttl && matches!(probe.state, State::Answered(..))
        };
        let mut hop = Hop { ttl, ..Hop::default() };
        for probe in self.probes.iter().filter(of_hop) {
            hop.probes = hop.probes.saturating_add(1);
            let State::Answered(rtt, answer) = &probe.state else { continue };
            let index = hop.nodes.iter().position(|node| node.address == answer.from).unwrap_or_else(|| {
                let mpls = answer.mpls.clone();
                hop.nodes.push(Node { address: answer.from, name: None, rtt_seconds: Vec::new(), mpls });
                hop.nodes.len() - 1
            });
            hop.nodes[index].rtt_seconds.push((*rtt).into());
        }
        hop
    }

    fn expire_probes(&mut self, now: Instant) {
        let wait = self.settings.probe_timeout;
        for probe in &mut self.probes {
            if matches!(probe.state, State::InFlight) && now >= probe.sent + wait {
                probe.state = State::Lost;
            }
        }
    }

    fn in_flight(&self) -> impl Iterator<Item = &Probe> {
        let last = self.last.map_or(u8::MAX, |(ttl, _)| ttl);
        // Probes beyond the destination are not waited for.
        self.probes.iter().filter(move |probe| matches!(probe.state, State::InFlight) && probe.ttl <= last)
    }

    fn answered_ttls(&self) -> impl Iterator<Item = u8> {
        self.probes.iter().filter(|probe| matches!(probe.state, State::Answered(..))).map(|probe| probe.ttl)
    }

    /// Returns the lowest TTL that needs another probe.
    fn next_step(&self) -> NextStep {
        let (last, end) = match self.last {
            Some((ttl, ProbeOutcome::Refused)) => (ttl, TraceEnd::Unreachable),
            Some((ttl, _)) => (ttl, TraceEnd::Reached),
            None => (self.settings.max_hops, TraceEnd::TooFar),
        };
        let answered = self.answered_ttls().filter(|&ttl| ttl <= last).max().unwrap_or(0);
        let silent = answered.saturating_add(self.settings.silent_hops);
        for ttl in 1..=last {
            if ttl > silent && self.last.is_none() {
                return NextStep::End(TraceEnd::Silent);
            }
            if self.needs_probe(ttl) {
                return NextStep::Ttl(ttl);
            }
        }
        NextStep::End(end)
    }

    fn needs_probe(&self, ttl: u8) -> bool {
        let of_hop = || self.probes.iter().filter(move |probe| probe.ttl == ttl);
        let sent = of_hop().count();
        let lost = of_hop().filter(|probe| matches!(probe.state, State::Lost)).count();
        let is_silent = lost == sent && lost >= usize::from(self.settings.silent_probes);
        sent < usize::from(self.settings.probes) && !is_silent
    }

    fn send(&mut self, ttl: u8, now: Instant) -> TracerouteAction {
        // 30 hops of 3 probes, twice, are far below the maximum number.
        let number = u16::try_from(self.probes.len()).unwrap_or(u16::MAX);
        self.probes.push(Probe { ttl, sent: now, state: State::InFlight });
        TracerouteAction::Send { number, ttl }
    }
}

enum NextStep {
    Ttl(u8),
    End(TraceEnd),
}
