//! The result of a coupled run as text: predicted and measured figures side by side, then the findings.

use lfn_api::documents::{CoupleRunDocument, StepFigure};
use lfn_base::units::show_duration;
use lfn_couple::RunReport;
use lfn_results::diagnose::Finding;

use super::plan::advice;
use crate::print::counted;
use crate::print::label_columns::{Page, wrap};
use crate::print::table::{Column, table};
use crate::print::terminal::columns;

/// Returns the result of a run as text.
pub fn page(document: &CoupleRunDocument) -> String {
    let CoupleRunDocument { coupling, component, partner, measured, .. } = document;
    let steps = counted(measured.own.steps, "step");
    let resumed = match measured.own.first_step {
        0 => String::new(),
        first => format!(", resumed at step {first}"),
    };
    let rtt = show_duration(measured.rtt);
    let mut text = format!("{coupling}: {component} with {partner}, {steps}{resumed}, RTT {rtt}\n\n");
    text += &(figures(document) + "\n");
    let mut page = Page::default();
    for (label, value) in events(measured) {
        page.row(label, value);
    }
    page.row("result", &document.verdict.summary);
    text += &page.text();
    if document.findings.is_empty() {
        // The plan itself may have waits.
        let lines = document.predicted.as_ref().map(advice).unwrap_or_default();
        return lines.into_iter().fold(text, |text, line| text + &line + "\n");
    }
    document.findings.iter().fold(text, |text, found| text + "\n" + &finding(found))
}

fn figures(document: &CoupleRunDocument) -> String {
    let columns = [
        Column::text("", Column::KEPT),
        Column::number("predicted", Column::KEPT),
        Column::number("measured", Column::KEPT),
    ];
    let shown = |time: Option<std::time::Duration>| time.map_or_else(|| "unknown".to_owned(), show_duration);
    let row = |figure: StepFigure| vec![figure.name, shown(figure.predicted), show_duration(figure.measured)];
    let CoupleRunDocument { measured, predicted, .. } = document;
    let run = measured.own.run;
    let is_whole = predicted.as_ref().is_some_and(|plan| plan.steps == measured.own.steps);
    let planned = predicted.as_ref().filter(|_| is_whole).map(|plan| plan.run);
    let mut rows = vec![vec!["run".to_owned(), shown(planned), show_duration(run)]];
    rows.extend(document.step_figures().into_iter().map(row));
    table(&columns, &rows, self::columns())
}

/// Returns the events of both ends that are counted.
fn events(measured: &RunReport) -> Vec<(&'static str, String)> {
    let mut events = Vec::new();
    let own = &measured.own;
    if own.reconnects > 0 {
        let lost = show_duration(own.disconnected);
        events.push(("connection", format!("{lost} without a connection, {}", counted(own.reconnects, "reconnect"))));
    }
    let ends = [&measured.own, &measured.partner];
    for (name, sent) in ends.iter().flat_map(|end| &end.sent) {
        let received = ends.iter().find_map(|end| end.received.get(name));
        let dropped = sent.dropped + received.map_or(0, |received| received.dropped);
        if dropped > 0 {
            events.push(("dropped", format!("{dropped} of {} of {name}", counted(sent.fields, "field"))));
        }
        let nan = sent.nan.max(received.map_or(0, |received| received.nan));
        if nan > 0 {
            events.push(("not a number", format!("{} of {name}", counted(nan, "element"))));
        }
    }
    events
}

fn finding(finding: &Finding) -> String {
    let text = format!("{}. {}", finding.name, finding.summary);
    wrap(&text, columns()).join("\n") + &format!("\nhint: {}\n", finding.remedy)
}
