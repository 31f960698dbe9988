//! One site: its hosts, contacts, circuits, maintenance windows and pairs.

use std::time::Duration;

use lfn_base::units::show_duration;
use lfn_mesh::entry::Entry;
use lfn_mesh::sites::{Maintenance, MaintenanceScope, Site, Sites};

use super::matrix::{Pairs, pair_rows, worst_first};
use super::mesh::Mesh;
use crate::format;

/// Pairs of a site.
const MAX_PAIRS: usize = 200;

/// The page of a site.
#[derive(Debug, Clone)]
pub(crate) struct SiteView {
    pub mesh: String,
    pub now: Duration,
    pub name: String,
    /// City or building; empty if unknown.
    pub place: String,
    /// Name, program, address, interface and rate of each host.
    pub hosts: Vec<[String; 5]>,
    /// Role, name and mail address.
    pub contacts: Vec<[String; 3]>,
    /// Name, other site, operator, capacity, RTT and bottleneck.
    pub circuits: Vec<[String; 6]>,
    /// Start, end and reason of the windows that are open or next.
    pub maintenance: Vec<[String; 3]>,
    pub pairs: Pairs,
}

impl SiteView {
    /// Returns the page of a site; `None` if there is no such site.
    pub fn new(sites: &Sites, mesh: &Mesh, name: &str, latest: &[Entry], now: Duration) -> Option<Self> {
        let members = &mesh.sites.iter().find(|site| site.name == name)?.hosts;
        let rows = pair_rows(mesh, latest, now);
        let is_own = |host: &str| mesh.site_of(host) == Some(name);
        let pairs = worst_first(rows.iter().filter(|row| is_own(&row.from) || is_own(&row.to)), MAX_PAIRS);
        let unlisted = |name: &String| [name.clone(), String::new(), String::new(), String::new(), String::new()];
        let view = SiteView {
            mesh: mesh.name.clone(),
            now,
            name: name.to_owned(),
            place: String::new(),
            hosts: members.iter().map(unlisted).collect(),
            contacts: Vec::new(),
            circuits: Vec::new(),
            maintenance: Vec::new(),
            pairs,
        };
        let Some(site) = sites.site(name) else { return Some(view) };
        let contact = |role: &str, contact: &lfn_mesh::sites::Contact| {
            [role.to_owned(), contact.name.clone(), contact.mail.clone()]
        };
        let operators = sites.operators.iter().filter(|operator| {
            let serves = |circuit: &&lfn_mesh::sites::Circuit| {
                circuit.operator.as_ref() == Some(&operator.name) && circuit.between.iter().any(|end| end == name)
            };
            sites.circuits.iter().any(|circuit| serves(&circuit))
        });
        let operators = operators.flat_map(|operator| {
            operator.contacts.iter().map(|person| contact(&format!("operator {}", operator.name), person))
        });
        Some(SiteView {
            place: site.place.clone().unwrap_or_default(),
            hosts: hosts(site),
            contacts: site.contacts.iter().map(|person| contact(person.role.name(), person)).chain(operators).collect(),
            circuits: circuits(sites, name),
            maintenance: maintenance(sites, site, now),
            ..view
        })
    }
}

fn hosts(site: &Site) -> Vec<[String; 5]> {
    let host = |host: &lfn_mesh::sites::Host| {
        let address = host.address.clone().unwrap_or_else(|| "dials only".to_owned());
        let rate = host.rate.map(|rate| rate.to_string()).unwrap_or_default();
        [host.name.clone(), host.kind.name().to_owned(), address, host.interface.clone().unwrap_or_default(), rate]
    };
    site.hosts.iter().map(host).collect()
}

fn circuits(sites: &Sites, name: &str) -> Vec<[String; 6]> {
    let own = sites.circuits.iter().filter(|circuit| circuit.between.iter().any(|end| end == name));
    let row = |circuit: &lfn_mesh::sites::Circuit| {
        let [first, second] = &circuit.between;
        [
            circuit.name.clone(),
            if first == name { second.clone() } else { first.clone() },
            circuit.operator.clone().unwrap_or_default(),
            circuit.capacity.map(|capacity| capacity.to_string()).unwrap_or_default(),
            circuit.rtt.map(show_duration).unwrap_or_default(),
            circuit.bottleneck.clone().unwrap_or_default(),
        ]
    };
    own.map(row).collect()
}

/// Returns the windows that concern a site, the next one of each.
fn maintenance(sites: &Sites, site: &Site, now: Duration) -> Vec<[String; 3]> {
    let is_own = |name: &String| *name == site.name || site.hosts.iter().any(|host| host.name == *name);
    let concerns = |work: &&Maintenance| match &work.scope {
        MaintenanceScope::Site(name) => *name == site.name,
        MaintenanceScope::Pair(pair) => pair.iter().any(is_own),
        MaintenanceScope::Circuit(name) => {
            sites.circuit(name).is_some_and(|circuit| circuit.between.iter().any(is_own))
        }
    };
    let row = |work: &Maintenance| {
        let window = work.window(now)?;
        let reason = work.reason.clone().unwrap_or_default();
        Some([format::minute(window.start), format::minute(window.end), reason])
    };
    sites.maintenance.iter().filter(concerns).filter_map(row).collect()
}
