//! The result of a run as text.

use std::time::Duration;

use lfn_base::units::show_duration;
use lfn_couple::document::CoupleRunDocument;

/// Returns the predicted and the measured figures side by side, then the verdict and the findings.
pub(crate) fn summary(document: &CoupleRunDocument) -> String {
    let CoupleRunDocument { coupling, component, partner, measured, .. } = document;
    let shown = |time: Option<Duration>| time.map_or_else(|| "unknown".to_owned(), show_duration);
    let mut text = format!(
        "{coupling}: {component} with {partner}, {} steps, RTT {}\n",
        measured.own.steps,
        show_duration(measured.rtt)
    );
    let figures = document.step_figures();
    let width = figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0);
    text += &format!("{:width$}  {:>12}  {:>12}\n", "", "predicted", "measured");
    for figure in figures {
        let (predicted, measured) = (shown(figure.predicted), shown(Some(figure.measured)));
        text += &format!("{:width$}  {predicted:>12}  {measured:>12}\n", figure.name);
    }
    text += &document.verdict.summary;
    document.findings.iter().fold(text, |text, finding| text + "\n" + &finding.name + ": " + &finding.summary)
}
