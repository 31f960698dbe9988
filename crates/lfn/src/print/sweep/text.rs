//! The result of a sweep as text: a table for each part, its optimum, and the points that differ from their prediction.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_campaign::design::FactorValues;
use lfn_campaign::document::{SweepDocument, SweepPart};
use lfn_campaign::factor::{Factor, Unit, Value, phrases};
use lfn_campaign::schedule::SweepEnd;
use lfn_campaign::summary::PointSummary;

use crate::print::label_columns::Page;

/// A column: its head and the cell of a point.
type Column<'a> = (String, Box<dyn Fn(&PointSummary) -> Option<String> + 'a>);

/// Returns the page for the terminal's width.
pub fn page(document: &SweepDocument) -> String {
    let mut text = String::new();
    let is_plan = document.ended == SweepEnd::DryRun;
    for part in &document.parts {
        if !part.grid.name.is_empty() {
            text += &format!("{}\n", part.grid.name);
        }
        text += &table(document, part, is_plan);
        text.push('\n');
        if let Some(optimum) = &part.optimum {
            let mut page = Page::default();
            page.row("optimum", &optimum.sentence);
            text += &(page.text() + "\n");
        }
    }
    text + &differences(document) + &end(document)
}

fn table(document: &SweepDocument, part: &SweepPart, is_plan: bool) -> String {
    let points: Vec<&PointSummary> = part.points.iter().filter_map(|point| document.points.get(*point)).collect();
    let columns = columns(part, &points, is_plan);
    let mut rows: Vec<Vec<String>> = vec![columns.iter().map(|(head, _)| head.clone()).collect()];
    for point in &points {
        rows.push(columns.iter().map(|(_, cell)| cell(point).unwrap_or_else(|| "-".to_owned())).collect());
    }
    // A column without any figure is skipped.
    let has_figures = |column: usize| rows[1..].iter().any(|row| row[column] != "-");
    let kept: Vec<usize> = (0..columns.len()).filter(|column| has_figures(*column)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for row in &rows {
        let cells = kept.iter().enumerate().map(|(at, column)| {
            let (cell, width) = (&row[*column], width(*column));
            if at + 1 == kept.len() && *column == columns.len() - 1 { cell.clone() } else { format!("{cell:>width$}") }
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

fn columns<'a>(part: &'a SweepPart, points: &[&PointSummary], is_plan: bool) -> Vec<Column<'a>> {
    let mut columns: Vec<Column<'a>> = Vec::new();
    for given in &part.grid.factors {
        let cell = move |point: &PointSummary| {
            let level = point.levels.iter().find(|level| level.factor == given.factor)?;
            Some(value_in_column(given, &level.value))
        };
        columns.push((head(given.factor).to_owned(), Box::new(cell)));
    }
    let published = part.published.iter().map(|known| known.goodput);
    let rates = points.iter().flat_map(|point| [point.goodput, point.predicted]).flatten().chain(published);
    let (least, most) =
        rates.fold((BitRate(u64::MAX), BitRate(0)), |(least, most), rate| (least.min(rate), most.max(rate)));
    // Figures that a reader compares have the same unit.
    let show = move |rate: BitRate| {
        let [text, _, _] = BitRate::in_common_unit([rate, least, most]);
        text
    };
    if !is_plan {
        columns.push(("runs".to_owned(), Box::new(|point| Some(point.runs.to_string()))));
        columns.push(("goodput".to_owned(), Box::new(move |point| point.goodput.map(show))));
        columns.push(("± 95 %".to_owned(), Box::new(interval)));
    }
    columns.push(("predicted".to_owned(), Box::new(move |point| point.predicted.map(show))));
    columns.push((
        "published".to_owned(),
        Box::new(move |point| {
            let known = part.published.iter().find(|known| known.point == point.point)?;
            Some(show(known.goodput))
        }),
    ));
    if is_plan {
        let time = |point: &PointSummary| {
            let time = Duration::try_from_secs_f64(point.expected_time?.get()).ok()?;
            Some(show_duration(rounded(time)))
        };
        columns.push(("time".to_owned(), Box::new(time)));
    }
    columns.push(("limit".to_owned(), Box::new(limit)));
    columns
}

/// Returns a value in the unit of all values of its factor.
fn value_in_column(given: &FactorValues, value: &Value) -> String {
    let numbers = || {
        given.values.iter().filter_map(|value| match value {
            Value::Number(number) => Some(*number),
            Value::Name(_) => None,
        })
    };
    let is_binary = numbers().all(|bytes| Bytes(bytes).to_string().ends_with("iB"));
    match (given.factor.unit(), value, numbers().min(), numbers().max()) {
        (Unit::Bytes, Value::Number(bytes), Some(least), Some(most)) if !is_binary && given.factor != Factor::Mss => {
            let [text, _, _] = Bytes::in_common_decimal_unit([Bytes(*bytes), Bytes(least), Bytes(most)]);
            text
        }
        _ => given.factor.show(value),
    }
}

fn head(factor: Factor) -> &'static str {
    match factor {
        Factor::WindowScale => "scale",
        Factor::FarWindow => "far window",
        Factor::Record => "record",
        Factor::SendBuffer => "send buffer",
        Factor::ReceiveBuffer => "receive buffer",
        _ => factor.name(),
    }
}

/// Returns the half width of the interval as a percentage of the goodput.
fn interval(point: &PointSummary) -> Option<String> {
    let share = point.half_width?.get() / point.goodput?.as_f64().max(1.0);
    Some(format!("{:.1} %", share * 100.0))
}

/// Returns the limit: of the measured goodput, else of the prediction.
fn limit(point: &PointSummary) -> Option<String> {
    if let Some(error) = &point.error {
        return Some(format!("failed: {error}"));
    }
    let predicted = || serde_json::to_value(point.predicted_limit?).ok()?.as_str().map(str::to_owned);
    // The remark in brackets is the same for all points.
    let short = |limit: &String| {
        let limit = limit.strip_prefix("limited by ").unwrap_or(limit);
        limit.split_once(" (").map_or(limit, |(limit, _)| limit).to_owned()
    };
    let limit = point.limit.as_ref().map(short);
    let limit = limit.or_else(predicted)?;
    Some(if point.differs { format!("{limit} *") } else { limit })
}

/// Returns the points that differ from their prediction, with the finding of each.
fn differences(document: &SweepDocument) -> String {
    let different: Vec<&PointSummary> = document.points.iter().filter(|point| point.differs).collect();
    if different.is_empty() {
        return String::new();
    }
    let item = |point: &&PointSummary| {
        let range = match (point.expected_min, point.expected_max) {
            (Some(min), Some(max)) => {
                let [min, max] = BitRate::in_common_unit([min, max]);
                format!(", expected {min} to {max}")
            }
            _ => String::new(),
        };
        let goodput = point.goodput.map(|rate| rate.to_string()).unwrap_or_default();
        let reason = match (&point.finding, &point.limit) {
            (Some(finding), _) => format!("{}: {}. Remedy: {}", finding.name, finding.summary, finding.remedy),
            (None, Some(limit)) => limit.clone(),
            (None, None) => "no finding".to_owned(),
        };
        format!("{}: {goodput}{range}. {reason}", phrases(&point.levels))
    };
    let mut page = Page::default();
    page.list("* differs from the prediction", &different.iter().map(item).collect::<Vec<_>>());
    page.text()
}

fn end(document: &SweepDocument) -> String {
    let runs = document.runs.len();
    let (spent, remaining) = (show_duration(rounded(document.spent)), show_duration(rounded(document.remaining)));
    let ended = match document.ended {
        SweepEnd::DryRun => {
            let least: Duration = document
                .points
                .iter()
                .filter_map(|point| Duration::try_from_secs_f64(point.expected_time?.get()).ok())
                .sum();
            let unknown = document.points.iter().filter(|point| point.expected_time.is_none()).count();
            let more = if unknown > 0 {
                format!(" and the time of {unknown} points, which is not known")
            } else {
                String::new()
            };
            return format!(
                "{} points; one run of each takes {}{more}; the sweep takes about {remaining}\n",
                document.points.len(),
                show_duration(rounded(least))
            );
        }
        SweepEnd::Precise => "every interval is narrow enough",
        SweepEnd::Repeated => "every point has its runs",
        SweepEnd::Budget => "the budget ended the sweep",
        SweepEnd::Interrupted => "interrupted; the same command resumes",
        SweepEnd::Failed => "incomplete; the same command resumes",
    };
    let file = document.state_file.as_deref().map(|file| format!("state      {file}\n")).unwrap_or_default();
    let runs = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    format!("{runs} in {spent}, seed {}: {ended}\n{file}", document.seed)
}

fn rounded(time: Duration) -> Duration {
    if time >= Duration::from_secs(10) {
        Duration::from_secs(time.as_secs_f64().round() as u64)
    } else {
        Duration::from_millis((time.as_secs_f64() * 10.0).round() as u64 * 100)
    }
}
