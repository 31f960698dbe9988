//! The first page.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{Section, class, legend, mark, page, pair_link, pair_table, shapes, site_link};
use crate::format;
use crate::view::{Cell, Grid, MatrixView, MeshSite, SiteCell, State};

/// Returns the page of the matrix.
pub(crate) fn matrix_page(view: &MatrixView) -> String {
    let body = html! {
        (shapes())
        (summary(view))
        (search(view))
        @if let Some(found) = &view.found {
            @let query = view.query.as_deref().unwrap_or_default();
            @if found.rows.is_empty() { p role="status" { "No pair has a host or a site like “" (query) "”." } }
            @else { (pair_table(&format!("Pairs like “{query}”, worst first"), found, view.now)) }
        }
        @match &view.grid {
            Grid::Hosts { sites, cells } => (host_grid(sites, cells)),
            Grid::Sites { names, cells } => (site_grid(names, cells)),
            Grid::List { sites, total } => (site_list(sites, *total)),
        }
        @if !view.worst.rows.is_empty() { (pair_table("Pairs, worst first", &view.worst, view.now)) }
        (legend())
    };
    page(&view.mesh, &view.mesh, Some(view.now), Section::Matrix, &body)
}

fn summary(view: &MatrixView) -> Markup {
    html! {
        p.summary {
            (format::count(view.hosts, "host")) ", " (format::count(view.measured(), "measured pair")) ": "
            @for (place, (state, number)) in view.counts.iter().filter(|(_, number)| *number > 0).enumerate() {
                @if place > 0 { ", " }
                (number) " " (state.word())
            }
            @if view.measured() == 0 { "none yet" }
            "."
        }
    }
}

fn search(view: &MatrixView) -> Markup {
    html! {
        form.search role="search" method="get" action="/" {
            label for="q" { "Host or site" }
            input id="q" name="q" type="search" value=[view.query.as_deref()];
            button type="submit" { "List pairs" }
        }
    }
}

fn host_grid(sites: &[MeshSite], cells: &BTreeMap<(String, String), Cell>) -> Markup {
    let hosts = || sites.iter().flat_map(|site| &site.hosts);
    let caption = "Newest result of each pair: rows send, columns receive";
    html! {
        @if sites.is_empty() { p { "There is no host yet." } }
        @else {
            div.wide tabindex="0" role="region" aria-label="Matrix" {
                table.matrix {
                    caption { span { (caption) } }
                    @for site in std::iter::once(2).chain(sites.iter().map(|site| site.hosts.len())) { colgroup span=(site) {} }
                    thead {
                        tr {
                            td colspan="2" rowspan="2" { "from ↓ to →" }
                            @for site in sites {
                                th scope="colgroup" colspan=(site.hosts.len()) { a href=(site_link(&site.name)) { (site.name) } }
                            }
                        }
                        tr { @for host in hosts() { th scope="col" { (host) } } }
                    }
                    @for site in sites {
                        tbody {
                            @for (place, from) in site.hosts.iter().enumerate() {
                                tr {
                                    @if place == 0 {
                                        th scope="rowgroup" rowspan=(site.hosts.len()) {
                                            a href=(site_link(&site.name)) { (site.name) }
                                        }
                                    }
                                    th scope="row" { (from) }
                                    @for to in hosts() { (host_cell(from, to, cells)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn host_cell(from: &str, to: &str, cells: &BTreeMap<(String, String), Cell>) -> Markup {
    if from == to {
        return html! { td.self { span.hear { "the same host" } } };
    }
    match cells.get(&(from.to_owned(), to.to_owned())) {
        None => html! { td.empty { (mark(State::Empty)) } },
        Some(cell) => html! {
            td class=(class(cell.state)) {
                a href=(pair_link(from, to)) {
                    (mark(cell.state))
                    @if let Some(figure) = cell.figure() { span.figure { (figure) } }
                }
            }
        },
    }
}

fn site_grid(names: &[String], cells: &BTreeMap<(usize, usize), SiteCell>) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Matrix of sites" {
            table.matrix {
                caption { span { "Worst pair between each two sites: rows send, columns receive" } }
                thead {
                    tr {
                        td { "from ↓ to →" }
                        @for name in names { th scope="col" { a href=(site_link(name)) { (name) } } }
                    }
                }
                tbody {
                    @for (from, name) in names.iter().enumerate() {
                        tr {
                            th scope="row" { a href=(site_link(name)) { (name) } }
                            @for to in 0..names.len() { (site_cell(cells.get(&(from, to)))) }
                        }
                    }
                }
            }
        }
    }
}

fn site_cell(cell: Option<&SiteCell>) -> Markup {
    let Some(cell) = cell else { return html! { td.empty { (mark(State::Empty)) } } };
    let state = cell.state();
    html! {
        td class=(class(state)) {
            (mark(state))
            span.figure { (cell.counts.get(&state).copied().unwrap_or(0)) " of " (cell.pairs()) }
        }
    }
}

fn site_list(sites: &[(String, SiteCell)], total: usize) -> Markup {
    let states = || State::ALL.into_iter().filter(|state| *state != State::Empty);
    html! {
        div.wide tabindex="0" role="region" aria-label="Sites" {
            table.list {
                caption { span { "Sites with the number of their pairs in each state, worst first" } }
                thead {
                    tr { th scope="col" { "Site" } @for state in states() { th.number scope="col" { (state.word()) } } }
                }
                tbody {
                    @for (name, cell) in sites {
                        tr {
                            th scope="row" { a href=(site_link(name)) { (name) } }
                            @for state in states() { td.number { (cell.counts.get(&state).copied().unwrap_or(0)) } }
                        }
                    }
                }
            }
        }
        @if total > sites.len() { p.more { (total - sites.len()) " more sites are not listed." } }
    }
}
