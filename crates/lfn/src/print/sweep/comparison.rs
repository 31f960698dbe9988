//! Several sweeps as text: one line for each point, with the goodput of each sweep and the differences from the first.

use lfn_base::units::BitRate;
use lfn_campaign::comparison::{ComparedFigures, ComparedPoint, SweepComparison};

use super::text::head;
use crate::print::label_columns::Page;

/// Maximum characters of a file name in the head of a column.
const MAX_NAME: usize = 20;

/// Returns the table of the points, and the sweeps with their differences.
pub fn comparison_page(comparison: &SweepComparison) -> String {
    let factors = comparison.factors();
    let mut rows: Vec<Vec<String>> = vec![factors.iter().map(|factor| head(*factor).to_owned()).collect()];
    for (number, sweep) in comparison.sweeps.iter().enumerate() {
        rows[0].extend([short_name(&sweep.file), "± 95 %".to_owned()]);
        if number > 0 {
            rows[0].push("difference".to_owned());
        }
    }
    let all = || comparison.points.iter().flat_map(|point| &point.results).flatten().filter_map(|known| known.goodput);
    let (least, most) = (all().min().unwrap_or_default(), all().max().unwrap_or_default());
    let show = |rate: BitRate| {
        let [text, _, _] = BitRate::in_common_unit([rate, least, most]);
        text
    };
    for point in &comparison.points {
        let values = factors.iter().map(|factor| {
            let level = point.levels.iter().find(|level| level.factor == *factor);
            level.map_or("-".to_owned(), |level| factor.show(&level.value))
        });
        let mut row: Vec<String> = values.collect();
        for (number, result) in point.results.iter().enumerate() {
            row.extend([goodput(result.as_ref(), &show), interval(result.as_ref())]);
            if number > 0 {
                row.push(difference(point, result.as_ref()));
            }
        }
        rows.push(row);
    }
    let mut text = table(&rows);
    let is_distinct = |figures: &ComparedFigures| figures.is_distinct == Some(true);
    if comparison.points.iter().any(|point| point.results.iter().flatten().any(is_distinct)) {
        text += "\n* the 95 % intervals do not overlap\n";
    }
    text.push('\n');
    let mut page = Page::default();
    for sweep in &comparison.sweeps {
        let runs = if sweep.runs == 1 { "1 run".to_owned() } else { format!("{} runs", sweep.runs) };
        page.row("sweep", format!("{}: {}, {}, {runs}", sweep.file, sweep.server, sweep.started));
    }
    for warning in &comparison.warnings {
        page.row("warning", warning);
    }
    text + &page.text()
}

fn goodput(figures: Option<&ComparedFigures>, show: &dyn Fn(BitRate) -> String) -> String {
    figures.and_then(|figures| figures.goodput).map_or("-".to_owned(), show)
}

fn interval(figures: Option<&ComparedFigures>) -> String {
    let share = |figures: &ComparedFigures| Some(figures.half_width?.get() / figures.goodput?.as_f64().max(1.0));
    figures.and_then(share).map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Returns the difference from the first sweep. A point that one of both lacks has none.
fn difference(point: &ComparedPoint, figures: Option<&ComparedFigures>) -> String {
    match (point.results.first(), figures) {
        (Some(None), Some(_)) => return "only here".to_owned(),
        (Some(Some(_)), None) => return "missing".to_owned(),
        _ => {}
    }
    let Some((percent, figures)) = figures.and_then(|own| Some((own.difference_percent?, own))) else {
        return "-".to_owned();
    };
    let mark = if figures.is_distinct == Some(true) { " *" } else { "" };
    format!("{:+.1} %{mark}", percent.get())
}

/// Returns the end of a file name, without control characters.
fn short_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    let name: Vec<char> = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    name[name.len().saturating_sub(MAX_NAME)..].iter().collect()
}

/// Returns the rows with right-aligned columns.
fn table(rows: &[Vec<String>]) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}", width = *width));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
