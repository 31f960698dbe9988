//! The page of a pair.

use lfn_mesh::entry::Entry;
use maud::{Markup, html};

use super::site::table;
use super::{Section, datetime, mark_and_word, page, pair_link, shapes, site_link};
use crate::chart::{Chart, Quantity};
use crate::format;
use crate::view::{ConditionChange, PairView, Route, State, figures, loss_ratio, remarks, route_change};

/// Days that the page offers.
const DAYS: [u64; 4] = [1, 7, 30, 90];

/// Returns the page of a pair.
pub(crate) fn pair_page(view: &PairView) -> String {
    let body = html! {
        (shapes())
        (newest(view))
        (lines(view))
        (findings(view))
        (conditions(view))
        (days_compared(view))
        (paths(view))
        (entries(view))
    };
    let title = format!("{} → {}", view.from, view.to);
    page(&title, &view.mesh, Some(view.now), Section::Other, &body)
}

fn newest(view: &PairView) -> Markup {
    let state = view.cell.as_ref().map_or(State::Empty, |cell| cell.state);
    let site = |name: &str| html! { @if !name.is_empty() { a href=(site_link(name)) { (name) } } @else { "no site" } };
    html! {
        p.ends {
            (site(&view.from_site)) " → " (site(&view.to_site)) " · "
            a href=(pair_link(&view.to, &view.from)) { "reverse: " (view.to) " → " (view.from) }
        }
        p.verdict {
            (mark_and_word(state))
            @if let Some(cell) = view.cell.as_ref().filter(|cell| !cell.verdict.is_empty()) { ": " (cell.verdict) }
        }
        dl.figures { @for (name, value) in figures(view) { div { dt { (name) } dd { (value) } } } }
    }
}

fn lines(view: &PairView) -> Markup {
    let pair = format!("{} → {}", view.from, view.to);
    let days = format::count(usize::try_from(view.days).unwrap_or(usize::MAX), "day");
    let chart = |id, title: &str, quantity, line, name, second| Chart {
        id,
        title: format!("{title}, {pair}, {days}"),
        quantity,
        since: view.since,
        until: view.now,
        line,
        name,
        second,
    };
    html! {
        section aria-labelledby="lines" {
            h2 id="lines" { "Last " (days) }
            nav.days aria-label="Days of the lines" {
                @for days in DAYS {
                    a href={ (pair_link(&view.from, &view.to)) "?days=" (days) }
                        aria-current=[(days == view.days).then_some("true")] { (days) " d" }
                }
            }
            h3 { "Goodput" }
            (chart("goodput", "Goodput", Quantity::BitsPerSecond, &view.goodput, "goodput", None).render())
            h3 { "RTT" }
            (chart("rtt", "RTT", Quantity::Seconds, &view.base_rtt, "minimum RTT", Some((&view.rtt, "median RTT"))).render())
            h3 { "Loss" }
            (chart("loss", "Loss", Quantity::Ratio, &view.loss, "loss", None).render())
        }
    }
}

fn findings(view: &PairView) -> Markup {
    html! {
        section aria-labelledby="findings" {
            h2 id="findings" { "Findings" }
            @if view.findings.is_empty() {
                p { @if view.load.is_some() { "The newest load has no finding." } @else { "There is no load." } }
            } @else {
                ol {
                    @for finding in &view.findings {
                        li {
                            b { (finding.name) }
                            @if !finding.summary.is_empty() { ": " (finding.summary) }
                            @if !finding.remedy.is_empty() {
                                p.remedy {
                                    "On " (finding.host.as_deref().unwrap_or(&view.from)) ": " code { (finding.remedy) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn conditions(view: &PairView) -> Markup {
    html! {
        section aria-labelledby="conditions" {
            h2 id="conditions" { "Conditions" }
            @if let Some(change) = &view.change { (condition_change(change)) }
            @if view.conditions.is_empty() { p { "The newest load has no conditions." } }
            @else {
                details {
                    summary { "Conditions of the newest load" }
                    div.wide tabindex="0" role="region" aria-label="Table of conditions" {
                        table.list {
                            caption { span { "Conditions of the newest load" } }
                            thead { tr { th scope="col" { "Condition" } th scope="col" { "Value" } } }
                            tbody {
                                @for (name, value) in &view.conditions { tr { th scope="row" { (name) } td { (value) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn condition_change(change: &ConditionChange) -> Markup {
    let shown = |value: &str| if value.is_empty() { "absent".to_owned() } else { value.to_owned() };
    html! {
        div.wide tabindex="0" role="region" aria-label="Table of changed conditions" {
            table.list {
                caption {
                    span {
                        "The test changed at "
                        time datetime=(datetime(change.time)) { (format::minute(change.time)) " UTC" }
                    }
                }
                thead { tr { th scope="col" { "Condition" } th scope="col" { "Before" } th scope="col" { "After" } } }
                tbody {
                    @for changed in &change.changes {
                        tr {
                            th scope="row" { (changed.name) }
                            td { (shown(&changed.before)) } td { (shown(&changed.after)) }
                        }
                    }
                }
            }
        }
    }
}

fn days_compared(view: &PairView) -> Markup {
    let [day, against] = view.compared_days();
    html! {
        section aria-labelledby="days" {
            h2 id="days" { "Two days" }
            form.search method="get" action=(pair_link(&view.from, &view.to)) {
                label for="day" { "Day" }
                input id="day" name="day" type="date" value=(day);
                label for="against" { "against" }
                input id="against" name="against" type="date" value=(against);
                button type="submit" { "Compare" }
            }
            @if let Some(days) = &view.days_compared {
                p.verdict role="status" { (days.summary) }
                @for direction in &days.directions {
                    h3 { (direction.from) " → " (direction.to) }
                    (table(&direction.caption(), ["Figure", &days.first, &days.second], &direction.figures))
                    (table(
                        &format!("Differences, {} → {}", direction.from, direction.to),
                        ["Difference", &days.first, &days.second, "Part", "Explains the change"],
                        &direction.differences,
                    ))
                }
            }
        }
    }
}

fn paths(view: &PairView) -> Markup {
    let [forward, reverse] = &view.routes;
    let length = forward.hops.len().max(reverse.hops.len());
    html! {
        section aria-labelledby="paths" {
            h2 id="paths" { "Paths" }
            @if length == 0 { p { "No path was traced." } }
            @else {
                div.wide tabindex="0" role="region" aria-label="Table of paths" {
                    table.list {
                        caption { span { "Hops of both directions; changed hops are marked “new”" } }
                        thead {
                            tr {
                                th scope="col" { "TTL" }
                                th scope="col" { (view.from) " → " (view.to) } th scope="col" { (view.to) " → " (view.from) }
                            }
                        }
                        tbody {
                            @for at in 0..length {
                                tr { th scope="row" { (at + 1) } (hop(forward, at)) (hop(reverse, at)) }
                            }
                        }
                    }
                }
                @for (route, from, to) in [(forward, &view.from, &view.to), (reverse, &view.to, &view.from)] {
                    @if let Some(text) = route_change(route) { p { (from) " → " (to) ": " (text) } }
                }
            }
        }
    }
}

fn hop(route: &Route, at: usize) -> Markup {
    match route.hops.get(at) {
        None => html! { td {} },
        Some(hop) if hop.address.is_empty() => html! { td { "no answer" } },
        Some(hop) if hop.is_new => html! { td.new { (hop.address) " " strong { "new" } } },
        Some(hop) => html! { td { (hop.address) } },
    }
}

fn entries(view: &PairView) -> Markup {
    html! {
        section aria-labelledby="entries" {
            h2 id="entries" { "Newest entries" }
            @if view.newest.is_empty() { p { "The archive has no entry of this pair." } }
            @else {
                div.wide tabindex="0" role="region" aria-label="Table of entries" {
                    table.list {
                        caption { span { "Newest entries of each kind" } }
                        thead {
                            tr {
                                th scope="col" { "Time (UTC)" } th scope="col" { "Kind" } th scope="col" { "Outcome" }
                                th.number scope="col" { "Goodput" } th.number scope="col" { "Predicted" }
                                th.number scope="col" { "Base RTT" } th.number scope="col" { "Loss" }
                                th scope="col" { "Remarks" }
                            }
                        }
                        tbody { @for entry in &view.newest { (entry_row(entry)) } }
                    }
                }
            }
        }
    }
}

fn entry_row(entry: &Entry) -> Markup {
    html! {
        tr {
            th scope="row" { time datetime=(datetime(entry.time)) { (format::minute(entry.time)) } }
            td { (entry.kind.name()) }
            td { (mark_and_word(State::of_outcome(entry.outcome))) }
            td.number { (format::rate(entry.goodput)) }
            td.number { (format::rate(entry.predicted)) }
            td.number { (format::time(entry.base_rtt)) }
            td.number { (format::loss(loss_ratio(entry))) }
            td { (remarks(entry)) }
        }
    }
}
