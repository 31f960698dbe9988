//! RTT over time, with the base RTT.

use lfn_base::units::show_duration;
use lfn_plot::{Axis, BLUE, Dash, Guide, GuideAt, INK, Panel, Point, RangePoint, SKY, Series, Shape, Unit, point};
use lfn_trace::{Point as Bin, RttSamples};

use super::view::View;
use crate::pictures::line;

/// Time without samples that interrupts the line, in base RTTs, and as a share of the shown time.
const MAX_GAP: f64 = 4.0;
const MAX_GAP_SHARE: f64 = 0.02;

/// Returns the RTT samples over time.
pub(super) fn panel(view: &View<'_>) -> Panel {
    let base = view.evidence.rtt.base;
    let highest = samples(view).map(|bin| bin.value.max).max().unwrap_or_default().max(base);
    let rtt = Axis::from_zero("RTT", Unit::Seconds, highest.as_secs_f64().max(1e-6));
    let mut panel = view.panel("Round-trip time", rtt);
    let range = |bin: &Bin<RttSamples>| {
        let [low, y, high] = [bin.value.min, bin.value.mean(), bin.value.max].map(|rtt| rtt.as_secs_f64());
        RangePoint { x: view.seconds(bin.start), low, y, high }
    };
    let points = samples(view).map(range).collect();
    panel.series.push(Series { name: "minimum to maximum".into(), color: SKY, shape: Shape::Bars { points } });
    panel.series.push(line("RTT, mean of the samples", BLUE, Dash::Solid, mean(view)));
    if !base.is_zero() {
        panel.guides.push(Guide {
            at: GuideAt::Y(base.as_secs_f64()),
            name: format!("base RTT {}", show_duration(base)),
            label: String::new(),
            color: INK,
            dash: Dash::Short,
        });
    }
    if samples(view).next().is_none() {
        panel.note = Some("no RTT samples in this time".into());
    }
    panel
}

/// Returns the mean of the samples over time. A line does not cross a time without samples.
fn mean(view: &View<'_>) -> Vec<Point> {
    let max_gap = (MAX_GAP * view.evidence.rtt.base.as_secs_f64()).max(MAX_GAP_SHARE * (view.to - view.from));
    let mut points: Vec<Point> = Vec::new();
    for bin in samples(view) {
        let next = point(view.seconds(bin.start), bin.value.mean().as_secs_f64());
        if points.last().is_some_and(|last| next.x - last.x > max_gap) {
            points.push(point(f64::NAN, f64::NAN));
        }
        points.push(next);
    }
    points
}

fn samples<'a>(view: &'a View<'a>) -> impl Iterator<Item = &'a Bin<RttSamples>> {
    view.shown(view.series.rtts()).iter().filter(|bin| view.seconds(bin.end) >= view.from)
}

/// Returns the panel in words.
pub(super) fn describe(view: &View<'_>) -> String {
    let lowest = samples(view).map(|bin| bin.value.min).min();
    let highest = samples(view).map(|bin| bin.value.max).max();
    let (Some(lowest), Some(highest)) = (lowest, highest) else { return "No RTT samples.".to_owned() };
    format!("RTT from {} to {}.", show_duration(lowest), show_duration(highest))
}
