//! The hosts of a mesh: those of the sites file, and those that only the archive knows.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_mesh::entry::Entry;
use lfn_mesh::sites::Sites;

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

/// A site and its hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeshSite {
    pub name: String,
    /// City or building; empty if unknown.
    pub place: String,
    pub hosts: Vec<MeshHost>,
    pub contacts: Vec<Vec<String>>,
    pub circuits: Vec<Vec<String>>,
    pub maintenance: Vec<String>,
}

/// A host of a site.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeshHost {
    pub name: String,
    /// Program that runs on the host; empty if unknown.
    pub kind: &'static str,
    pub address: String,
}

impl Mesh {
    /// Returns the mesh of a sites file, and a last site with the hosts that only the archive has.
    pub fn new(sites: &Sites, archived: &[String]) -> Self {
        let mut mesh = Mesh { name: sites.name.clone(), ..Mesh::default() };
        mesh.intervals = sites.tests.iter().map(|test| (test.name.clone(), test.interval)).collect();
        mesh.sites = sites.sites.iter().map(|site| super::site::describe(sites, site)).collect();
        for (place, site) in mesh.sites.iter().enumerate() {
            mesh.places.extend(site.hosts.iter().map(|host| (host.name.clone(), place)));
        }
        let unlisted = archived.iter().filter(|name| !mesh.places.contains_key(*name));
        let unlisted: Vec<_> = unlisted.map(|name| MeshHost { name: name.clone(), ..MeshHost::default() }).collect();
        if !unlisted.is_empty() {
            let place = mesh.sites.len();
            mesh.places.extend(unlisted.iter().map(|host| (host.name.clone(), place)));
            mesh.sites.push(MeshSite { name: UNLISTED.to_owned(), hosts: unlisted, ..MeshSite::default() });
        }
        mesh
    }

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

    pub fn site(&self, name: &str) -> Option<&MeshSite> {
        self.sites.iter().find(|site| site.name == name)
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
