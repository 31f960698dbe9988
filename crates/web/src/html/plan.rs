//! The page of the plan.

use maud::{Markup, html};

use super::site::table;
use super::{Section, page};
use crate::format;
use crate::view::{PlanView, Rows};

/// Returns the page of the plan.
pub(crate) fn plan_page(view: &PlanView) -> String {
    let (not_fitting, excluded) = (&view.not_fitting, &view.excluded);
    let body = html! {
        p.summary { (format::count(view.today, "load")) " today, " (not_fitting.total) " that do not fit." }
        @if let Some(later) = view.later {
            p { "The sites file changed. The agents follow this plan from " (format::second(later)) " UTC on." }
        }
        (rows("Loads that do not fit", ["Test", "From", "To", "Reason"], not_fitting))
        (rows("Pairs that cannot be measured", ["Test", "From", "To", "Reason"], excluded))
        (rows("Tests", ["Test", "Kind", "Pairs", "Interval", "Length"], &view.tests))
        @if view.next.total == 0 { p { "No load is planned." } }
        (rows("Next loads", ["Start (UTC)", "End", "Test", "From", "To", "Client", "Bytes"], &view.next))
        (rows("Use today, fullest first", ["Kind", "Name", "Busy", "Loads", "Bytes"], &view.resources))
        (rows("Budgets today", ["Site", "Used", "Permitted"], &view.budgets))
    };
    page("Plan", &view.mesh, Some(view.now), Section::Plan, &body)
}

fn rows<const N: usize>(caption: &str, names: [&str; N], rows: &Rows<N>) -> Markup {
    html! {
        (table(caption, names, &rows.rows))
        @if rows.total > rows.rows.len() { p.more { (rows.total - rows.rows.len()) " more are not listed." } }
    }
}
