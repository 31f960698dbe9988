//! Pictures of coupled runs: the time of the run by the lag, and the figures of a run next to those of its plan.

use lfn_base::units::show_duration;
use lfn_couple::coupling::PathSettings;
use lfn_plot::{Axis, BLUE, Dash, GREEN, Guide, GuideAt, Mark, ORANGE, Panel, Series, Shape, Unit, point};

use super::{Album, line, seconds};
use crate::documents::{CouplePlanDocument, CoupleRunDocument};

/// Room above the highest value.
const ROOM: f64 = 1.05;

/// Returns a chart with the predicted time of the run for each lag.
pub fn of_couple_plan(document: &CouplePlanDocument) -> Album {
    let CouplePlanDocument { predicted, lags, .. } = document;
    let mut album = Album {
        title: format!("Plan of {}", document.coupling),
        lines: vec![format!("{} steps over {}", predicted.steps, path_in_words(&document.path))],
        ..Album::default()
    };
    let points: Vec<_> = lags.iter().enumerate().map(|(place, at)| point(place as f64, seconds(at.run))).collect();
    let high = lags.iter().map(|at| seconds(at.run)).fold(seconds(predicted.run), f64::max);
    let mut panel = Panel::new(
        "Time of the run by the lag",
        Axis::categories("lag of every variable", lags.iter().map(|at| at.lag.to_string()).collect()),
        Axis::from_zero("time of the run", Unit::Seconds, high * ROOM),
    );
    panel.guides.push(Guide {
        at: GuideAt::Y(seconds(predicted.run_without_waits)),
        name: format!("without waits: {}", show_duration(predicted.run_without_waits)),
        label: String::new(),
        color: GREEN,
        dash: Dash::Long,
    });
    panel.series.push(line("predicted", BLUE, Dash::Solid, points.clone()));
    panel.series.push(Series { name: String::new(), color: BLUE, shape: Shape::Marks { points, mark: Mark::Dot } });
    let used: Vec<u64> = predicted.variables.iter().map(|variable| variable.lag).collect();
    let common = used.first().filter(|first| used.iter().all(|lag| lag == *first));
    if let Some((place, lag)) = common.and_then(|lag| Some((lags.iter().position(|at| at.lag == *lag)?, lag))) {
        let points = vec![point(place as f64, seconds(predicted.run))];
        let name = format!("lag {lag} of the coupling file: {}", show_duration(predicted.run));
        panel.series.push(Series { name, color: ORANGE, shape: Shape::Marks { points, mark: Mark::Ring } });
    }
    let values = lags.iter().map(|at| format!("lag {} takes {}", at.lag, show_duration(at.run)));
    let words = format!("Predicted time of the run: {}.", values.collect::<Vec<_>>().join(", "));
    album.push("time-by-lag", panel, words);
    album
}

/// Returns a chart with the predicted and the measured figures of a step.
pub fn of_couple_run(document: &CoupleRunDocument) -> Album {
    let CoupleRunDocument { measured, coupling, component, partner, .. } = document;
    let mut album = Album {
        title: format!("Run of {coupling}"),
        lines: vec![
            format!("{component} with {partner}, RTT {}", show_duration(measured.rtt)),
            document.verdict.summary.clone(),
        ],
        ..Album::default()
    };
    let figures = document.step_figures();
    let highest = figures.iter().flat_map(|figure| [figure.predicted, Some(figure.measured)]).flatten();
    let high = highest.map(seconds).fold(0.0, f64::max);
    let names = figures.iter().map(|figure| figure.name.clone()).collect();
    let mut panel =
        Panel::new("Time of a step", Axis::categories("", names), Axis::from_zero("time", Unit::Seconds, high * ROOM));
    let places = || figures.iter().enumerate().map(|(at, figure)| (at as f64, figure));
    let predicted = places().filter_map(|(at, figure)| Some(point(at, seconds(figure.predicted?)))).collect();
    let shape = Shape::Marks { points: predicted, mark: Mark::Ring };
    panel.series.push(Series { name: "predicted".into(), color: ORANGE, shape });
    let points = places().map(|(at, figure)| point(at, seconds(figure.measured))).collect();
    let shape = Shape::Marks { points, mark: Mark::Cross };
    panel.series.push(Series { name: "measured".into(), color: BLUE, shape });
    let values = figures.iter().map(|figure| {
        let predicted = figure.predicted.map_or_else(|| "unknown".to_owned(), show_duration);
        format!("{}: predicted {predicted}, measured {}", figure.name, show_duration(figure.measured))
    });
    let words = format!("{}.", values.collect::<Vec<_>>().join("; "));
    album.push("step", panel, words);
    album
}

/// Returns the path in words.
fn path_in_words(path: &PathSettings) -> String {
    format!("{}, RTT {}", path.rate, show_duration(path.rtt))
}
