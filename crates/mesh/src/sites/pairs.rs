//! Pairs of hosts of a test, in the order of the group.

use std::collections::BTreeSet;

use super::model::{Directions, GroupPairs, Host, Sites, Test};

/// Two hosts in one direction, by their numbers in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPair {
    pub from: usize,
    pub to: usize,
}

/// All hosts with their numbers, and the hosts of each site.
pub struct HostTable<'s> {
    sites: &'s Sites,
    hosts: Vec<&'s Host>,
    /// Number of the first host of each site.
    first: Vec<usize>,
}

impl<'s> HostTable<'s> {
    /// Numbers the hosts in the order of the file.
    pub fn new(sites: &'s Sites) -> Self {
        let mut first = Vec::new();
        let mut hosts = Vec::new();
        for site in &sites.sites {
            first.push(hosts.len());
            hosts.extend(&site.hosts);
        }
        HostTable { sites, hosts, first }
    }

    /// Returns the host of a number.
    pub fn host(&self, number: usize) -> &'s Host {
        self.hosts[number]
    }

    /// Returns the number of hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Reports whether there is no host.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Returns the numbers of the hosts that a member means: those of a site, or one host.
    pub fn member(&self, name: &str) -> std::ops::Range<usize> {
        if let Some(&site) = self.sites.site_index.get(name) {
            return self.first[site]..self.first[site] + self.sites.sites[site].hosts.len();
        }
        match self.sites.host_index.get(name) {
            Some(place) => self.first[place.site] + place.host..self.first[place.site] + place.host + 1,
            None => 0..0,
        }
    }

    /// Returns the number of pairs of a test without the pairs themselves, counted before duplicates are removed.
    pub fn count(&self, test: &Test) -> u64 {
        let size = |name: &String| self.member(name).len() as u64;
        let sum = |names: &[String]| names.iter().map(size).sum::<u64>();
        let mesh = |sizes: &mut dyn Iterator<Item = u64>| {
            let (all, own) = sizes.fold((0, 0), |(all, own), size| (all + size, own + size * size));
            (all * all - own) / 2
        };
        let pairs = match self.group_of(test) {
            None => mesh(&mut self.sites.sites.iter().map(|site| site.hosts.len() as u64)),
            Some(GroupPairs::Mesh { members }) => mesh(&mut members.iter().map(size)),
            Some(GroupPairs::Star { center, members }) => size(center) * sum(members),
            Some(GroupPairs::List { pairs }) => pairs.iter().map(|[a, b]| size(a) * size(b)).sum(),
            Some(GroupPairs::Between { from, to }) => sum(from) * sum(to),
        };
        if test.directions == Directions::Both { 2 * pairs } else { pairs }
    }

    fn group_of(&self, test: &Test) -> Option<&'s GroupPairs> {
        let name = test.group.as_ref()?;
        self.sites.groups.iter().find(|group| group.name == *name).map(|group| &group.pairs)
    }

    /// Returns the pairs of a test: each direction of each pair once.
    pub fn pairs(&self, test: &Test) -> Vec<HostPair> {
        let mut pairs = PairList { directions: test.directions, seen: BTreeSet::new(), pairs: Vec::new() };
        let members = |names: &[String]| names.iter().map(|name| self.member(name)).collect::<Vec<_>>();
        match self.group_of(test) {
            None => {
                let sites: Vec<_> = self.sites.sites.iter().map(|site| self.member(&site.name)).collect();
                pairs.add_mesh(&sites);
            }
            Some(GroupPairs::Mesh { members: names }) => pairs.add_mesh(&members(names)),
            Some(GroupPairs::Star { center, members: names }) => {
                for member in members(names) {
                    pairs.add_all(self.member(center), member);
                }
            }
            Some(GroupPairs::List { pairs: listed }) => {
                for [first, second] in listed {
                    pairs.add_all(self.member(first), self.member(second));
                }
            }
            Some(GroupPairs::Between { from, to }) => {
                for sender in members(from) {
                    for receiver in members(to) {
                        pairs.add_all(sender.clone(), receiver);
                    }
                }
            }
        }
        pairs.pairs
    }

    /// Returns the hosts of a test of counters.
    pub fn hosts_of(&self, test: &Test) -> BTreeSet<usize> {
        let names: Vec<&String> = match self.group_of(test) {
            None => return (0..self.hosts.len()).collect(),
            Some(GroupPairs::Mesh { members }) => members.iter().collect(),
            Some(GroupPairs::Star { center, members }) => std::iter::once(center).chain(members).collect(),
            Some(GroupPairs::List { pairs }) => pairs.iter().flatten().collect(),
            Some(GroupPairs::Between { from, to }) => from.iter().chain(to).collect(),
        };
        names.into_iter().flat_map(|name| self.member(name)).collect()
    }
}

/// Pairs in order, each direction once.
struct PairList {
    directions: Directions,
    seen: BTreeSet<HostPair>,
    pairs: Vec<HostPair>,
}

impl PairList {
    fn add_mesh(&mut self, members: &[std::ops::Range<usize>]) {
        for (at, first) in members.iter().enumerate() {
            for second in &members[at + 1..] {
                self.add_all(first.clone(), second.clone());
            }
        }
    }

    fn add_all(&mut self, senders: std::ops::Range<usize>, receivers: std::ops::Range<usize>) {
        for from in senders {
            for to in receivers.clone() {
                if self.directions != Directions::Reverse {
                    self.add(HostPair { from, to });
                }
                if self.directions != Directions::Forward {
                    self.add(HostPair { from: to, to: from });
                }
            }
        }
    }

    fn add(&mut self, pair: HostPair) {
        if pair.from != pair.to && self.seen.insert(pair) {
            self.pairs.push(pair);
        }
    }
}
