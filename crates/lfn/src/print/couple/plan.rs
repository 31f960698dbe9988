//! The plan of a coupled run as text.

use std::time::Duration;

use lfn_api::documents::CouplePlanDocument;
use lfn_base::units::{Bytes, show_duration};
use lfn_couple::document::lag_advice;
use lfn_couple::plan::{PlannedDirection, PlannedRun, PlannedVariable};

use crate::print::counted;
use crate::print::label_columns::Page;
use crate::print::table::{Column, table};
use crate::print::terminal::columns;

/// Returns the plan as text: variables, directions, times, and the lags to write.
pub fn page(document: &CouplePlanDocument) -> String {
    let CouplePlanDocument { coupling, path, predicted, .. } = document;
    let (steps, rtt) = (counted(predicted.steps, "step"), show_duration(path.rtt));
    let mut text = format!("{coupling}: {steps} over {}, RTT {rtt}\n\n", path.rate);
    text += &(variables(predicted) + "\n" + &directions(&predicted.directions) + "\n");
    let mut page = Page::default();
    page.row("step", step(predicted));
    page.row("run", run(predicted));
    text += &page.text();
    let advice = lag_advice(predicted);
    if !advice.is_empty() {
        text.push('\n');
    }
    advice.into_iter().fold(text, |text, line| text + &line + "\n")
}

fn variables(plan: &PlannedRun) -> String {
    let columns = [
        Column::text("variable", Column::KEPT),
        Column::text("from", 3),
        Column::text("to", 3),
        Column::number("size", 2),
        Column::number("lag", Column::KEPT),
        Column::number("needed", Column::KEPT),
        Column::number("wait a step", Column::KEPT),
    ];
    let row = |variable: &PlannedVariable| {
        vec![
            variable.name.clone(),
            variable.from.clone(),
            variable.to.clone(),
            variable.bytes.to_string(),
            variable.lag.to_string(),
            variable.needed_lag.map_or_else(|| "none".to_owned(), |lag| lag.to_string()),
            show_duration(variable.wait),
        ]
    };
    table(&columns, &plan.variables.iter().map(row).collect::<Vec<_>>(), self::columns())
}

fn directions(directions: &[PlannedDirection]) -> String {
    let columns = [
        Column::text("from", Column::KEPT),
        Column::text("to", Column::KEPT),
        Column::number("bytes a step", Column::KEPT),
        Column::number("transfer", 2),
        Column::number("share of the path", 1),
    ];
    let sending = directions.iter().filter(|direction| direction.bytes_per_step > Bytes(0));
    let row = |direction: &PlannedDirection| {
        vec![
            direction.from.clone(),
            direction.to.clone(),
            direction.bytes_per_step.to_string(),
            show_duration(direction.serialisation),
            format!("{:.1} %", direction.utilisation * 100.0),
        ]
    };
    table(&columns, &sending.map(row).collect::<Vec<_>>(), self::columns())
}

fn step(plan: &PlannedRun) -> String {
    let compute = show_duration(plan.compute);
    match plan.step.saturating_sub(plan.compute) {
        Duration::ZERO => format!("{compute}: the slower model computes, and no step waits"),
        wait => {
            format!("{}: {compute} for the slower model, {} for waits", show_duration(plan.step), show_duration(wait))
        }
    }
}

fn run(plan: &PlannedRun) -> String {
    let (run, without) = (show_duration(plan.run), show_duration(plan.run_without_waits));
    if plan.run == plan.run_without_waits { run } else { format!("{run}; {without} without waits") }
}
