//! The map of the demo: the level of the lake and the wind at the end of each run.

use lfn_api::documents::{Coop3dDocument, Coop3dRun, CoupledModel};
use lfn_api::pictures::{Album, Chart};
use lfn_base::units::show_duration;
use lfn_plot::{Arrow, Axis, INK, Label, Map, Panel, Point, Size, Unit};

use super::basin::{COLUMNS, LENGTH, ROWS, Surface, WIDTH, middle};
use super::result::{FinishedRun, fastest_wind, range, signed};

/// Size of a picture with one of the maps. The basin is four times as long as wide.
pub const SIZE: Size = Size { width: 840, height: 400 };

/// Cells between two arrows.
const ARROW_STRIDE: usize = 8;

/// Returns a map for each run.
pub fn album(document: &Coop3dDocument, runs: &[FinishedRun]) -> Album {
    let steps = document.runs.first().map_or(0, |run| run.result.measured.own.steps);
    let hours = document.model_step.as_secs_f64() * steps as f64 / 3600.0;
    let accuracy = document.accuracy_report.inaccuracies();
    // The same colours in all maps.
    let levels = runs.iter().flat_map(|run| &run.surface.level);
    let scale_end = levels.fold(0.0, |end: f64, level| end.max(level.abs()));
    let chart = |(run, finished): (&Coop3dRun, &FinishedRun)| Chart {
        stem: run.name.clone(),
        panel: panel(document, run, &finished.surface, scale_end),
        description: run_in_words(run),
    };
    Album {
        title: format!("A lake and a storm, coupled over a satellite, after {hours:.1} hours"),
        lines: vec![
            document.models.iter().map(model_in_words).collect::<Vec<_>>().join("; "),
            format!("path: {}, RTT {}", document.path.capacity, show_duration(document.path.base_rtt)),
        ],
        warning: accuracy.first().map(|first| format!("{}: {}", first.direction, first.cause)),
        charts: document.runs.iter().zip(runs).map(chart).collect(),
    }
}

fn model_in_words(model: &CoupledModel) -> String {
    let CoupledModel { component, description, .. } = model;
    format!("{component}: {}, {description}", label(model))
}

/// Returns the name of a model, or the label of a synthetic one.
fn label(model: &CoupledModel) -> &str {
    if model.synthetic { "synthetic" } else { &model.model }
}

fn label_of<'a>(document: &'a Coop3dDocument, component: &str) -> &'a str {
    document.models.iter().find(|model| model.component == component).map_or("synthetic", label)
}

fn run_in_words(run: &Coop3dRun) -> String {
    format!(
        "level from {} m to {} m, wind up to {:.1} m/s.",
        signed(run.lowest_level_meters.get()),
        signed(run.highest_level_meters.get()),
        run.fastest_wind.get()
    )
}

fn panel(document: &Coop3dDocument, run: &Coop3dRun, surface: &Surface, scale_end: f64) -> Panel {
    let kilometers = |meters: f64| meters / 1000.0;
    let (east, north) = (kilometers(LENGTH), kilometers(WIDTH));
    let name = format!(
        "{}, lag {}: {} measured, {} predicted",
        run.name,
        run.lag,
        show_duration(run.measured_run),
        show_duration(run.predicted_run)
    );
    let mut panel = Panel::new(
        &name,
        Axis::exact("eastwards, km", Unit::Count, 0.0, east),
        Axis::exact("northwards, km", Unit::Count, 0.0, north),
    );
    let offset = |count: usize| (count - 1) % ARROW_STRIDE / 2;
    let rows = (offset(ROWS)..ROWS).step_by(ARROW_STRIDE);
    let cells = rows.flat_map(|row| (offset(COLUMNS)..COLUMNS).step_by(ARROW_STRIDE).map(move |column| (row, column)));
    let place = |row: usize, column: usize| {
        let [x, y] = middle(row, column).map(kilometers);
        Point { x, y }
    };
    let arrow = |(row, column): (usize, usize)| Arrow {
        at: place(row, column),
        east: surface.wind_east[row * COLUMNS + column],
        north: surface.wind_north[row * COLUMNS + column],
    };
    panel.map = Some(Map {
        name: format!("level, m ({})", label_of(document, "lake")),
        low: Point { x: 0.0, y: 0.0 },
        high: Point { x: east, y: north },
        columns: COLUMNS,
        values: surface.level.clone(),
        scale_end,
        arrows: cells.map(arrow).collect(),
        arrow_name: format!("wind ({}), up to {:.1} m/s", label_of(document, "atmosphere"), fastest_wind(surface)),
    });
    let (low, high) = range(&surface.level);
    for level in [high, low] {
        let Some(cell) = surface.level.iter().position(|value| *value == level) else { continue };
        let at = place(cell / COLUMNS, cell % COLUMNS);
        panel.labels.push(Label { at, text: format!("{} m", signed(level)), color: INK });
    }
    panel
}
