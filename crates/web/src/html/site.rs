//! The page of a site.

use maud::{Markup, html};

use super::{Section, page, pair_table, shapes};
use crate::view::SiteView;

/// Returns the page of a site.
pub(crate) fn site_page(view: &SiteView) -> String {
    let body = html! {
        (shapes())
        @if !view.place.is_empty() { p { (view.place) } }
        (pair_table("Pairs of this site, worst first", &view.pairs, view.now))
        (table("Hosts", ["Host", "Program", "Address", "Interface", "Rate"], &view.hosts))
        (table("Contacts", ["Role", "Name", "Mail"], &view.contacts))
        (table("Circuits", ["Circuit", "To", "Operator", "Capacity", "RTT", "Bottleneck"], &view.circuits))
        (table("Maintenance", ["From (UTC)", "Until (UTC)", "Reason"], &view.maintenance))
    };
    page(&view.name, &view.mesh, Some(view.now), Section::Other, &body)
}

/// Returns a table of texts; nothing without rows.
pub(super) fn table<const N: usize>(caption: &str, names: [&str; N], rows: &[[String; N]]) -> Markup {
    html! {
        @if !rows.is_empty() {
            div.wide tabindex="0" role="region" aria-label=(caption) {
                table.list {
                    caption { span { (caption) } }
                    thead { tr { @for name in names { th scope="col" { (name) } } } }
                    tbody {
                        @for row in rows {
                            tr {
                                @for (place, text) in row.iter().enumerate() {
                                    @if place == 0 { th scope="row" { (text) } } @else { td { (text) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
