//! Which hop to ask next, and what its answers amount to.
//!
//! The machine of a trace of one flow: it hands out probes (a number and a TTL), several in flight, and takes answers. It
//! knows no protocol: that a probe expired, arrived or was refused is told to it. A router that quotes too little of a
//! probe for it to be recognised is believed only while one probe alone is in flight; such routers turn the trace into
//! one that asks one probe at a time. A hop that nobody answers for is a hop without nodes, not an error.

use core::net::IpAddr;
use std::time::Duration;

use super::extension::Label;
use super::report::{Hop, Node, TraceEnd};
use crate::time::Instant;

/// How to trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most hops.
    pub most_hops: u8,
    /// Probes for each hop.
    pub probes: u8,
    /// Probes in flight.
    pub in_flight: usize,
    /// Probes of a hop without an answer after which it is left alone.
    pub silent_probes: u8,
    /// Hops in a row without an answer after which the trace ends.
    pub silent_hops: u8,
    /// How long an answer may take.
    pub wait: Duration,
    /// How long the trace may take.
    pub within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            most_hops: 30,
            probes: 3,
            in_flight: 12,
            silent_probes: 3,
            silent_hops: 6,
            wait: Duration::from_secs(1),
            within: Duration::from_secs(15),
        }
    }
}

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A router's TTL ran out.
    Expired,
    /// The destination has it.
    Arrived,
    /// A router says that there is no way on.
    Refused,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What came of the probe.
    pub fate: Fate,
    /// Who says so.
    pub from: IpAddr,
    /// MPLS labels, if it tells any.
    pub mpls: Vec<Label>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send a probe.
    Send {
        /// Different for each.
        number: u16,
        /// Its TTL.
        ttl: u8,
    },
    /// Nothing until then, unless something arrives.
    Wait(Instant),
    /// The trace is over.
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
    Answered(Duration, Answer),
}

/// A trace.
#[derive(Debug)]
pub struct Traceroute {
    settings: Settings,
    deadline: Instant,
    probes: Vec<Probe>,
    /// The first TTL that arrived or was refused.
    last: Option<(u8, Fate)>,
    end: Option<TraceEnd>,
    /// Nothing is sent before: answers nobody can tell apart are still under way.
    quiet: Option<Instant>,
}

impl Traceroute {
    /// Begins.
    pub fn new(settings: Settings, now: Instant) -> Self {
        Traceroute { settings, deadline: now + settings.within, probes: Vec::new(), last: None, end: None, quiet: None }
    }

    /// What to do at `now`; a probe to be sent counts as sent then.
    pub fn next(&mut self, now: Instant) -> Next {
        self.give_up(now);
        if self.end.is_none() && now >= self.deadline {
            self.end = Some(TraceEnd::OutOfTime);
        }
        if self.end.is_some() {
            return Next::Done;
        }
        if let Some(until) = self.quiet.filter(|&until| now < until) {
            return Next::Wait(until.min(self.deadline));
        }
        match self.wanted() {
            Wanted::Ttl(ttl) if self.in_flight().count() < self.settings.in_flight => self.send(ttl, now),
            Wanted::End(end) if self.in_flight().next().is_none() => {
                self.end = Some(end);
                Next::Done
            }
            _ => {
                let due = self.in_flight().map(|probe| probe.sent + self.settings.wait).min();
                Next::Wait(due.unwrap_or(self.deadline).min(self.deadline))
            }
        }
    }

    /// Takes the answer to a probe.
    pub fn answered(&mut self, number: u16, answer: Answer, now: Instant) {
        let Some(probe) = self.probes.get_mut(usize::from(number)) else { return };
        // The first answer counts, also where it was given up before: it is here.
        if matches!(probe.state, State::Answered(..)) {
            return;
        }
        let (ttl, fate) = (probe.ttl, answer.fate);
        probe.state = State::Answered(now.saturating_since(probe.sent), answer);
        if fate != Fate::Expired && self.last.is_none_or(|(last, _)| ttl < last) {
            self.last = Some((ttl, fate));
        }
    }

    /// Takes an answer that does not say to which probe. Says whether it could be one probe's only.
    pub fn answered_unknown(&mut self, answer: Answer, now: Instant) -> bool {
        let mut open = self.probes.iter().enumerate().filter(|(_, probe)| matches!(probe.state, State::InFlight));
        let only = open.next().map(|(number, _)| number).filter(|_| open.next().is_none());
        // What was sent before alone could be meant too: then nothing is sure.
        match only.and_then(|number| u16::try_from(number).ok()) {
            Some(number) if self.settings.in_flight == 1 || self.probes.len() == 1 => {
                self.answered(number, answer, now);
                true
            }
            _ => {
                self.one_at_a_time(now);
                false
            }
        }
    }

    /// From here on one probe at a time. What is in flight is given up, so that it is asked again.
    fn one_at_a_time(&mut self, now: Instant) {
        if self.settings.in_flight > 1 {
            self.quiet = Some(now + self.settings.wait);
            self.settings.in_flight = 1;
            // Those without an answer are asked anew, as if they had not been sent.
            for probe in self.probes.iter_mut().filter(|probe| !matches!(probe.state, State::Answered(..))) {
                probe.ttl = 0;
                probe.state = State::Lost;
            }
        }
    }

    /// The hops so far, in order, and how it ended.
    pub fn hops(&self) -> (Vec<Hop>, TraceEnd) {
        let last = self.last.map(|(ttl, _)| ttl);
        let highest = self.probes.iter().map(|probe| probe.ttl).max().unwrap_or(0);
        let answered = self.answered_ttls().max().unwrap_or(0);
        let count = last.unwrap_or(match self.end {
            // Silence at the end says nothing hop by hop.
            Some(TraceEnd::Silent) => (answered + 1).min(highest),
            _ => highest,
        });
        let hops = (1..=count).map(|ttl| self.hop(ttl, last)).collect();
        (hops, self.end.unwrap_or(TraceEnd::OutOfTime))
    }

    fn hop(&self, ttl: u8, last: Option<u8>) -> Hop {
        let is_last = last == Some(ttl);
        // Probes that went further than the destination arrived there as well as those for it.
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

    fn give_up(&mut self, now: Instant) {
        let wait = self.settings.wait;
        for probe in &mut self.probes {
            if matches!(probe.state, State::InFlight) && now >= probe.sent + wait {
                probe.state = State::Lost;
            }
        }
    }

    fn in_flight(&self) -> impl Iterator<Item = &Probe> {
        let last = self.last.map_or(u8::MAX, |(ttl, _)| ttl);
        // Nobody waits for those beyond the destination.
        self.probes.iter().filter(move |probe| matches!(probe.state, State::InFlight) && probe.ttl <= last)
    }

    fn answered_ttls(&self) -> impl Iterator<Item = u8> {
        self.probes.iter().filter(|probe| matches!(probe.state, State::Answered(..))).map(|probe| probe.ttl)
    }

    /// The lowest TTL that wants another probe.
    fn wanted(&self) -> Wanted {
        let (last, end) = match self.last {
            Some((ttl, Fate::Refused)) => (ttl, TraceEnd::Unreachable),
            Some((ttl, _)) => (ttl, TraceEnd::Reached),
            None => (self.settings.most_hops, TraceEnd::TooFar),
        };
        let answered = self.answered_ttls().filter(|&ttl| ttl <= last).max().unwrap_or(0);
        let silent = answered.saturating_add(self.settings.silent_hops);
        for ttl in 1..=last {
            if ttl > silent && self.last.is_none() {
                return Wanted::End(TraceEnd::Silent);
            }
            if self.wants_more(ttl) {
                return Wanted::Ttl(ttl);
            }
        }
        Wanted::End(end)
    }

    fn wants_more(&self, ttl: u8) -> bool {
        let of_hop = || self.probes.iter().filter(move |probe| probe.ttl == ttl);
        let sent = of_hop().count();
        let lost = of_hop().filter(|probe| matches!(probe.state, State::Lost)).count();
        let is_silent = lost == sent && lost >= usize::from(self.settings.silent_probes);
        sent < usize::from(self.settings.probes) && !is_silent
    }

    fn send(&mut self, ttl: u8, now: Instant) -> Next {
        // 30 hops of 3 probes, twice: far from the end of the numbers.
        let number = u16::try_from(self.probes.len()).unwrap_or(u16::MAX);
        self.probes.push(Probe { ttl, sent: now, state: State::InFlight });
        Next::Send { number, ttl }
    }
}

enum Wanted {
    Ttl(u8),
    End(TraceEnd),
}
