//! The views as HTML. The templates escape every text, and no page has an inline script or style.

mod matrix;
mod pair;
mod plan;
mod site;

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};

pub(crate) use matrix::matrix_page;
pub(crate) use pair::pair_page;
pub(crate) use plan::plan_page;
pub(crate) use site::site_page;

use crate::format;
use crate::view::{PairRow, Pairs, State};

/// Parts of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Matrix,
    Plan,
    Other,
}

/// Returns a complete page.
pub(crate) fn page(title: &str, mesh: &str, now: Option<Duration>, section: Section, body: &Markup) -> String {
    let current = |of: Section| (section == of).then_some("page");
    let full_title = if title == mesh { mesh.to_owned() } else { format!("{title} · {mesh}") };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (full_title) }
                link rel="stylesheet" href="/style.css";
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                script src="/script.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the figures" }
                header {
                    span.mesh { (mesh) }
                    nav aria-label="Pages" {
                        ul {
                            li { a href="/" aria-current=[current(Section::Matrix)] { "Matrix" } }
                            li { a href="/plan" aria-current=[current(Section::Plan)] { "Plan" } }
                        }
                    }
                }
                main id="main" tabindex="-1" {
                    h1 { (title) }
                    @if let Some(now) = now {
                        p.now { "As of " time datetime=(datetime(now)) { (format::minute(now)) " UTC" } }
                    }
                    (body)
                }
                footer { p { "Times are UTC. Each page is also text: " code { "curl -u :TOKEN ADDRESS" } } }
            }
        }
    };
    format::clean(page.into_string())
}

/// Returns a page with one message.
pub(crate) fn message_page(title: &str, message: &str) -> String {
    page(title, "lfn mesh", None, Section::Other, &html! { p { (message) } p { a href="/" { "All pairs" } } })
}

/// Returns a time for programs, to the minute.
fn datetime(time: Duration) -> String {
    format!("{}Z", format::minute(time).replace(' ', "T"))
}

fn class(state: State) -> &'static str {
    match state {
        State::Good => "good",
        State::Limited => "limited",
        State::Failed => "failed",
        State::Unknown => "unknown",
        State::Stale => "stale",
        State::Empty => "empty",
    }
}

/// Returns the shapes of all states, for [`mark`].
fn shapes() -> Markup {
    html! {
        svg.shapes aria-hidden="true" width="0" height="0" {
            symbol id="good" viewBox="0 0 12 12" { circle cx="6" cy="6" r="5" {} }
            symbol id="limited" viewBox="0 0 12 12" { path d="M6 1l5.5 10H.5z" {} }
            symbol id="failed" viewBox="0 0 12 12" { path d="M2 0l4 4 4-4 2 2-4 4 4 4-2 2-4-4-4 4-2-2 4-4-4-4z" {} }
            symbol id="unknown" viewBox="0 0 12 12" { path d="M6 0l6 6-6 6-6-6z" {} }
            symbol id="stale" viewBox="0 0 12 12" {
                path d="M0 0h12v12H0zM2 2v8h8V2zM3 7l4-4h2L3 9zM6 9l3-3v3z" fill-rule="evenodd" {}
            }
        }
    }
}

/// Returns the shape of a state; nothing for a pair without a measurement.
fn shape(state: State) -> Markup {
    html! { @if state != State::Empty { svg.shape { use href={ "#" (class(state)) } {} } } }
}

/// Returns the letter and the shape of a state, and its word for readers who hear the page.
fn mark(state: State) -> Markup {
    html! {
        span aria-hidden="true" { (shape(state)) b { (state.letter()) } }
        span.hear { (state.word()) " " }
    }
}

/// Returns the same with the word in sight.
fn mark_and_word(state: State) -> Markup {
    html! {
        span.state.(class(state)) {
            span aria-hidden="true" { (shape(state)) b { (state.letter()) } } " " (state.word())
        }
    }
}

fn legend() -> Markup {
    html! {
        section aria-labelledby="legend" {
            h2 id="legend" { "Legend" }
            dl.legend {
                @for state in State::ALL {
                    div { dt { (mark_and_word(state)) } dd { (state.explanation()) } }
                }
            }
        }
    }
}

pub(crate) fn pair_link(from: &str, to: &str) -> String {
    format!("/pair/{}/{}", format::path_part(from), format::path_part(to))
}

fn site_link(site: &str) -> String {
    format!("/site/{}", format::path_part(site))
}

/// Returns a table of pairs.
fn pair_table(caption: &str, pairs: &Pairs, now: Duration) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(caption) {
            table.list {
                caption { span { (caption) } }
                thead {
                    tr {
                        th scope="col" { "Pair" } th scope="col" { "State" } th.number scope="col" { "Goodput" }
                        th.number scope="col" { "Predicted" } th.number scope="col" { "Base RTT" }
                        th.number scope="col" { "Loss" } th.number scope="col" { "Age" } th scope="col" { "Verdict" }
                    }
                }
                tbody { @for row in &pairs.rows { (pair_table_row(row, now)) } }
            }
        }
        @if pairs.total > pairs.rows.len() {
            p.more { (pairs.total - pairs.rows.len()) " more pairs are not listed." }
        }
    }
}

fn pair_table_row(row: &PairRow, now: Duration) -> Markup {
    let cell = &row.cell;
    html! {
        tr {
            th scope="row" { a href=(pair_link(&row.from, &row.to)) { (row.from) " → " (row.to) } }
            td { (mark_and_word(cell.state)) }
            td.number { (format::rate(cell.goodput)) }
            td.number { (format::rate(cell.predicted)) }
            td.number { (format::time(cell.base_rtt)) }
            td.number { (format::loss(cell.loss)) }
            td.number { (format::age(cell.time, now)) }
            td { (cell.verdict) }
        }
    }
}
