//! Pictures of `lfn doctor`: goodput, RTT and windows of both directions, and the trains of datagrams.

use lfn_plot::{Axis, BLUE, Dash, GREY, Mark, ORANGE, Panel, Point, Series, Shape, Unit, point};
use lfn_results::evidence::trains::TrainEvidence;
use lfn_results::report::DoctorDocument;

use super::run::direction_name;
use super::{Album, line, test};

/// Returns the charts of an examination.
pub fn of_doctor(document: &DoctorDocument) -> Album {
    let hosts = &document.origin.hosts;
    let mut album = test::of_runs(&document.runs, &hosts.near, &hosts.far, &document.origin.started);
    album.title = "Examination of a path".into();
    if let Some(first) = document.findings.first() {
        album.lines.insert(1, format!("first cause: {}", first.finding.summary));
    }
    let trains: Vec<(&str, &TrainEvidence)> = document
        .runs
        .iter()
        .filter_map(|run| Some((direction_name(run.direction), run.evidence.trains.as_deref()?)))
        .filter(|(_, trains)| !trains.trains.is_empty())
        .collect();
    if !trains.is_empty() {
        album.push("trains", rates(&trains), "Received rate of each train over its sent rate.".into());
        album.push("train-loss", losses(&trains), "Lost datagrams of each train over its sent rate.".into());
    }
    album
}

/// Returns the looks of the directions.
fn look(number: usize) -> (lfn_plot::Color, Mark) {
    if number == 0 { (BLUE, Mark::Dot) } else { (ORANGE, Mark::Triangle) }
}

fn rates(trains: &[(&str, &TrainEvidence)]) -> Panel {
    let all = || trains.iter().flat_map(|(_, trains)| &trains.trains);
    let top = all().map(|train| train.sent.as_f64().max(train.received.as_f64())).fold(0.0, f64::max);
    let rate = |name: &str| Axis::from_zero(name, Unit::BitsPerSecond, top);
    let mut panel = Panel::new("Trains of datagrams", rate("sent rate"), rate("received rate"));
    panel.series.push(line("all datagrams arrive", GREY, Dash::Short, vec![point(0.0, 0.0), point(top, top)]));
    for (number, (name, trains)) in trains.iter().enumerate() {
        let points: Vec<Point> =
            trains.trains.iter().map(|train| point(train.sent.as_f64(), train.received.as_f64())).collect();
        let (color, mark) = look(number);
        panel.series.push(Series { name: (*name).to_owned(), color, shape: Shape::Marks { points, mark } });
    }
    panel
}

fn losses(trains: &[(&str, &TrainEvidence)]) -> Panel {
    let all = || trains.iter().flat_map(|(_, trains)| &trains.trains);
    let top = all().map(|train| train.sent.as_f64()).fold(0.0, f64::max);
    let share = |train: &lfn_results::udp::ramp::StepReport| 100.0 * train.lost as f64 / train.datagrams.max(1) as f64;
    let highest = all().map(share).fold(0.0, f64::max);
    let loss = Axis::from_zero("lost datagrams", Unit::Percent, if highest > 0.0 { highest } else { 1.0 });
    let mut panel = Panel::new("Loss of the trains", Axis::from_zero("sent rate", Unit::BitsPerSecond, top), loss);
    for (number, (name, trains)) in trains.iter().enumerate() {
        let points = trains.trains.iter().map(|train| point(train.sent.as_f64(), share(train))).collect();
        let (color, mark) = look(number);
        panel.series.push(Series { name: (*name).to_owned(), color, shape: Shape::Marks { points, mark } });
    }
    panel
}
