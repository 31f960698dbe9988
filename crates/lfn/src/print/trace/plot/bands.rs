//! Bands of the limits: a strip with hatching and labels above the plot, and a light tint in the plot.

use lfn_results::evidence::capture::{Period, PeriodLimit};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::axes::Axes;
use super::view::View;
use crate::print::svg::{self, Canvas, Drawn, GREEN, INK, ORANGE, PURPLE, Pixel, SKY, SMALL_FONT, YELLOW};

/// Height of the strip.
pub const STRIP: i32 = 30;
/// Pixels between two lines of the hatching.
const HATCH: i32 = 7;

/// All limits, in the order of the legend.
pub const LIMITS: [PeriodLimit; 5] =
    [PeriodLimit::StartUp, PeriodLimit::Application, PeriodLimit::Receiver, PeriodLimit::Path, PeriodLimit::Recovery];

fn color(limit: PeriodLimit) -> RGBColor {
    match limit {
        PeriodLimit::StartUp => SKY,
        PeriodLimit::Application => YELLOW,
        PeriodLimit::Receiver => ORANGE,
        PeriodLimit::Path => GREEN,
        PeriodLimit::Recovery => PURPLE,
    }
}

/// Returns the columns of each band. A column that is shared by several limits has the limit of most of its time.
fn bands(axes: &Axes<'_, '_>, periods: &[Period]) -> Vec<(i32, i32, PeriodLimit)> {
    let mut bands: Vec<(i32, i32, PeriodLimit)> = Vec::new();
    for x in axes.left..axes.right {
        let Some(limit) = main_limit(periods, axes.time_at(x), axes.time_at(x + 1)) else { continue };
        match bands.last_mut().filter(|(_, end, last)| *end == x && *last == limit) {
            Some(last) => last.1 = x + 1,
            None => bands.push((x, x + 1, limit)),
        }
    }
    bands
}

/// Returns the limit of most of this time.
fn main_limit(periods: &[Period], from: f64, to: f64) -> Option<PeriodLimit> {
    let first = periods.partition_point(|period| period.end.as_secs_f64() <= from);
    let mut shares = LIMITS.map(|limit| (limit, 0.0));
    for period in periods[first..].iter().take_while(|period| period.start.as_secs_f64() < to) {
        if let Some((_, share)) = shares.iter_mut().find(|(limit, _)| *limit == period.limit) {
            *share += overlap(period, from, to);
        }
    }
    let longest = shares.into_iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
    (longest.1 > 0.0).then_some(longest.0)
}

fn overlap(period: &Period, from: f64, to: f64) -> f64 {
    (period.end.as_secs_f64().min(to) - period.start.as_secs_f64().max(from)).max(0.0)
}

/// Returns the share of the shown time of each limit that occurs in it.
pub fn shares(view: &View<'_>) -> Vec<(PeriodLimit, f64)> {
    let share = |limit| {
        let periods = view.evidence.periods.iter().filter(|period| period.limit == limit);
        periods.map(|period| overlap(period, view.from, view.to)).sum::<f64>() / (view.to - view.from)
    };
    LIMITS.into_iter().map(|limit| (limit, share(limit))).filter(|(_, share)| *share > 0.0).collect()
}

/// Draws the strip above the plot, and the tint in the plot.
pub fn draw(axes: &Axes<'_, '_>, view: &View<'_>) -> Drawn {
    let (top, bottom) = (axes.top - STRIP, axes.top - 4);
    for (left, right, limit) in bands(axes, &view.evidence.periods) {
        let tint = color(limit).mix(0.16).filled();
        axes.canvas.draw(&Rectangle::new([(left, axes.top), (right, axes.bottom)], tint))?;
        draw_band(axes.canvas, limit, [(left, top), (right, bottom)])?;
        let width = svg::text_width(limit.name(), SMALL_FONT) + 6;
        if right - left >= width {
            let (x, y) = ((left + right) / 2, (top + bottom) / 2);
            let behind = [(x - width / 2, y - 9), (x + width / 2, y + 10)];
            axes.canvas.draw(&Rectangle::new(behind, WHITE.filled()))?;
            svg::write(axes.canvas, limit.name(), (x, y), SMALL_FONT, INK, HPos::Center)?;
        }
    }
    Ok(())
}

/// Draws a band with the colour and the hatching of a limit.
pub fn draw_band(canvas: &Canvas<'_>, limit: PeriodLimit, [from, to]: [Pixel; 2]) -> Drawn {
    canvas.draw(&Rectangle::new([from, to], color(limit).mix(0.55).filled()))?;
    let (width, height) = (to.0 - from.0, to.1 - from.1);
    let mut lines: Vec<[Pixel; 2]> = Vec::new();
    let falling = |lines: &mut Vec<[Pixel; 2]>| {
        lines.extend((-height..width).step_by(HATCH as usize).filter_map(|shift| diagonal(shift, width, height)));
    };
    match limit {
        PeriodLimit::StartUp => {
            falling(&mut lines);
            mirror(&mut lines, height);
        }
        PeriodLimit::Application => {
            lines.extend((3..width).step_by(HATCH as usize).map(|x| [(x, 0), (x, height)]));
        }
        PeriodLimit::Receiver => falling(&mut lines),
        PeriodLimit::Path => {}
        PeriodLimit::Recovery => {
            falling(&mut lines);
            let mut rising = lines.clone();
            mirror(&mut rising, height);
            lines.append(&mut rising);
        }
    }
    let place = |(x, y): Pixel| (from.0 + x, from.1 + y);
    for line in lines {
        canvas.draw(&PathElement::new(line.map(place), INK.mix(0.55).stroke_width(1)))?;
    }
    Ok(())
}

/// Returns the part within the band of a line that falls from `(shift, 0)` to the right.
fn diagonal(shift: i32, width: i32, height: i32) -> Option<[Pixel; 2]> {
    let (left, right) = (shift.max(0), (shift + height).min(width));
    (left < right).then(|| [(left, left - shift), (right, right - shift)])
}

/// Turns falling lines into rising ones.
fn mirror(lines: &mut [[Pixel; 2]], height: i32) {
    for line in lines {
        *line = line.map(|(x, y)| (x, height - y));
    }
}
