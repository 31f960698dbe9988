//! The views as text, for `curl` and terminals.

mod table;

use std::fmt::Write as _;

use table::Table;

use crate::format::{self, one_line};
use crate::view::{
    Grid, MatrixView, PairView, Pairs, PlanView, Route, Rows, SiteCell, SiteView, State, figures, loss_ratio, remarks,
    route_change,
};

/// Returns the first lines of a text.
fn head(title: &str, mesh: &str, now: std::time::Duration) -> String {
    let mesh = if title == mesh { String::new() } else { format!(", {}", one_line(mesh)) };
    format!("{}{mesh}, {} UTC\n\n", one_line(title), format::minute(now))
}

/// Returns the matrix as text.
pub(crate) fn matrix_text(view: &MatrixView) -> String {
    let mut text = head(&view.mesh, &view.mesh, view.now);
    let counts = view.counts.iter().filter(|(_, number)| *number > 0);
    let counts: Vec<String> = counts.map(|(state, number)| format!("{number} {}", state.word())).collect();
    let counts = if counts.is_empty() { "none yet".to_owned() } else { counts.join(", ") };
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{}, {}: {counts}\n",
        format::count(view.hosts, "host"),
        format::count(view.measured(), "measured pair")
    );
    if let Some(found) = &view.found {
        push_pairs(&mut text, &format!("pairs like {}", view.query.as_deref().unwrap_or_default()), found, view.now);
        return format::clean(text);
    }
    match &view.grid {
        Grid::Hosts { sites, cells } => {
            let hosts: Vec<&String> = sites.iter().flat_map(|site| &site.hosts).collect();
            let mut table =
                Table::new(["from / to".to_owned()].into_iter().chain(hosts.iter().map(|name| one_line(name))));
            for from in &hosts {
                let cell = |to: &&&String| match cells.get(&((*from).clone(), (**to).clone())) {
                    _ if from == *to => String::new(),
                    None => State::Empty.letter().to_owned(),
                    Some(cell) => format!("{} {}", cell.state.letter(), cell.figure().unwrap_or_default()),
                };
                table.push([one_line(from)].into_iter().chain(hosts.iter().map(|to| cell(&to))));
            }
            text += &table.render();
        }
        Grid::Sites { names, cells } => {
            let mut table =
                Table::new(["from / to".to_owned()].into_iter().chain(names.iter().map(|name| one_line(name))));
            for (from, name) in names.iter().enumerate() {
                let cell = |to| cells.get(&(from, to)).map_or_else(|| State::Empty.letter().to_owned(), site_cell);
                table.push([one_line(name)].into_iter().chain((0..names.len()).map(cell)));
            }
            text += &table.render();
        }
        Grid::List { sites, total } => {
            let mut table = Table::new(["site", "worst", "pairs"].map(str::to_owned));
            for (name, cell) in sites {
                table.push([one_line(name), site_cell(cell), cell.pairs().to_string()]);
            }
            text += &table.render();
            if *total > sites.len() {
                let _ = writeln!(text, "{} more sites", total - sites.len());
            }
        }
    }
    text.push('\n');
    if !view.worst.rows.is_empty() {
        push_pairs(&mut text, "pairs, worst first", &view.worst, view.now);
    }
    for state in State::ALL {
        let _ = writeln!(text, "{}  {}: {}", state.letter(), state.word(), state.explanation());
    }
    format::clean(text)
}

fn site_cell(cell: &SiteCell) -> String {
    let state = cell.state();
    format!("{} {}/{}", state.letter(), cell.counts.get(&state).copied().unwrap_or(0), cell.pairs())
}

fn push_pairs(text: &mut String, title: &str, pairs: &Pairs, now: std::time::Duration) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", one_line(title));
    let mut table =
        Table::new(["", "from", "to", "goodput", "predicted", "base RTT", "loss", "age", "verdict"].map(str::to_owned));
    for row in &pairs.rows {
        let cell = &row.cell;
        table.push([
            cell.state.letter().to_owned(),
            one_line(&row.from),
            one_line(&row.to),
            format::rate(cell.goodput),
            format::rate(cell.predicted),
            format::time(cell.base_rtt),
            format::loss(cell.loss),
            format::age(cell.time, now),
            one_line(&cell.verdict),
        ]);
    }
    text.push_str(&table.render());
    if pairs.total > pairs.rows.len() {
        let _ = writeln!(text, "{} more pairs", pairs.total - pairs.rows.len());
    }
    text.push('\n');
}

/// Returns a pair as text.
pub(crate) fn pair_text(view: &PairView) -> String {
    let mut text = head(&format!("{} → {}", view.from, view.to), &view.mesh, view.now);
    let state = view.cell.as_ref().map_or(State::Empty, |cell| cell.state);
    let verdict = view.cell.as_ref().map(|cell| one_line(&cell.verdict)).filter(|verdict| !verdict.is_empty());
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "{} {}{}", state.letter(), state.word(), verdict.map(|v| format!(": {v}")).unwrap_or_default());
    for (name, value) in figures(view) {
        let _ = writeln!(text, "{name:<24} {value}");
    }
    text.push_str("\nfindings\n");
    if view.findings.is_empty() {
        text.push_str(if view.load.is_some() { "  none\n" } else { "  no load\n" });
    }
    for finding in &view.findings {
        let _ = writeln!(text, "  {}: {}", one_line(&finding.name), one_line(&finding.summary));
        if !finding.remedy.is_empty() {
            let host = finding.host.as_deref().unwrap_or(&view.from);
            let _ = writeln!(text, "    on {}: {}", one_line(host), one_line(&finding.remedy));
        }
    }
    push_conditions(&mut text, view);
    push_days(&mut text, view);
    push_paths(&mut text, view);
    text.push_str("\nnewest entries\n");
    let mut table = Table::new(
        ["time", "kind", "outcome", "goodput", "predicted", "base RTT", "loss", "remarks"].map(str::to_owned),
    );
    for entry in &view.newest {
        table.push([
            format::minute(entry.time),
            entry.kind.name().to_owned(),
            State::of_outcome(entry.outcome).word().to_owned(),
            format::rate(entry.goodput),
            format::rate(entry.predicted),
            format::time(entry.base_rtt),
            format::loss(loss_ratio(entry)),
            one_line(&remarks(entry)),
        ]);
    }
    text.push_str(&table.render());
    format::clean(text)
}

fn push_conditions(text: &mut String, view: &PairView) {
    let shown = |value: &str| if value.is_empty() { "absent".to_owned() } else { one_line(value) };
    // Writing to a string cannot fail.
    if let Some(change) = &view.change {
        let _ = writeln!(text, "\nthe test changed at {} UTC", format::minute(change.time));
        for changed in &change.changes {
            let _ = writeln!(
                text,
                "  {}: {} before, {} after",
                one_line(&changed.name),
                shown(&changed.before),
                shown(&changed.after)
            );
        }
    }
    if !view.conditions.is_empty() {
        text.push_str("\nconditions\n");
        for (name, value) in &view.conditions {
            let _ = writeln!(text, "  {}: {}", one_line(name), one_line(value));
        }
    }
}

fn push_days(text: &mut String, view: &PairView) {
    let Some(days) = &view.days_compared else { return };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{} against {}: {}\n", days.first, days.second, one_line(&days.summary));
    for direction in &days.directions {
        push_table(text, &one_line(&direction.caption()), ["", &days.first, &days.second], &direction.figures);
        let names = ["difference", &days.first, &days.second, "part", "explains the change"];
        push_table(text, "differences", names, &direction.differences);
    }
}

fn push_paths(text: &mut String, view: &PairView) {
    let [forward, reverse] = &view.routes;
    let length = forward.hops.len().max(reverse.hops.len());
    if length == 0 {
        return;
    }
    text.push_str("\npaths\n");
    let direction = |from: &str, to: &str| one_line(&format!("{from} → {to}"));
    let mut table = Table::new(["TTL".to_owned(), direction(&view.from, &view.to), direction(&view.to, &view.from)]);
    let hop = |route: &Route, at: usize| match route.hops.get(at) {
        None => String::new(),
        Some(hop) if hop.address.is_empty() => "no answer".to_owned(),
        Some(hop) if hop.is_new => format!("{} (new)", one_line(&hop.address)),
        Some(hop) => one_line(&hop.address),
    };
    for at in 0..length {
        table.push([(at + 1).to_string(), hop(forward, at), hop(reverse, at)]);
    }
    text.push_str(&table.render());
    for (route, from, to) in [(forward, &view.from, &view.to), (reverse, &view.to, &view.from)] {
        if let Some(change) = route_change(route) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}: {}", direction(from, to), one_line(&change));
        }
    }
}

/// Returns a site as text.
pub(crate) fn site_text(view: &SiteView) -> String {
    let mut text = head(&view.name, &view.mesh, view.now);
    push_pairs(&mut text, "pairs, worst first", &view.pairs, view.now);
    push_table(&mut text, "hosts", ["host", "program", "address", "interface", "rate"], &view.hosts);
    push_table(&mut text, "contacts", ["role", "name", "mail"], &view.contacts);
    push_table(&mut text, "circuits", ["circuit", "to", "operator", "capacity", "RTT", "bottleneck"], &view.circuits);
    push_table(&mut text, "maintenance", ["from", "until", "reason"], &view.maintenance);
    format::clean(text)
}

/// Returns the plan as text.
pub(crate) fn plan_text(view: &PlanView) -> String {
    let mut text = head("Plan", &view.mesh, view.now);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{} today, {} that do not fit\n", format::count(view.today, "load"), view.not_fitting.total);
    if let Some(later) = view.later {
        let _ = writeln!(text, "the agents follow this plan from {} on\n", format::second(later));
    }
    push_rows(&mut text, "loads that do not fit", ["test", "from", "to", "reason"], &view.not_fitting);
    push_rows(&mut text, "pairs that cannot be measured", ["test", "from", "to", "reason"], &view.excluded);
    push_rows(&mut text, "tests", ["test", "kind", "pairs", "interval", "length"], &view.tests);
    push_rows(&mut text, "next loads", ["start", "end", "test", "from", "to", "client", "bytes"], &view.next);
    push_rows(&mut text, "use today, fullest first", ["kind", "name", "busy", "loads", "bytes"], &view.resources);
    push_rows(&mut text, "budgets today", ["site", "used", "permitted"], &view.budgets);
    format::clean(text)
}

fn push_rows<const N: usize>(text: &mut String, title: &str, names: [&str; N], rows: &Rows<N>) {
    push_table(text, title, names, &rows.rows);
    if rows.total > rows.rows.len() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} more\n", rows.total - rows.rows.len());
    }
}

fn push_table<const N: usize>(text: &mut String, title: &str, names: [&str; N], rows: &[[String; N]]) {
    if rows.is_empty() {
        return;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{title}");
    let mut table = Table::new(names.map(str::to_owned));
    for row in rows {
        table.push(row.iter().map(|cell| one_line(cell)));
    }
    text.push_str(&table.render());
    text.push('\n');
}
