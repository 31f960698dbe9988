//! The optimum of a part, and its plateau: the points that reach as much.
//!
//! A point is on the plateau if its goodput and that of the best point differ by at most [`PLATEAU_SHARE`], or by at most
//! [`MAX_NOISE_SHARE`] if their intervals overlap. Wide intervals alone do not widen the plateau. A short test can measure
//! more than the path carries; the excess does not count. The optimum is the point of the plateau with the smallest
//! values: more of a setting gains nothing.

use lfn_base::tcp_model::GoodputLimit;
use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

use crate::design::Part;
use crate::factor::{Factor, Level, Unit, Value, enumerate};
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
    let of_the_path = points.iter().filter(|point| point.predicted_limit == Some(GoodputLimit::Capacity));
    let ceiling = of_the_path.filter_map(|point| point.predicted).max().map_or(f64::INFINITY, BitRate::as_f64);
    let measured: Vec<(&PointSummary, f64)> =
        points.iter().filter_map(|point| Some((*point, point.goodput?.as_f64().min(ceiling)))).collect();
    let (best, max) = measured.iter().max_by(|a, b| a.1.total_cmp(&b.1)).copied()?;
    let margin = |point: &PointSummary| point.half_width.map_or(0.0, |half| half.get());
    let is_on_plateau = |point: &PointSummary, goodput: f64| {
        let overlaps = goodput + margin(point) >= max - margin(best);
        let share = if overlaps { MAX_NOISE_SHARE } else { PLATEAU_SHARE };
        goodput >= max * (1.0 - share)
    };
    let plateau: Vec<(&PointSummary, f64)> =
        measured.iter().copied().filter(|(point, goodput)| is_on_plateau(point, *goodput)).collect();
    let cost = |point: &PointSummary| ranks(part, point).into_iter().sum::<usize>();
    let (chosen, goodput) = plateau.iter().min_by(|a, b| cost(a.0).cmp(&cost(b.0)).then(b.1.total_cmp(&a.1)))?;
    let varied = part.varied();
    let named: Vec<Level> = named_levels(part, &varied, chosen);
    let goodput = BitRate(goodput.round() as u64);
    let sentence =
        format!("{} {} {goodput}{}", words(part, &named), verb(&named), beyond(part, chosen, &plateau, &measured));
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
    let is_one = |level: &Level| match level.factor {
        Factor::Record => false,
        Factor::Count | Factor::Streams => level.value == Value::Number(1),
        _ => true,
    };
    if matches!(levels, [level] if is_one(level)) { "reaches" } else { "reach" }
}

/// Returns levels in words. A value has all its digits if another value of its factor reads the same without them.
fn words(part: &Part, levels: &[Level]) -> String {
    let phrase = |level: &Level| {
        let given = part.factors.iter().find(|given| given.factor == level.factor);
        let others = given.into_iter().flat_map(|given| &given.values).filter(|value| **value != level.value);
        let mut others = others.map(|value| Level { factor: level.factor, value: value.clone() }.phrase());
        if others.any(|other| other == level.phrase()) { level.exact_phrase() } else { level.phrase() }
    };
    enumerate(&levels.iter().map(phrase).collect::<Vec<_>>())
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
    let is_on_plateau = |point: &PointSummary| plateau.iter().any(|(other, _)| other.point == point.point);
    let has_order = part.varied().iter().any(|factor| factor.unit() != Unit::Name);
    if !has_order {
        return match plateau.len() {
            0 | 1 => "; no other point reaches this".to_owned(),
            2 => "; one other point reaches as much".to_owned(),
            more => format!("; {} other points reach as much", more - 1),
        };
    }
    if larger.is_empty() && part.varied() == [Factor::WindowScale] && scale_fits_window(chosen) {
        return "; the window needs no larger scale".to_owned();
    }
    // More records have a smaller share of the start-up.
    let is_full = chosen.predicted_limit == Some(GoodputLimit::Capacity) && !part.varied().contains(&Factor::Count);
    if larger.is_empty() && is_full {
        return "; the path carries no more".to_owned();
    }
    let ends = ends_of_ranges(part, chosen, measured);
    if !is_full && !ends.is_empty() {
        let of = if part.varied().len() > 1 { format!(" of {}", ends.join(" and ")) } else { String::new() };
        return format!("; this is the end of the range{of}, and larger values may gain more");
    }
    match larger.iter().filter(|(point, _)| !is_on_plateau(point)).min_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((worst, goodput)) => {
            let changed: Vec<Level> =
                worst.levels.iter().filter(|level| !chosen.levels.contains(level)).cloned().collect();
            format!(
                "; beyond it nothing is gained ({} {} {})",
                words(part, &changed),
                verb(&changed),
                BitRate(goodput.round() as u64)
            )
        }
        None => "; beyond it nothing is gained".to_owned(),
    }
}

/// Returns the factors that have an order and no measured point with a larger value.
fn ends_of_ranges(part: &Part, chosen: &PointSummary, measured: &[(&PointSummary, f64)]) -> Vec<&'static str> {
    let value = |point: &PointSummary, factor: Factor| {
        point.levels.iter().find(|level| level.factor == factor).map(|level| level.value.clone())
    };
    let is_end = |factor: &Factor| {
        let own = value(chosen, *factor);
        let is_needless = *factor == Factor::WindowScale && scale_fits_window(chosen);
        factor.unit() != Unit::Name && !is_needless && measured.iter().all(|(point, _)| value(point, *factor) <= own)
    };
    part.varied().into_iter().filter(is_end).map(Factor::name).collect()
}

/// Reports whether the scale of a point fits its window: a larger scale announces the same window.
fn scale_fits_window(point: &PointSummary) -> bool {
    let number = |factor: Factor| {
        let level = point.levels.iter().find(|level| level.factor == factor)?;
        if let Value::Number(number) = level.value { Some(number) } else { None }
    };
    let window = number(Factor::Window).or(number(Factor::FarWindow));
    number(Factor::WindowScale).zip(window).is_some_and(|(scale, window)| window <= 65_535 << scale.min(14))
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
            .map(|(point, levels)| PointSummary::new(point, levels, &planned, &[&runs[point]]))
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
    fn the_end_of_one_range_is_named() {
        let found = optimum(&[(Factor::Window, "50kB,100kB"), (Factor::Mss, "536,1448")], &[10, 10, 20, 20]);
        let text = "100 kB and MSS 536 B reach 20 Mb/s; this is the end of the range of window, and larger values may \
                    gain more";
        assert_eq!(found.sentence, text);
    }

    #[test]
    fn values_that_read_alike_have_all_their_digits() {
        let found = optimum(&[(Factor::Window, "9001,9010,9500")], &[90, 70, 60]);
        assert_eq!(found.sentence, "9.001 kB reaches 90 Mb/s; beyond it nothing is gained (9.5 kB reaches 60 Mb/s)");
    }

    #[test]
    fn more_than_the_path_carries_does_not_count() {
        let levels = |scale| vec![Level { factor: Factor::WindowScale, value: Value::Number(scale) }];
        let planned = PlannedPoint {
            predicted: Some(BitRate(47_800_000)),
            limit: Some(GoodputLimit::Capacity),
            ..PlannedPoint::default()
        };
        let point = |at: usize, rate| PointSummary::new(at, &levels(2 + at as u64), &planned, &[&run(at, rate)]);
        let points = [point(0, 47_700_000), point(1, 53_100_000)];
        let values = vec![Value::Number(2), Value::Number(3)];
        let factors = vec![FactorValues { factor: Factor::WindowScale, values }];
        let part = Part { name: String::new(), factors };
        let found = find_optimum(&part, &points.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((found.point, found.goodput), (0, BitRate(47_700_000)));
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
