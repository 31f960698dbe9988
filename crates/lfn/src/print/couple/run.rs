//! The result of a coupled run as text: predicted and measured figures side by side, then the findings.

use lfn_api::documents::{CoupleRunDocument, StepFigure};
use lfn_results::diagnose::Finding;

use crate::print::label_columns::{Page, wrap};
use crate::print::table::{Column, table};
use crate::print::terminal::columns;

/// Returns the result of a run as text.
pub fn page(document: &CoupleRunDocument) -> String {
    let mut page = Page::default();
    for (label, value) in document.remarks() {
        page.row(label, value);
    }
    let text = format!("{}\n\n{}\n{}", document.heading(), figures(document), page.text());
    let text = document.advice().into_iter().fold(text, |text, line| text + &line + "\n");
    document.findings.iter().fold(text, |text, found| text + "\n" + &finding(found))
}

fn figures(document: &CoupleRunDocument) -> String {
    let columns = [
        Column::text("", Column::KEPT),
        Column::number("predicted", Column::KEPT),
        Column::number("measured", Column::KEPT),
    ];
    let row = |figure: StepFigure| figure.texts().to_vec();
    table(&columns, &document.figures().into_iter().map(row).collect::<Vec<_>>(), self::columns())
}

fn finding(finding: &Finding) -> String {
    let text = format!("{}. {}", finding.name, finding.summary);
    wrap(&text, columns()).join("\n") + &format!("\nhint: {}\n", finding.remedy)
}
