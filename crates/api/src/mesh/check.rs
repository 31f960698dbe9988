//! The check of a sites file.

use std::path::PathBuf;
use std::time::Duration;

use lfn_base::date;
use lfn_mesh::schedule::{excluded_continuous, excluded_loads};
use lfn_mesh::sites::{HostKind, MaintenanceScope, Person, PlannedWindow, Sites, SitesErrors};

use super::MeshError;
use super::plan::excluded_pair;
use super::sites_file::read_sites;
use crate::documents::{
    CheckedAudience, CheckedBottleneck, CheckedCircuit, ListedContact, ListedProblem, MeshCheckDocument, MeshCounts,
    UpcomingWindow,
};

/// Options of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOptions {
    /// Path of the sites file.
    pub file: PathBuf,
    /// Time since 1970 from which on maintenance windows are listed.
    pub time: Duration,
}

/// Checks a sites file. A file with problems is a result, not an error.
pub fn check(options: &CheckOptions) -> Result<MeshCheckDocument, MeshError> {
    let text = read_sites(&options.file)?;
    let document = match Sites::parse(&text) {
        Ok(sites) => contents(&sites, options.time),
        Err(errors) => problems(errors),
    };
    Ok(MeshCheckDocument { file: options.file.display().to_string(), ..document })
}

fn problems(errors: SitesErrors) -> MeshCheckDocument {
    let listed = errors.problems.iter().map(|error| ListedProblem {
        line: error.line,
        column: error.column,
        problem: error.problem.to_string(),
        hint: error.problem.hint(),
    });
    MeshCheckDocument { problems: listed.collect(), skipped_problems: errors.skipped, ..MeshCheckDocument::default() }
}

fn contents(sites: &Sites, time: Duration) -> MeshCheckDocument {
    let circuits = sites.circuits.iter().map(|circuit| CheckedCircuit {
        name: circuit.name.clone(),
        between: circuit.between.clone(),
        operator: circuit.operator.clone(),
        capacity: circuit.capacity,
        rtt: circuit.rtt,
        contacts: listed(sites.circuit_contacts(circuit)),
    });
    let bottlenecks = sites.bottlenecks.iter().map(|bottleneck| CheckedBottleneck {
        name: bottleneck.name.clone(),
        capacity: bottleneck.capacity,
        loads_at_once: bottleneck.loads,
        contacts: listed(sites.bottleneck_contacts(bottleneck)),
    });
    let audiences = sites.audiences.iter().map(|audience| CheckedAudience {
        name: audience.name.clone(),
        kind: audience.kind.name().to_owned(),
        members: listed(sites.audience_members(audience)),
        mails: audience.mails.clone(),
    });
    let excluded = excluded_loads(sites).into_iter().chain(excluded_continuous(sites));
    MeshCheckDocument {
        mesh: Some(sites.name.clone()),
        counts: Some(counts(sites)),
        circuits: circuits.collect(),
        bottlenecks: bottlenecks.collect(),
        audiences: audiences.collect(),
        maintenance: sites.next_windows(time).into_iter().map(upcoming).collect(),
        excluded: excluded.map(|pair| excluded_pair(&pair)).collect(),
        ..MeshCheckDocument::default()
    }
}

fn counts(sites: &Sites) -> MeshCounts {
    let site_contacts = sites.sites.iter().map(|site| site.contacts.len());
    let operator_contacts = sites.operators.iter().map(|operator| operator.contacts.len());
    MeshCounts {
        sites: sites.sites.len(),
        hosts: sites.hosts().count(),
        agents: sites.hosts().filter(|host| host.kind == HostKind::Agent).count(),
        circuits: sites.circuits.len(),
        bottlenecks: sites.bottlenecks.len(),
        groups: sites.groups.len(),
        tests: sites.tests.len(),
        contacts: site_contacts.chain(operator_contacts).sum(),
        audiences: sites.audiences.len(),
        maintenance: sites.maintenance.len(),
    }
}

fn listed(people: Vec<Person>) -> Vec<ListedContact> {
    let contact = |Person { mail, name, role, of }| ListedContact { name, mail, role: role.name().to_owned(), of };
    people.into_iter().map(contact).collect()
}

fn upcoming(planned: PlannedWindow) -> UpcomingWindow {
    let (scope, names) = match &planned.maintenance.scope {
        MaintenanceScope::Site(name) => ("site", vec![name.clone()]),
        MaintenanceScope::Circuit(name) => ("circuit", vec![name.clone()]),
        MaintenanceScope::Pair(names) => ("pair", names.to_vec()),
    };
    UpcomingWindow {
        scope: scope.to_owned(),
        names,
        start: date::rfc3339(planned.window.start),
        end: date::rfc3339(planned.window.end),
        repeats: planned.maintenance.every.is_some(),
        reason: planned.maintenance.reason.clone(),
    }
}
