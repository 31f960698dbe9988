//! The result of a sweep as text: a table for each part, its optimum, and the points that differ from their prediction.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_campaign::design::FactorValues;
use lfn_campaign::document::{SweepDocument, SweepPart};
use lfn_campaign::factor::{Factor, Unit, Value, phrases};
use lfn_campaign::schedule::SweepEnd;
use lfn_campaign::summary::PointSummary;

use crate::print::counted;
use crate::print::label_columns::Page;

/// A column: its head and the cell of a point.
type Column<'a> = (String, Box<dyn Fn(&PointSummary) -> Option<String> + 'a>);

/// Returns the result as text.
pub fn page(document: &SweepDocument) -> String {
    let mut text = String::new();
    let is_plan = document.ended == SweepEnd::DryRun;
    for part in &document.parts {
        if !part.grid.name.is_empty() {
            text += &format!("{}\n", part.grid.name);
        }
        text += &table(document, part, is_plan);
        text.push('\n');
        let mut page = Page::default();
        let others = part.published.iter().filter(|run| run.point.is_none());
        let others: Vec<String> = others.map(|run| format!("{} {}", phrases(&run.levels), run.goodput)).collect();
        if !others.is_empty() {
            page.row("published", format!("also {}, which the sweep does not repeat", others.join("; ")));
        }
        if let Some(optimum) = &part.optimum {
            page.row("optimum", &optimum.sentence);
        }
        let rows = page.text();
        if !rows.is_empty() {
            text += &(rows + "\n");
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
            let known = part.published.iter().find(|known| known.point == Some(point.point))?;
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

pub(super) fn head(factor: Factor) -> &'static str {
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
        let explanation = point.explanation.as_deref().unwrap_or_default();
        format!("{}: {goodput}{range}. {explanation}", phrases(&point.levels))
    };
    let mut page = Page::default();
    page.list("* differs from the prediction", &different.iter().map(item).collect::<Vec<_>>());
    page.text()
}

fn end(document: &SweepDocument) -> String {
    let count = |has: fn(&PointSummary) -> bool| document.points.iter().filter(|point| has(point)).count();
    let failed = count(|point| point.error.is_some());
    let missing = count(|point| point.runs == 0 && point.error.is_none());
    let mut ended = match document.ended {
        SweepEnd::DryRun => return plan_end(document),
        SweepEnd::Repeated if failed > 0 => "every other point has its runs",
        SweepEnd::Repeated => "every point has its runs",
        SweepEnd::Precise if failed > 0 => "every other interval is narrow enough",
        SweepEnd::Precise => "every interval is narrow enough",
        SweepEnd::Budget => "the budget ended the sweep",
        SweepEnd::Interrupted => "interrupted; the same command resumes",
        SweepEnd::Failed if failed == document.points.len() => "every point failed",
        SweepEnd::Failed => "incomplete; the same command resumes",
        SweepEnd::Unknown => "the runs of the state file so far",
    }
    .to_owned();
    if failed > 0 {
        ended += &format!("; {} failed", counted(failed as u64, "point"));
    }
    if missing > 0 {
        ended += &format!("; {} without a run", counted(missing as u64, "point"));
    }
    let file = document.state_file.as_deref().map(|file| format!("state      {file}\n")).unwrap_or_default();
    let seed = document.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    let spent = show_duration(rounded(document.spent));
    format!("{} in {spent}{seed}: {ended}\n{file}", counted(document.runs.len() as u64, "run"))
}

/// Returns the end of a plan: the number of points, and the time of the runs.
fn plan_end(document: &SweepDocument) -> String {
    let time = |point: &PointSummary| Duration::try_from_secs_f64(point.expected_time?.get()).ok();
    let known: Vec<Duration> = document.points.iter().filter_map(time).collect();
    let points = counted(document.points.len() as u64, "point");
    let unknown = document.points.len() - known.len();
    if unknown > 0 {
        let of = counted(unknown as u64, "point");
        return format!("{points}; the time of {of} is unknown without the capacity and the RTT of the path\n");
    }
    let once = show_duration(rounded(known.into_iter().fold(Duration::ZERO, Duration::saturating_add)));
    let done = match document.runs.len() {
        0 => String::new(),
        runs => format!("; {} finished", counted(runs as u64, "run")),
    };
    let remaining = show_duration(rounded(document.remaining));
    let rest = if document.runs.is_empty() { "the sweep takes" } else { "the others take" };
    format!("{points}; one run of each takes {once}{done}; {rest} about {remaining}\n")
}

fn rounded(time: Duration) -> Duration {
    if time >= Duration::from_secs(10) {
        Duration::from_secs(time.as_secs_f64().round() as u64)
    } else {
        Duration::from_millis((time.as_secs_f64() * 10.0).round() as u64 * 100)
    }
}
