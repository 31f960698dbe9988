//! The hosts of a mesh: those of the sites file, and those that only the archive knows.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_mesh::entry::Entry;
use lfn_mesh::sites::{Site, Sites};

/// Age from which a measurement without a planned interval is stale.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(2 * 86_400);
/// Intervals after which a measurement is stale.
const STALE_INTERVALS: u32 = 2;
/// Name of the group of hosts that only the archive knows.
pub(crate) const UNLISTED: &str = "not in the sites file";

/// The mesh as the pages need it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mesh {
    pub name: String,
    pub sites: Vec<MeshSite>,
    /// Site of each host, as the position in `sites`.
    places: BTreeMap<String, usize>,
    /// Interval of each test by its name.
    intervals: BTreeMap<String, Duration>,
}

/// A site and the names of its hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeshSite {
    pub name: String,
    pub hosts: Vec<String>,
}

impl Mesh {
    /// Returns the mesh of a sites file, and a last site with the hosts that only the archive has.
    pub fn new(sites: &Sites, archived: &[String]) -> Self {
        let mut mesh = Mesh { name: sites.name.clone(), ..Mesh::default() };
        mesh.intervals = sites.tests.iter().map(|test| (test.name.clone(), test.interval)).collect();
        let hosts = |site: &Site| site.hosts.iter().map(|host| host.name.clone()).collect();
        mesh.sites = sites.sites.iter().map(|site| MeshSite { name: site.name.clone(), hosts: hosts(site) }).collect();
        for (place, site) in mesh.sites.iter().enumerate() {
            mesh.places.extend(site.hosts.iter().map(|host| (host.clone(), place)));
        }
        let unlisted = archived.iter().filter(|name| !mesh.places.contains_key(*name));
        let unlisted: Vec<String> = unlisted.cloned().collect();
        if !unlisted.is_empty() {
            let place = mesh.sites.len();
            mesh.places.extend(unlisted.iter().map(|host| (host.clone(), place)));
            mesh.sites.push(MeshSite { name: UNLISTED.to_owned(), hosts: unlisted });
        }
        mesh
    }

    /// Returns the number of hosts, also of those that only the archive knows.
    pub fn host_count(&self) -> usize {
        self.places.len()
    }

    /// Returns the name of the site of a host.
    pub fn site_of(&self, host: &str) -> Option<&str> {
        self.place_of(host).and_then(|place| self.sites.get(place)).map(|site| site.name.as_str())
    }

    /// Returns the position of the site of a host.
    pub fn place_of(&self, host: &str) -> Option<usize> {
        self.places.get(host).copied()
    }

    /// Returns the host of a name: the host itself, or the first host of the site, preferably one in `archived`.
    pub fn host_of<'a>(&'a self, name: &'a str, archived: &[String]) -> Option<&'a str> {
        if self.places.contains_key(name) {
            return Some(name);
        }
        let hosts = &self.sites.iter().find(|site| site.name == name)?.hosts;
        hosts.iter().find(|host| archived.contains(host)).or(hosts.first()).map(String::as_str)
    }

    /// Returns the planned interval of the test of an entry.
    pub fn interval(&self, entry: &Entry) -> Option<Duration> {
        self.intervals.get(&entry.test).copied()
    }

    /// Returns the age from which an entry is stale: two intervals of its test.
    pub fn max_age(&self, entry: &Entry) -> Duration {
        self.interval(entry).map_or(DEFAULT_MAX_AGE, |interval| interval.saturating_mul(STALE_INTERVALS))
    }
}
