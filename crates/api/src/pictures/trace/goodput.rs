//! Goodput over time, with the limit of each period.

use std::fmt::Write as _;

use lfn_base::units::{BitRate, show_duration};
use lfn_plot::{
    Axis, BLUE, Band, BandKind, Color, GREEN, Hatch, INK, Label, ORANGE, PURPLE, Panel, SKY, Series, Shape, Unit,
    YELLOW, point,
};
use lfn_results::evidence::capture::{Period, PeriodLimit};

use super::steps::Steps;
use super::view::View;
use crate::pictures::limits::share_text;

/// Highest step relative to the 95th percentile that the plot shows. A jump of the acknowledgements after a loss is higher
/// than the path.
const MAX_PEAK: f64 = 2.5;
/// Maximum number of periods in the description.
const MAX_DESCRIBED: usize = 20;

/// All limits with their looks, in the order of the legend.
pub(super) const LIMITS: [(PeriodLimit, Color, Hatch); 5] = [
    (PeriodLimit::StartUp, SKY, Hatch::Rising),
    (PeriodLimit::Application, YELLOW, Hatch::Vertical),
    (PeriodLimit::Receiver, ORANGE, Hatch::Falling),
    (PeriodLimit::Path, GREEN, Hatch::None),
    (PeriodLimit::Recovery, PURPLE, Hatch::Crossed),
];

/// Returns the goodput over time with bands for its limit.
pub(super) fn panel(view: &View<'_>) -> Panel {
    let steps = Steps::new(view);
    let (peak, usual) = (steps.peak(), steps.usual_maximum());
    let is_cut = peak > MAX_PEAK * usual;
    let shown = if is_cut { 1.5 * usual } else { peak };
    let goodput = Axis::from_zero("goodput", Unit::BitsPerSecond, shown.max(1e3));
    let mut panel = view.panel("Goodput and its limit over time", goodput);
    let ends = steps.bounds.windows(2);
    let corners = ends.zip(&steps.rates).flat_map(|(ends, &rate)| [point(ends[0], rate), point(ends[1], rate)]);
    let shape = Shape::Area { points: corners.collect() };
    panel.series.push(Series { name: "goodput".into(), color: BLUE, shape });
    if peak == 0.0 {
        panel.note = Some("no acknowledged data in this time".into());
    }
    if is_cut {
        let place = steps.rates.iter().position(|rate| *rate == peak).unwrap_or(0);
        let at = point(steps.bounds[place], peak);
        panel.labels.push(Label { at, text: format!("peak {}", BitRate(peak as u64)), color: INK });
    }
    for (limit, color, hatch) in LIMITS {
        let share = share(view, limit);
        if share > 0.0 {
            let kind = panel.band_kinds.len();
            let name = share_text(limit.name(), share);
            panel.band_kinds.push(BandKind { name, label: limit.name().to_owned(), color, hatch });
            let own = view.evidence.periods.iter().filter(|period| period.limit == limit);
            let band = |period: &Period| Band { from: period.start.as_secs_f64(), to: period.end.as_secs_f64(), kind };
            panel.bands.extend(own.map(band));
        }
    }
    panel
}

/// Returns the share of the shown time that a limit takes.
fn share(view: &View<'_>, limit: PeriodLimit) -> f64 {
    let overlap =
        |period: &Period| (period.end.as_secs_f64().min(view.to) - period.start.as_secs_f64().max(view.from)).max(0.0);
    let periods = view.evidence.periods.iter().filter(|period| period.limit == limit);
    periods.map(overlap).sum::<f64>() / (view.to - view.from)
}

/// Returns the panel in words.
pub(super) fn describe(view: &View<'_>) -> String {
    let steps = Steps::new(view);
    let mut text = format!(
        "Highest goodput of a step of {}: {}.",
        show_duration(std::time::Duration::from_secs_f64(steps.length())),
        BitRate(steps.peak() as u64)
    );
    let shares = LIMITS.map(|(limit, ..)| (limit, share(view, limit)));
    let shares = shares.into_iter().filter(|(_, share)| *share > 0.0);
    let shares: Vec<_> = shares.map(|(limit, share)| share_text(limit.name(), share)).collect();
    if !shares.is_empty() {
        let _ = write!(text, " Limits by time: {}.", shares.join(", "));
    }
    let periods = &view.evidence.periods;
    if periods.len() <= MAX_DESCRIBED {
        for period in periods {
            let [start, end] = [period.start, period.end].map(show_duration);
            let _ = write!(text, " From {start} to {end}: {}.", period.limit.name());
        }
    }
    text
}
