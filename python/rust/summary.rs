//! The result of a run as text.

use lfn_couple::document::{CoupleRunDocument, StepFigure};

/// Returns the predicted and the measured figures side by side, then the events, the verdict and the findings with their hints.
pub(crate) fn summary(document: &CoupleRunDocument) -> String {
    let mut lines = vec![document.heading()];
    let figures: Vec<_> = document.figures().into_iter().map(StepFigure::texts).collect();
    let width = figures.iter().map(|[name, ..]| name.chars().count()).max().unwrap_or(0);
    let row = |[name, predicted, measured]: [&str; 3]| format!("{name:width$}  {predicted:>12}  {measured:>12}");
    lines.push(row(["", "predicted", "measured"]));
    lines.extend(figures.iter().map(|texts| row(texts.each_ref().map(String::as_str))));
    lines.extend(document.remarks().into_iter().map(|(label, text)| format!("{label}: {text}")));
    lines.extend(document.advice());
    for finding in &document.findings {
        lines.push(format!("{}: {}", finding.name, finding.summary));
        lines.push(format!("hint: {}", finding.remedy));
    }
    lines.join("\n")
}
