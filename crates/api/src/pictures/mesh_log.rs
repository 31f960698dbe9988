//! Pictures of the log of a pair: goodput of each load over the time of day, with the prediction of the day.

use std::time::Duration;

use lfn_base::date;
use lfn_mesh::compare::{DayLog, DirectionLog};
use lfn_mesh::entry::Outcome;
use lfn_plot::{Axis, Dash, Guide, GuideAt, MARKS, Mark, Panel, Point, RED, Series, Shape, Unit, line_look, point};

use super::{Album, counted, seconds};
use crate::documents::LogDocument;

/// Length of an hour, seconds.
const HOUR: f64 = 3600.0;

/// Returns one chart for each direction that has loads.
pub fn of_log(document: &LogDocument) -> Album {
    let LogDocument { first, second, .. } = document;
    let days: Vec<&DayLog> = [Some(&document.log), document.against.as_ref()].into_iter().flatten().collect();
    let dates: Vec<String> = days.iter().map(|day| show_date(day.day)).collect();
    let mut lines = vec![format!("{first} and {second}, {} (UTC)", dates.join(" against "))];
    lines.extend(document.comparison.as_ref().map(|comparison| comparison.summary.clone()));
    let mut album = Album { title: "Log of a pair".into(), lines, ..Album::default() };
    let forward: Vec<&DirectionLog> = days.iter().map(|day| &day.forward).collect();
    let reverse: Vec<&DirectionLog> = days.iter().map(|day| &day.reverse).collect();
    for (stem, logs) in [("goodput-forward", forward), ("goodput-reverse", reverse)] {
        let logs: Vec<DayLoads<'_>> =
            logs.into_iter().zip(&days).zip(&dates).map(|((log, day), date)| DayLoads { date, day, log }).collect();
        if logs.iter().any(|loads| !loads.log.loads.is_empty()) {
            let words = logs.iter().map(DayLoads::in_words).collect::<Vec<_>>().join(" ");
            album.push(stem, panel(&logs), words);
        }
    }
    album
}

/// Loads of a day in one direction.
struct DayLoads<'a> {
    date: &'a str,
    day: &'a DayLog,
    log: &'a DirectionLog,
}

impl DayLoads<'_> {
    /// Returns a point for each load that succeeded or failed. Failed loads are on the horizontal axis.
    fn points(&self, is_failed: bool) -> Vec<Point> {
        let loads = self.log.loads.iter().filter(|load| (load.outcome == Outcome::Failed) == is_failed);
        let hour = |time: Duration| seconds(time.saturating_sub(self.day.day)) / HOUR;
        let y = |goodput: f64| if is_failed { 0.0 } else { goodput };
        loads
            .filter_map(|load| {
                let goodput = load.goodput.map(|rate| rate.as_f64()).or(is_failed.then_some(0.0))?;
                Some(point(hour(load.time), y(goodput)))
            })
            .collect()
    }

    /// Returns the prediction with its limit.
    fn prediction(&self) -> Option<String> {
        let limit = self.log.predicted_limit.map(|limit| format!(" ({limit})")).unwrap_or_default();
        self.log.predicted.map(|rate| format!("predicted {rate}{limit}"))
    }

    fn in_words(&self) -> String {
        let mut words = format!("{}: {}", self.date, counted(self.log.loads.len(), "load"));
        if let Some(goodput) = self.log.goodput {
            words += &format!(", goodput {} to {}", goodput.min, goodput.max);
        }
        if let Some(prediction) = self.prediction() {
            words += &format!(", {prediction}");
        }
        words + "."
    }
}

/// Returns the chart of one direction.
fn panel(days: &[DayLoads<'_>]) -> Panel {
    let rates = days.iter().flat_map(|day| {
        let measured = day.log.goodput.map(|goodput| goodput.max);
        [measured, day.log.predicted].into_iter().flatten().map(|rate| rate.as_f64())
    });
    let name = days.first().map(|day| format!("Goodput {} → {}", day.log.from, day.log.to)).unwrap_or_default();
    let y = Axis::from_zero("goodput", Unit::BitsPerSecond, rates.fold(0.0, f64::max));
    let mut panel = Panel::new(&name, Axis::exact("hour of the day (UTC)", Unit::Count, 0.0, 24.0), y);
    for (number, day) in days.iter().enumerate() {
        let color = line_look(number).color;
        if let (Some(rate), Some(name)) = (day.log.predicted, day.prediction()) {
            panel.guides.push(Guide {
                at: GuideAt::Y(rate.as_f64()),
                name: format!("{}: {name}", day.date),
                label: String::new(),
                color,
                dash: if number == 0 { Dash::Short } else { Dash::Long },
            });
        }
        let shape = Shape::Marks { points: day.points(false), mark: MARKS[number % MARKS.len()] };
        panel.series.push(Series { name: format!("{}: measured", day.date), color, shape });
    }
    let failed: Vec<Point> = days.iter().flat_map(|day| day.points(true)).collect();
    if !failed.is_empty() {
        let shape = Shape::Marks { points: failed, mark: Mark::Cross };
        panel.series.push(Series { name: "failed".into(), color: RED, shape });
    }
    panel
}

fn show_date(day: Duration) -> String {
    date::rfc3339(day).chars().take(10).collect()
}
