//! The schedule of a day as text and as CSV.

use std::time::Duration;

use lfn_api::documents::{ListedSlot, MeshPlanDocument, PackedInterval, ResourceUse, UnplannedLoad};
use lfn_base::units::{Bytes, show_duration};

use super::unplanned::unplanned_lines;
use crate::print::counted;
use crate::print::label_columns::Page;
use crate::print::table::{Column, table};
use crate::print::terminal::columns;

/// Returns the schedule as text: slots, use of each resource, and the loads that do not fit.
pub fn page(document: &MeshPlanDocument) -> String {
    let of_host = document.host.as_ref().map(|host| format!(" of {host}")).unwrap_or_default();
    let loads = counted(document.slots.len() as u64, "load");
    let mut text = format!("{} on {} (UTC): {loads}{of_host}\n\n", document.mesh, document.day);
    for part in [slots(&document.slots), resources(&document.resources)] {
        if !part.is_empty() {
            text += &(part + "\n");
        }
    }
    let mut page = Page::default();
    for budget in &document.budgets {
        let [used, permitted] = Bytes::in_common_decimal_unit([budget.used_bytes, budget.permitted_bytes]);
        page.row("budget", format!("{}: {used} of {permitted} a day", budget.site));
    }
    for interval in &document.intervals {
        page.row("interval", packed(interval));
    }
    for test in &document.without_slots {
        let measurements = counted(test.measurements as u64, "measurement");
        let every = show_duration(test.interval);
        page.row("without slots", format!("{} ({}): {measurements} every {every}", test.test, test.kind));
    }
    text += &page.text();
    text + &unplanned("does not fit", &document.not_fitting) + &unplanned("not measured", &document.excluded)
}

fn slots(slots: &[ListedSlot]) -> String {
    let columns = [
        Column::text("start", Column::KEPT),
        Column::text("from", Column::KEPT),
        Column::text("to", Column::KEPT),
        Column::text("client", 2),
        Column::text("test", 3),
        Column::number("length", 1),
    ];
    let row = |slot: &ListedSlot| {
        vec![
            time_of_day(&slot.start).to_owned(),
            slot.from.clone(),
            slot.to.clone(),
            slot.client.clone(),
            slot.test.clone(),
            show_duration(slot.length),
        ]
    };
    table(&columns, &slots.iter().map(row).collect::<Vec<_>>(), self::columns())
}

/// Returns `06:40:00` of `2026-11-22T06:40:00.000Z`.
fn time_of_day(time: &str) -> &str {
    time.get(11..19).unwrap_or(time)
}

fn resources(resources: &[ResourceUse]) -> String {
    let columns = [
        Column::text("resource", Column::KEPT),
        Column::number("loads", 3),
        Column::number("busy", 2),
        Column::number("of the day", Column::KEPT),
        Column::number("at most", 1),
    ];
    let row = |used: &ResourceUse| {
        let at_once =
            if used.loads_at_once == 1 { String::new() } else { format!(" ({} at once)", used.loads_at_once) };
        vec![
            format!("{} {}{at_once}", used.kind, used.name),
            used.slots.to_string(),
            show_duration(used.busy),
            format!("{:.1} %", used.busy.as_secs_f64() / 864.0),
            used.bytes.filter(|_| used.slots > 0).map(Bytes::decimal).unwrap_or_default(),
        ]
    };
    table(&columns, &resources.iter().map(row).collect::<Vec<_>>(), self::columns())
}

fn packed(interval: &PackedInterval) -> String {
    let PackedInterval { makespan, bound, loads, .. } = interval;
    let loads = counted(*loads as u64, "load");
    let decides = match &interval.bound_by {
        Some(resource) => format!("for {resource}"),
        None => "for this number of hosts".to_owned(),
    };
    let (every, needed) = (show_duration(interval.interval), show_duration(*makespan));
    if makespan == bound {
        return format!("{every}: {loads} need {needed}, the minimum {decides}");
    }
    let percent = share(*makespan, *bound);
    format!("{every}: {loads} need {needed}, {percent} % of the minimum {decides} ({})", show_duration(*bound))
}

/// Returns a time as a percentage of another one, rounded up.
fn share(time: Duration, of: Duration) -> u64 {
    (time.as_secs() * 100).div_ceil(of.as_secs().max(1))
}

fn unplanned(title: &str, loads: &[UnplannedLoad]) -> String {
    let mut page = Page::default();
    if !loads.is_empty() {
        page.gap();
    }
    page.list(title, &unplanned_lines(loads));
    page.text().trim_end_matches('\n').to_owned() + if loads.is_empty() { "" } else { "\n" }
}

/// Returns one row for each slot. Names have no character that CSV quotes.
pub fn csv(document: &MeshPlanDocument) -> String {
    let mut table = "start,test,from,to,client,length_seconds,max_bytes\r\n".to_owned();
    for slot in &document.slots {
        let ListedSlot { start, test, from, to, client, length, bytes } = slot;
        let bytes = bytes.map(|bytes| bytes.0.to_string()).unwrap_or_default();
        table += &format!("{start},{test},{from},{to},{client},{},{bytes}\r\n", length.as_secs());
    }
    table
}
