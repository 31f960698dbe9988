//! The optimum of a part, and its plateau: the points that reach as much.
//!
//! A point is on the plateau if its goodput and that of the best point differ by at most [`PLATEAU_SHARE`], or by at most
//! [`MAX_NOISE_SHARE`] if their intervals overlap. Wide intervals alone do not widen the plateau. The optimum is the point of the plateau with the smallest values: more of a setting gains nothing.

use lfn_base::tcp_model::GoodputLimit;
use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

use crate::design::Part;
use crate::factor::{Factor, Level, Unit, Value, phrases};
use crate::summary::PointSummary;

/// Maximum difference between a point of the plateau and the best point, as a share of the best goodput.
pub const PLATEAU_SHARE: f64 = 0.03;

/// Maximum difference if the intervals of the two points overlap.
pub const MAX_NOISE_SHARE: f64 = 0.05;

/// Optimum of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Optimum {
    /// Number of the point with the smallest values of the plateau.
    pub point: usize,
    /// Mean goodput of this point.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Numbers of all points of the plateau.
    pub plateau: Vec<usize>,
    /// The optimum and its plateau in one sentence.
    pub sentence: String,
}

/// Returns the optimum of the measured points of a part; `None` without a measured point.
pub fn find_optimum(part: &Part, points: &[&PointSummary]) -> Option<Optimum> {
    let measured: Vec<(&PointSummary, f64)> =
        points.iter().filter_map(|point| Some((*point, point.goodput?.as_f64()))).collect();
    let (best, most) = measured.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied()?;
    let margin = |point: &PointSummary| point.half_width.map_or(0.0, |half| half.get());
    let is_level = |point: &PointSummary, goodput: f64| {
        let overlaps = goodput + margin(point) >= most - margin(best);
        let share = if overlaps { MAX_NOISE_SHARE } else { PLATEAU_SHARE };
        goodput >= most * (1.0 - share)
    };
    let plateau: Vec<(&PointSummary, f64)> =
        measured.iter().copied().filter(|(point, goodput)| is_level(point, *goodput)).collect();
    let cost = |point: &PointSummary| ranks(part, point).into_iter().sum::<usize>();
    let (chosen, goodput) = plateau.iter().min_by(|a, b| cost(a.0).cmp(&cost(b.0)).then(b.1.total_cmp(&a.1)))?;
    let varied = part.varied();
    let named: Vec<Level> = named_levels(part, &varied, chosen);
    let goodput = BitRate(goodput.round() as u64);
    let sentence =
        format!("{} {} {goodput}{}", phrases(&named), verb(&named), beyond(part, chosen, &plateau, &measured));
    Some(Optimum {
        point: chosen.point,
        goodput,
        plateau: plateau.iter().map(|(point, _)| point.point).collect(),
        sentence,
    })
}

/// Returns the levels that the sentence names: those that vary, and a window next to its scale.
fn named_levels(part: &Part, varied: &[Factor], point: &PointSummary) -> Vec<Level> {
    let is_window = |factor: Factor| matches!(factor, Factor::Window | Factor::FarWindow | Factor::WindowScale);
    let has_window = varied.iter().any(|factor| is_window(*factor));
    let named = |level: &&Level| {
        varied.contains(&level.factor) || part.factors.len() == 1 || (has_window && is_window(level.factor))
    };
    let levels: Vec<Level> = point.levels.iter().filter(named).cloned().collect();
    if levels.is_empty() { point.levels.clone() } else { levels }
}

fn verb(levels: &[Level]) -> &'static str {
    let singular = matches!(levels, [one] if one.factor.unit() != Unit::Number || one.phrase().starts_with("1 ") || one.factor == Factor::WindowScale);
    if singular { "reaches" } else { "reach" }
}

/// Returns the end of the sentence: the points with larger values.
fn beyond(
    part: &Part,
    chosen: &PointSummary,
    plateau: &[(&PointSummary, f64)],
    measured: &[(&PointSummary, f64)],
) -> String {
    let own = ranks(part, chosen);
    let is_larger = |point: &PointSummary| {
        let ranks = ranks(part, point);
        ranks != own && ranks.iter().zip(&own).all(|(rank, own)| rank >= own)
    };
    let larger: Vec<_> = measured.iter().filter(|(point, _)| is_larger(point)).collect();
    let is_on_plateau = |point: &PointSummary| plateau.iter().any(|(level, _)| level.point == point.point);
    let has_order = part.varied().iter().any(|factor| factor.unit() != Unit::Name);
    if !has_order {
        return match plateau.len() {
            0 | 1 => "; no other point reaches this".to_owned(),
            2 => "; one other point reaches as much".to_owned(),
            more => format!("; {} other points reach as much", more - 1),
        };
    }
    if larger.is_empty() && needs_no_larger_scale(part, chosen) {
        return "; the window needs no larger scale".to_owned();
    }
    if larger.is_empty() && chosen.predicted_limit == Some(GoodputLimit::Capacity) {
        return "; the path carries no more".to_owned();
    }
    if larger.is_empty() {
        return "; this is the end of the range, and larger values may gain more".to_owned();
    }
    match larger.iter().filter(|(point, _)| !is_on_plateau(point)).min_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((worst, goodput)) => {
            let changed: Vec<Level> =
                worst.levels.iter().filter(|level| !chosen.levels.contains(level)).cloned().collect();
            format!(
                "; beyond it nothing is gained ({} {} {})",
                phrases(&changed),
                verb(&changed),
                BitRate(goodput.round() as u64)
            )
        }
        None => "; beyond it nothing is gained".to_owned(),
    }
}

/// Reports whether only the scale varies, and its window fits: a larger scale announces the same window.
fn needs_no_larger_scale(part: &Part, point: &PointSummary) -> bool {
    let number = |factor: Factor| {
        let level = point.levels.iter().find(|level| level.factor == factor)?;
        if let Value::Number(number) = level.value { Some(number) } else { None }
    };
    let window = number(Factor::Window).or(number(Factor::FarWindow));
    let fits = number(Factor::WindowScale).zip(window).is_some_and(|(scale, window)| window <= 65_535 << scale.min(14));
    fits && part.varied() == [Factor::WindowScale]
}

/// Returns the rank of each level among the values of its factor. Names have no order.
fn ranks(part: &Part, point: &PointSummary) -> Vec<usize> {
    let rank = |level: &Level| {
        let factor = part.factors.iter().find(|given| given.factor == level.factor)?;
        let smaller = factor.values.iter().filter(|value| **value < level.value).count();
        Some(if level.factor.unit() == Unit::Name { 0 } else { smaller })
    };
    part.factors
        .iter()
        .filter_map(|given| point.levels.iter().find(|level| level.factor == given.factor))
        .map(|level| rank(level).unwrap_or(0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::{Design, FactorValues};
    use crate::schedule::tests::run;
    use crate::summary::PlannedPoint;
    use crate::values::parse_values;

    fn optimum(factors: &[(Factor, &str)], megabits: &[u64]) -> Optimum {
        let factors = factors
            .iter()
            .map(|(factor, text)| FactorValues { factor: *factor, values: parse_values(*factor, text).unwrap() })
            .collect();
        let design = Design { parts: vec![Part { name: String::new(), factors }] };
        let points = design.points().unwrap();
        let runs: Vec<_> = megabits.iter().enumerate().map(|(point, rate)| run(point, rate * 1_000_000)).collect();
        let planned = PlannedPoint::default();
        let summaries: Vec<_> = points
            .levels
            .iter()
            .enumerate()
            .map(|(point, levels)| PointSummary::new(point, levels, &planned, &runs))
            .collect();
        find_optimum(&design.parts[0], &summaries.iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn optimum_is_the_smallest_point_of_the_plateau() {
        let windows = (Factor::Window, "4547813,9095625,11369531");
        let found = optimum(&[windows, (Factor::WindowScale, "7,8,9")], &[65, 65, 65, 118, 129, 129, 118, 130, 129]);
        assert_eq!(found.sentence, "9.1 MB and scale 8 reach 129 Mb/s; beyond it nothing is gained");
        assert_eq!((found.point, found.plateau), (4, vec![4, 5, 7, 8]));
    }

    #[test]
    fn sentence_names_a_fall_beyond_the_optimum() {
        let found = optimum(&[(Factor::Window, "4547813,9095625,13643438")], &[64, 111, 61]);
        let text = "9.1 MB reaches 111 Mb/s; beyond it nothing is gained (13.6 MB reaches 61 Mb/s)";
        assert_eq!(found.sentence, text);
    }

    #[test]
    fn sentence_says_if_the_range_is_too_short() {
        let found = optimum(&[(Factor::Streams, "1,2,4")], &[10, 20, 40]);
        let text = "4 streams reach 40 Mb/s; this is the end of the range, and larger values may gain more";
        assert_eq!(found.sentence, text);
    }

    #[test]
    fn a_scale_that_fits_the_window_is_the_end() {
        let found = optimum(&[(Factor::Window, "9095625"), (Factor::WindowScale, "6,7,8")], &[62, 124, 129]);
        assert_eq!(found.sentence, "9.1 MB and scale 8 reach 129 Mb/s; the window needs no larger scale");
    }

    #[test]
    fn names_have_no_order() {
        let found = optimum(&[(Factor::Congestion, "cubic,bbr,reno")], &[50, 90, 40]);
        assert_eq!(found.sentence, "bbr reaches 90 Mb/s; no other point reaches this");
    }
}
