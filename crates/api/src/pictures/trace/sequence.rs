//! Time-sequence: sent data, acknowledgements and the end of the window, with marks for retransmissions.

use lfn_plot::{Axis, BLUE, Dash, GREEN, INK, Mark, ORANGE, Panel, Point, RED, Series, Shape, Unit, point};
use lfn_trace::{Point as Bin, SentKind, SentRange};

use super::view::View;
use crate::pictures::line;

/// Maximum height of the window above the data, relative to the height of the data.
const MAX_ABOVE: f64 = 0.4;

/// Returns the data and the acknowledgements over time.
pub(super) fn panel(view: &View<'_>) -> Panel {
    let (low, data_high) = extent(view);
    let window_high = view.acknowledgements().map(|bin| bin.value.window_end as f64).fold(0.0, f64::max);
    let max_high = data_high + MAX_ABOVE * (data_high - low);
    let high = window_high.min(max_high).max(data_high).max(low + 1000.0);
    let axis = Axis::between("byte of the stream", Unit::Bytes, low, high);
    let mut panel = view.panel("Data and acknowledgements over time", axis);

    let acknowledgements = view.shown(view.series.acknowledgements());
    let (mut window, mut acknowledged): (Vec<Point>, Vec<Point>) = (Vec::new(), Vec::new());
    for bin in acknowledgements {
        let times = [bin.start, bin.end].map(|at| view.seconds(at));
        step(&mut window, times, bin.value.window_end as f64);
        step(&mut acknowledged, times, bin.value.offset as f64);
    }
    let sent = view.shown(view.series.data(SentKind::New)).iter().flat_map(|bin| {
        [point(view.seconds(bin.start), bin.value.start as f64), point(view.seconds(bin.end), bin.value.end as f64)]
    });
    let shape = Shape::Line { points: sent.collect(), width: 4.0, dash: Dash::Solid };
    panel.series.push(line("acknowledgements", GREEN, Dash::Solid, acknowledged));
    panel.series.push(Series { name: "data".into(), color: BLUE, shape });
    // The data reaches the end of a full window, so the window is drawn above the data.
    let name = if window_high > high { "end of the window (in part above)" } else { "end of the window" };
    panel.series.push(line(name, INK, Dash::Short, window));
    for (kind, name, color, mark) in [
        (SentKind::FillsGap, "fills a gap", ORANGE, Mark::Ring),
        (SentKind::Retransmission, "retransmissions", RED, Mark::Cross),
    ] {
        let segments = segments(view, kind);
        if segments > 0 {
            let shape = Shape::Marks { points: middles(view, kind), mark };
            panel.series.push(Series { name: format!("{name} ({segments})"), color, shape });
        }
    }
    if view.shown(view.series.data(SentKind::New)).is_empty() && acknowledgements.is_empty() {
        panel.note = Some("no data in this time".into());
    }
    panel
}

/// Continues a line at its last value up to a point, then draws it to the value of this point.
fn step(line: &mut Vec<Point>, [start, end]: [f64; 2], value: f64) {
    line.extend(line.last().map(|before| point(start, before.y)));
    line.push(point(end, value));
}

/// Returns the lowest and the highest byte of the data and the acknowledgements.
fn extent(view: &View<'_>) -> (f64, f64) {
    let acknowledged = view.acknowledgements().map(|bin| (bin.value.offset, bin.value.offset));
    let kinds = [SentKind::New, SentKind::Retransmission, SentKind::FillsGap];
    let sent = kinds.into_iter().flat_map(|kind| inside(view, kind)).map(|bin| (bin.value.start, bin.value.end));
    let all = acknowledged.chain(sent).fold(None, |all: Option<(u64, u64)>, (low, high)| {
        let (lowest, highest) = all.unwrap_or((low, high));
        Some((lowest.min(low), highest.max(high)))
    });
    all.map_or((0.0, 1000.0), |(low, high)| (low as f64, high as f64))
}

/// Returns the sent data of a kind within the shown time.
fn inside<'a>(view: &'a View<'a>, kind: SentKind) -> impl Iterator<Item = &'a Bin<SentRange>> {
    view.shown(view.series.data(kind)).iter().filter(|bin| view.seconds(bin.end) >= view.from)
}

fn segments(view: &View<'_>, kind: SentKind) -> u64 {
    inside(view, kind).map(|bin| bin.value.segments).sum()
}

fn middles(view: &View<'_>, kind: SentKind) -> Vec<Point> {
    let middle = |range: SentRange| (range.start as f64 + range.end as f64) / 2.0;
    inside(view, kind).map(|bin| point(view.seconds(bin.start), middle(bin.value))).collect()
}

/// Returns the panel in words.
pub(super) fn describe(view: &View<'_>) -> String {
    let [new, retransmissions, fills] =
        [SentKind::New, SentKind::Retransmission, SentKind::FillsGap].map(|kind| segments(view, kind));
    format!(
        "{new} segments with new data, {retransmissions} retransmissions, {fills} segments that fill a gap, {} acknowledged.",
        view.acknowledged().decimal()
    )
}
