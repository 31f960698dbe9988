//! The result of a check of a sites file as text.

use lfn_api::documents::{
    CheckedAudience, CheckedBottleneck, CheckedCircuit, ListedContact, MeshCheckDocument, MeshCounts, UpcomingWindow,
};
use lfn_base::units::show_duration;

use super::unplanned::unplanned_lines;
use crate::print::counted;
use crate::print::label_columns::Page;

/// Returns the problems of the file, or its contents.
pub fn page(document: &MeshCheckDocument) -> String {
    let Some(counts) = &document.counts else { return problems(document) };
    let mut page = Page::default();
    page.row("mesh", document.mesh.as_deref().unwrap_or_default());
    page.row("contents", contents(counts));
    page.gap();
    page.list("circuits", &document.circuits.iter().map(circuit).collect::<Vec<_>>());
    page.list("bottlenecks", &document.bottlenecks.iter().map(bottleneck).collect::<Vec<_>>());
    page.list("audiences", &document.audiences.iter().map(audience).collect::<Vec<_>>());
    page.list("maintenance", &document.maintenance.iter().map(window).collect::<Vec<_>>());
    page.list("not measured", &unplanned_lines(&document.excluded));
    page.text() + &format!("{}: no problem found\n", document.file)
}

/// Returns a line for each problem, which begins as compilers do, and its hint.
fn problems(document: &MeshCheckDocument) -> String {
    let mut text = String::new();
    for problem in &document.problems {
        let (line, column) = (problem.line, problem.column);
        text += &format!("{}:{line}:{column}: {}\n  hint: {}\n", document.file, problem.problem, problem.hint);
    }
    let count = document.problems.len() + document.skipped_problems;
    text + &counted(count as u64, "problem") + "\n"
}

fn contents(counts: &MeshCounts) -> String {
    let items = [
        (counts.sites, "site"),
        (counts.hosts, "host"),
        (counts.circuits, "circuit"),
        (counts.bottlenecks, "bottleneck"),
        (counts.groups, "group"),
        (counts.tests, "test"),
        (counts.contacts, "contact"),
        (counts.audiences, "audience"),
    ];
    let items: Vec<String> = items
        .into_iter()
        .map(|(count, noun)| {
            let of_agents =
                if noun == "host" { format!(" ({})", counted(counts.agents as u64, "agent")) } else { String::new() };
            counted(count as u64, noun) + &of_agents
        })
        .collect();
    format!("{}, {} planned maintenance", items.join(", "), counts.maintenance)
}

fn people(contacts: &[ListedContact]) -> String {
    if contacts.is_empty() {
        return "no contact".to_owned();
    }
    let contact =
        |contact: &ListedContact| format!("{} <{}> ({}, {})", contact.name, contact.mail, contact.role, contact.of);
    contacts.iter().map(contact).collect::<Vec<_>>().join("; ")
}

fn circuit(circuit: &CheckedCircuit) -> String {
    let [first, second] = &circuit.between;
    let figures =
        [circuit.operator.clone(), circuit.capacity.map(|rate| rate.to_string()), circuit.rtt.map(show_duration)];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    let figures = if figures.is_empty() { String::new() } else { format!(" ({})", figures.join(", ")) };
    format!("{}, {first} to {second}{figures}: {}", circuit.name, people(&circuit.contacts))
}

fn bottleneck(bottleneck: &CheckedBottleneck) -> String {
    let loads = counted(bottleneck.loads_at_once, "load");
    format!("{} ({}, {loads} at a time): {}", bottleneck.name, bottleneck.capacity, people(&bottleneck.contacts))
}

fn audience(audience: &CheckedAudience) -> String {
    let mut members = people(&audience.members);
    if !audience.mails.is_empty() {
        members = format!("{members}; {}", audience.mails.join("; "));
    }
    format!("{} ({}): {members}", audience.name, audience.kind)
}

fn window(window: &UpcomingWindow) -> String {
    let names = window.names.join(" and ");
    let repeats = if window.repeats { ", repeated" } else { "" };
    let reason = window.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let minutes = |time: &str| time.get(..16).unwrap_or(time).replace('T', " ");
    let (start, end) = (minutes(&window.start), minutes(&window.end));
    format!("{start} to {end} UTC, {} {names}{repeats}{reason}", window.scope)
}
