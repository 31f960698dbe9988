//! Pictures of results: charts as data from the documents of the commands. [`lfn_plot`] draws them.

mod copy;
mod couple;
mod course;
mod doctor;
mod emulate;
mod limits;
mod mesh_log;
mod overlay;
mod run;
mod show;
mod sweep;
mod sweeps;
mod test;
mod trace;
mod windows;

use std::time::Duration;

use lfn_plot::{Color, Dash, Panel, Picture, Point, Series, Shape, point};

pub use copy::of_copy;
pub use couple::{of_couple_plan, of_couple_run};
pub use doctor::of_doctor;
pub use emulate::of_emulation;
pub use mesh_log::of_log;
pub use show::of_results;
pub use sweep::of_sweep;
pub use sweeps::of_sweeps;
pub use test::{of_test, of_tuning};
pub use trace::{ConnectionAlbum, TimeRange, of_trace};

/// Charts of one result, with the texts that all of them have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Album {
    /// Title of one picture with all charts.
    pub title: String,
    /// Lines below the title: the hosts and the main figures.
    pub lines: Vec<String>,
    /// Reason why the figures are not reliable.
    pub warning: Option<String>,
    pub charts: Vec<Chart>,
}

/// A chart with the stem of its file name.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub stem: String,
    pub panel: Panel,
    /// The chart in words.
    pub description: String,
}

impl Album {
    /// Returns one picture with all charts.
    pub fn overview(&self) -> Picture {
        let [only] = self.charts.as_slice() else {
            let words = |chart: &Chart| format!("{}: {}", chart.panel.name, chart.description);
            return Picture {
                title: self.title.clone(),
                lines: self.lines.clone(),
                warning: self.warning.clone(),
                description: self.charts.iter().map(words).collect::<Vec<_>>().join(" "),
                panels: self.charts.iter().map(|chart| chart.panel.clone()).collect(),
            };
        };
        self.picture(only)
    }

    /// Returns a picture for each chart, with the stem of its file name.
    pub fn pictures(&self) -> impl Iterator<Item = (&str, Picture)> {
        self.charts.iter().map(|chart| (chart.stem.as_str(), self.picture(chart)))
    }

    fn picture(&self, chart: &Chart) -> Picture {
        Picture {
            title: chart.panel.name.clone(),
            lines: self.lines.clone(),
            warning: self.warning.clone(),
            description: chart.description.clone(),
            panels: vec![chart.panel.clone()],
        }
    }

    /// Adds a chart. Its stem has a number if another chart has the same stem.
    fn push_numbered(&mut self, stem: String, panel: Panel, description: String) {
        let is_free = |stem: &String| self.charts.iter().all(|chart| chart.stem != *stem);
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        let free = [stem.clone()].into_iter().chain(numbered).find(is_free).unwrap_or_default();
        self.push(free, panel, description);
    }

    fn push(&mut self, stem: impl Into<String>, panel: Panel, description: String) {
        self.charts.push(Chart { stem: stem.into(), panel, description });
    }
}

/// A value that holds for a range of time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    from: f64,
    to: f64,
    value: f64,
}

/// Returns the line of values that each hold for a time. A time without a value interrupts the line.
fn step_line(steps: &[Step]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::with_capacity(2 * steps.len());
    for step in steps {
        // Neighbouring intervals of two clocks may have a short gap.
        let is_next = points.last().is_some_and(|last| step.from - last.x <= 0.05 * (step.to - step.from).abs());
        if !points.is_empty() && !is_next {
            points.push(point(f64::NAN, f64::NAN));
        }
        points.extend([point(step.from, step.value), point(step.to, step.value)]);
    }
    points
}

/// Returns a line with an entry in the legend.
fn line(name: impl Into<String>, color: Color, dash: Dash, points: Vec<Point>) -> Series {
    Series { name: name.into(), color, shape: Shape::Line { points, width: 2.0, dash } }
}

/// Returns the highest value of points that are numbers.
fn highest<'a>(points: impl IntoIterator<Item = &'a Point>) -> f64 {
    points.into_iter().map(|point| point.y).filter(|y| y.is_finite()).fold(0.0, f64::max)
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// Returns a noun with its number.
fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
