//! The contents of a sites file, checked: every name that an item refers to exists.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};

use super::maintenance::Maintenance;
use crate::entry::EntryKind;

/// A mesh: its sites, tests and contacts. Items have the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sites {
    /// Name of the mesh.
    pub name: String,
    pub sites: Vec<Site>,
    pub operators: Vec<Operator>,
    pub bottlenecks: Vec<Bottleneck>,
    pub circuits: Vec<Circuit>,
    pub groups: Vec<Group>,
    pub tests: Vec<Test>,
    pub audiences: Vec<Audience>,
    pub maintenance: Vec<Maintenance>,
    pub hub: HubSettings,
    pub(super) host_index: BTreeMap<String, HostPlace>,
    pub(super) site_index: BTreeMap<String, usize>,
}

/// Place of a host in the list of sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostPlace {
    pub site: usize,
    pub host: usize,
}

impl Sites {
    /// Returns all hosts in the order of the file.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.sites.iter().flat_map(|site| &site.hosts)
    }

    /// Returns the host of this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        let place = self.host_index.get(name)?;
        self.sites.get(place.site)?.hosts.get(place.host)
    }

    /// Returns the site of this name.
    pub fn site(&self, name: &str) -> Option<&Site> {
        self.sites.get(*self.site_index.get(name)?)
    }

    /// Returns the bottleneck of this name.
    pub fn bottleneck(&self, name: &str) -> Option<&Bottleneck> {
        self.bottlenecks.iter().find(|bottleneck| bottleneck.name == name)
    }

    /// Returns the circuit of this name.
    pub fn circuit(&self, name: &str) -> Option<&Circuit> {
        self.circuits.iter().find(|circuit| circuit.name == name)
    }

    /// Returns the test of this name.
    pub fn test(&self, name: &str) -> Option<&Test> {
        self.tests.iter().find(|test| test.name == name)
    }
}

/// A place with hosts and the persons who are responsible for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub name: String,
    /// City or building of the site.
    pub place: Option<String>,
    /// Bytes a day that the loads of the hosts of this site may send and receive together.
    pub budget: Option<Bytes>,
    pub contacts: Vec<Contact>,
    pub hosts: Vec<Host>,
}

/// A person or a list of persons with a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    pub name: String,
    pub mail: String,
    pub role: Role,
}

/// Role of a contact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Responsible for hosts and tests.
    Technical,
    /// Operates the circuits of the site.
    Operator,
    /// Receives reports of misuse.
    Security,
}

impl Role {
    /// All roles with their names in the file.
    pub(super) const CHOICES: &'static [(&'static str, Role)] =
        &[("technical", Role::Technical), ("operator", Role::Operator), ("security", Role::Security)];

    /// Returns the name in the file.
    pub fn name(self) -> &'static str {
        name_of(Self::CHOICES, self)
    }
}

/// Returns the name of a value in its list of choices.
fn name_of<T: PartialEq>(choices: &[(&'static str, T)], value: T) -> &'static str {
    choices.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

/// A host that measures or is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    /// Name of the site of the host.
    pub site: String,
    /// Host name or IP address, with or without a port. `None` only for a dial-only host.
    pub address: Option<String>,
    pub kind: HostKind,
    /// Name of the interface, unique in the site. Hosts with the same interface never carry two loads at once.
    pub interface: Option<String>,
    /// Maximum throughput of the interface of the host.
    pub rate: Option<BitRate>,
    /// The host accepts no connections, because it is behind NAT or a firewall.
    pub dial_only: bool,
    /// UDP port of the STAMP reflector of a host of kind `serve`.
    pub stamp_port: Option<u16>,
}

impl Host {
    /// Reports whether the host has a server for tests of the kind.
    pub fn serves(&self, kind: EntryKind) -> bool {
        self.kind.serves(kind) && !self.lacks_reflector(kind)
    }

    /// Reports whether only the missing port of a reflector excludes tests of the kind.
    pub fn lacks_reflector(&self, kind: EntryKind) -> bool {
        kind == EntryKind::Latency && self.kind == HostKind::Serve && self.stamp_port.is_none()
    }
}

/// Program that runs on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostKind {
    /// `lfn mesh agent`: client and server of all tests.
    Agent,
    /// `lfn serve`: server of loads, and a STAMP reflector with `--stamp`.
    Serve,
    /// `iperf3 -s`: server of loads.
    Iperf3,
    /// A STAMP reflector (RFC 8762).
    Stamp,
}

impl HostKind {
    /// All kinds with their names in the file.
    pub(super) const CHOICES: &'static [(&'static str, HostKind)] = &[
        ("agent", HostKind::Agent),
        ("serve", HostKind::Serve),
        ("iperf3", HostKind::Iperf3),
        ("stamp", HostKind::Stamp),
    ];

    /// Returns the name in the file.
    pub fn name(self) -> &'static str {
        name_of(Self::CHOICES, self)
    }

    /// Reports whether this program answers tests of the kind.
    pub fn serves(self, kind: EntryKind) -> bool {
        match kind {
            EntryKind::Load => self != HostKind::Stamp,
            EntryKind::Latency => self != HostKind::Iperf3,
            EntryKind::Path | EntryKind::Counters => true,
        }
    }
}

/// The organisation that operates circuits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    pub name: String,
    pub contacts: Vec<Contact>,
}

/// A named part of the network that limits the traffic of several pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bottleneck {
    pub name: String,
    pub capacity: BitRate,
    /// Names of sites. Traffic between one of them and another site passes the bottleneck.
    pub sites: Vec<String>,
    /// Pairs of sites or hosts whose traffic passes the bottleneck, in both directions.
    pub pairs: Vec<[String; 2]>,
    /// Maximum number of loads at a time, from 1 on.
    pub loads: u64,
}

/// A line between two sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circuit {
    pub name: String,
    /// Names of the two sites.
    pub between: [String; 2],
    /// Name of the operator.
    pub operator: Option<String>,
    pub capacity: Option<BitRate>,
    /// RTT of the circuit.
    pub rtt: Option<Duration>,
    /// Name of the bottleneck that the circuit is part of.
    pub bottleneck: Option<String>,
}

/// A named set of pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub pairs: GroupPairs,
}

/// Pairs of a group. A name is a site, and then means each of its hosts, or a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupPairs {
    /// Every two of the members.
    Mesh { members: Vec<String> },
    /// The center with each member.
    Star { center: String, members: Vec<String> },
    /// The listed pairs, no others.
    List { pairs: Vec<[String; 2]> },
    /// Each name of `from` with each name of `to`.
    Between { from: Vec<String>, to: Vec<String> },
}

/// A kind of measurement of all pairs of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    pub name: String,
    pub kind: EntryKind,
    /// Name of the group; `None` is the mesh of all sites.
    pub group: Option<String>,
    /// Time between two measurements of a pair. The interval of a load divides a day or is a whole number of days.
    pub interval: Duration,
    /// Maximum length of a load, whole seconds; of a latency test, the length of one measurement.
    pub time: Duration,
    /// Maximum bytes of one load.
    pub bytes: Option<Bytes>,
    /// Streams of a load; `None` leaves the choice to the client.
    pub streams: Option<u64>,
    /// Congestion control of a load.
    pub congestion: Option<String>,
    pub directions: Directions,
}

/// Directions of the pairs of a test. Forward is the order of the group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Directions {
    #[default]
    Both,
    Forward,
    Reverse,
}

impl Directions {
    /// All values with their names in the file.
    pub(super) const CHOICES: &'static [(&'static str, Directions)] =
        &[("both", Directions::Both), ("forward", Directions::Forward), ("reverse", Directions::Reverse)];
}

/// Receivers of notices about the mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience {
    pub name: String,
    pub kind: AudienceKind,
    /// Names of sites whose contacts belong to the audience; empty: all sites.
    pub sites: Vec<String>,
    /// Roles of these contacts; empty: all roles.
    pub roles: Vec<Role>,
    /// Mail addresses of other members.
    pub mails: Vec<String>,
}

/// Purpose of an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AudienceKind {
    /// Notices of the operator; no discussion.
    Announce,
    /// Users of the mesh, read only.
    Public,
    /// Decides about the mesh.
    Committee,
    /// Every member can write to all members.
    Discussion,
}

impl AudienceKind {
    /// All kinds with their names in the file.
    pub(super) const CHOICES: &'static [(&'static str, AudienceKind)] = &[
        ("announce", AudienceKind::Announce),
        ("public", AudienceKind::Public),
        ("committee", AudienceKind::Committee),
        ("discussion", AudienceKind::Discussion),
    ];

    /// Returns the name in the file.
    pub fn name(self) -> &'static str {
        name_of(Self::CHOICES, self)
    }
}

/// Settings of the hub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HubSettings {
    /// Host name or IP address, with or without a port, that agents dial.
    pub address: Option<String>,
    /// Time after which the archive deletes the details of a result.
    pub keep_detail: Option<Duration>,
}
