//! Resources that a load occupies alone: its two hosts, their interfaces, and the bottlenecks on its path.

use std::collections::BTreeMap;

use lfn_base::units::BitRate;

use crate::sites::pairs::HostPair;
use crate::sites::{Bottleneck, Sites};

/// Something that carries a limited number of loads at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Host {
        name: String,
    },
    /// An interface that several hosts of a site share, or that one host has.
    Interface {
        site: String,
        name: String,
    },
    Bottleneck {
        name: String,
    },
}

impl Resource {
    /// Returns the kind as a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Resource::Host { .. } => "host",
            Resource::Interface { .. } => "interface",
            Resource::Bottleneck { .. } => "bottleneck",
        }
    }

    /// Returns the name; the name of an interface has its site in front.
    pub fn name(&self) -> String {
        match self {
            Resource::Host { name } | Resource::Bottleneck { name } => name.clone(),
            Resource::Interface { site, name } => format!("{site}/{name}"),
        }
    }
}

/// A site or a host that a pair of a bottleneck names, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Site(usize),
    Host(usize),
}

/// All resources of a mesh. A resource is known by its number: hosts first, then interfaces, then bottlenecks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    pub list: Vec<Resource>,
    /// Number of loads at a time of each resource.
    pub lanes: Vec<u64>,
    /// Capacity of each resource, if the file has it.
    pub capacity: Vec<Option<BitRate>>,
    /// Number of each host by name.
    pub hosts: BTreeMap<String, usize>,
    /// Interface of each host.
    interfaces: Vec<Option<usize>>,
    /// Number of the site of each host.
    site_of: Vec<usize>,
    /// Bottlenecks of each site.
    by_site: Vec<Vec<usize>>,
    /// Bottlenecks of pairs, in both orders.
    by_pair: BTreeMap<[Place; 2], Vec<usize>>,
}

impl Resources {
    /// Collects the resources of a mesh.
    pub fn new(sites: &Sites) -> Self {
        let mut resources = Resources {
            list: Vec::new(),
            lanes: Vec::new(),
            capacity: Vec::new(),
            hosts: BTreeMap::new(),
            interfaces: Vec::new(),
            site_of: Vec::new(),
            by_site: vec![Vec::new(); sites.sites.len()],
            by_pair: BTreeMap::new(),
        };
        for (number, host) in sites.hosts().enumerate() {
            resources.hosts.insert(host.name.clone(), number);
            resources.add(Resource::Host { name: host.name.clone() }, 1, host.rate);
        }
        let mut interfaces = BTreeMap::new();
        for (site, item) in sites.sites.iter().enumerate() {
            for host in &item.hosts {
                let interface = host.interface.as_ref().map(|name| {
                    *interfaces.entry((site, name)).or_insert_with(|| {
                        let resource = Resource::Interface { site: item.name.clone(), name: name.clone() };
                        resources.add(resource, 1, None)
                    })
                });
                resources.interfaces.push(interface);
                resources.site_of.push(site);
            }
        }
        let site_numbers: BTreeMap<&str, usize> =
            sites.sites.iter().enumerate().map(|(number, site)| (site.name.as_str(), number)).collect();
        for bottleneck in &sites.bottlenecks {
            resources.add_bottleneck(bottleneck, &site_numbers);
        }
        resources
    }

    fn add(&mut self, resource: Resource, lanes: u64, capacity: Option<BitRate>) -> usize {
        self.list.push(resource);
        self.lanes.push(lanes);
        self.capacity.push(capacity);
        self.list.len() - 1
    }

    fn add_bottleneck(&mut self, bottleneck: &Bottleneck, sites: &BTreeMap<&str, usize>) {
        let resource = Resource::Bottleneck { name: bottleneck.name.clone() };
        let number = self.add(resource, bottleneck.loads, Some(bottleneck.capacity));
        for site in bottleneck.sites.iter().filter_map(|name| sites.get(name.as_str())) {
            self.by_site[*site].push(number);
        }
        for [first, second] in &bottleneck.pairs {
            let place = |name: &String| match sites.get(name.as_str()) {
                Some(site) => Some(Place::Site(*site)),
                None => self.hosts.get(name).map(|host| Place::Host(*host)),
            };
            let (Some(first), Some(second)) = (place(first), place(second)) else { continue };
            for pair in [[first, second], [second, first]] {
                self.by_pair.entry(pair).or_default().push(number);
            }
        }
    }

    /// Returns the resources of a pair in ascending order, each once.
    pub fn of_pair(&self, pair: HostPair) -> Vec<usize> {
        let mut numbers = vec![pair.from, pair.to];
        numbers.extend([pair.from, pair.to].into_iter().filter_map(|host| self.interfaces[host]));
        numbers.extend(self.bottlenecks_of(pair));
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns the bottlenecks on the path of a pair. Traffic inside of a site passes only bottlenecks that name the pair.
    pub fn bottlenecks_of(&self, pair: HostPair) -> Vec<usize> {
        let (from, to) = (self.site_of[pair.from], self.site_of[pair.to]);
        let mut numbers = Vec::new();
        if from != to {
            numbers.extend(self.by_site[from].iter().chain(&self.by_site[to]));
        }
        if !self.by_pair.is_empty() {
            for first in [Place::Site(from), Place::Host(pair.from)] {
                for second in [Place::Site(to), Place::Host(pair.to)] {
                    numbers.extend(self.by_pair.get(&[first, second]).into_iter().flatten());
                }
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns the lowest known rate on the path of a pair: of its hosts and of its bottlenecks.
    pub fn rate_of(&self, pair: HostPair) -> Option<BitRate> {
        let hosts = [pair.from, pair.to].into_iter();
        hosts.chain(self.bottlenecks_of(pair)).filter_map(|number| self.capacity[number]).min()
    }

    /// Returns the number of the site of a host.
    pub fn site_of(&self, host: usize) -> usize {
        self.site_of[host]
    }
}
