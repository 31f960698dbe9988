//! Pictures of `lfn sweep`: goodput over a factor of each part, with the prediction, the intervals and published figures.

use lfn_base::units::show_duration;
use lfn_campaign::design::FactorValues;
use lfn_campaign::document::{SweepDocument, SweepPart};
use lfn_campaign::factor::{self, Factor, Level, Value, phrases};
use lfn_campaign::schedule::SweepEnd;
use lfn_campaign::summary::PointSummary;
use lfn_plot::{SweepChart, SweepPoint, Unit};

use super::{Album, counted};

/// Places between two points of a prediction.
const LINE_STEPS: u32 = 8;

/// Minimum quotient of the largest and the smallest value of a logarithmic axis.
const MIN_LOGARITHMIC_RANGE: f64 = 16.0;

/// Returns one chart for each part of a sweep.
pub fn of_sweep(document: &SweepDocument) -> Album {
    let hosts = &document.origin.hosts;
    let mut lines = vec![format!("{} → {}, {}", hosts.near, hosts.far, document.origin.started)];
    lines.extend(document.path.map(|path| format!("{}, RTT {}", path.capacity, show_duration(path.base_rtt))));
    let missing = document.points.iter().filter(|point| point.runs == 0).count();
    if missing > 0 && document.ended != SweepEnd::DryRun {
        lines.push(format!("incomplete: {missing} of {} have no run", counted(document.points.len(), "point")));
    }
    let mut album = Album { title: "Sweep of a path".into(), lines, warning: None, charts: Vec::new() };
    for part in &document.parts {
        let axis = PartAxis::of(part, document);
        let chart = axis.chart(&album.lines);
        album.push_numbered(axis.stem(), chart.panel(), chart.description());
    }
    album
}

/// Name of the measured points.
pub(super) const MEASURED: &str = "measured: mean and 95 % interval";

/// A part with the factor of its horizontal axis.
pub(super) struct PartAxis<'a> {
    part: &'a SweepPart,
    points: Vec<&'a PointSummary>,
    document: &'a SweepDocument,
    /// Factor of the axis; none if the part has no factors.
    factor: Option<Factor>,
    /// Names of the columns, if the values of the factor are names.
    names: Vec<String>,
    /// Groups of points: the settings that the axis does not show.
    groups: Vec<String>,
}

impl<'a> PartAxis<'a> {
    /// Chooses the factor with the most numbers, or that with the most names if no number varies.
    pub(super) fn of(part: &'a SweepPart, document: &'a SweepDocument) -> Self {
        let order = |given: &&FactorValues| {
            let is_varied = given.values.len() > 1;
            (is_varied, given.factor.unit() != factor::Unit::Name, given.values.len())
        };
        let chosen = part.grid.factors.iter().rev().max_by_key(order);
        let is_of_names = chosen.is_some_and(|chosen| chosen.factor.unit() == factor::Unit::Name);
        let names = chosen
            .filter(|_| is_of_names)
            .map_or_else(Vec::new, |chosen| chosen.values.iter().map(|value| chosen.factor.show(value)).collect());
        let points = part.points.iter().filter_map(|point| document.points.get(*point)).collect();
        let factor = chosen.map(|chosen| chosen.factor);
        let mut axis = PartAxis { part, points, document, factor, names, groups: Vec::new() };
        for point in &axis.points {
            let group = axis.group(&point.levels);
            if !axis.groups.contains(&group) {
                axis.groups.push(group);
            }
        }
        axis
    }

    /// Returns the place of a point on the axis.
    fn place(&self, point: &PointSummary) -> Option<f64> {
        self.value(&point.levels)
    }

    /// Returns the place of these levels on the axis: the number, or the part of the group in the column of the name.
    fn value(&self, levels: &[Level]) -> Option<f64> {
        let level = levels.iter().find(|level| Some(level.factor) == self.factor)?;
        match &level.value {
            Value::Number(number) => Some(*number as f64),
            Value::Name(name) => {
                let category = self.names.iter().position(|known| known == name)?;
                let group = self.group(levels);
                let group = self.groups.iter().position(|known| *known == group)?;
                Some(SweepChart::slot(category, group, self.groups.len()))
            }
        }
    }

    /// Returns the settings that the axis does not show, if they vary.
    fn group(&self, levels: &[Level]) -> String {
        let varied = self.part.grid.varied();
        let other = |level: &&Level| Some(level.factor) != self.factor && varied.contains(&level.factor);
        phrases(&levels.iter().filter(other).cloned().collect::<Vec<_>>())
    }

    pub(super) fn chart(&self, lines: &[String]) -> SweepChart {
        let of_group = |group: &String| -> Vec<&PointSummary> {
            self.points.iter().copied().filter(|point| self.group(&point.levels) == *group).collect()
        };
        let groups: Vec<(&String, Vec<&PointSummary>)> =
            self.groups.iter().map(|group| (group, of_group(group))).collect();
        let measured = groups.iter().map(|(group, points)| {
            (named(MEASURED, group), points.iter().filter_map(|at| self.measured(at)).collect())
        });
        let predicted = groups.iter().map(|(group, points)| {
            let figures = points.iter().filter_map(|point| Some((self.place(point)?, point.predicted?.as_f64())));
            let mut line: Vec<(f64, f64)> = figures.collect();
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
            let line = if self.is_window() { window_line(&line) } else { line };
            (named("predicted", group), line)
        });
        let published = self.published();
        let values = || {
            let published = published.iter().flat_map(|(_, points)| points.iter().map(|(value, _)| *value));
            self.points.iter().filter_map(|point| self.place(point)).chain(published)
        };
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let title = if self.part.grid.name.is_empty() {
            format!("Goodput over {}", self.name())
        } else {
            self.part.grid.name.clone()
        };
        SweepChart {
            title,
            lines: lines.to_vec(),
            factor: self.name().to_owned(),
            unit: self.unit(),
            categories: self.names.clone(),
            is_logarithmic: self.names.is_empty() && low > 0.0 && high >= MIN_LOGARITHMIC_RANGE * low,
            measured: measured.collect(),
            predicted: predicted.filter(|(_, line)| !line.is_empty()).collect(),
            published,
            marks: self.marks(),
            ..SweepChart::default()
        }
    }

    fn measured(&self, point: &PointSummary) -> Option<SweepPoint> {
        let goodput = point.goodput?.as_f64();
        let interval = point.half_width.map(|half| ((goodput - half.get()).max(0.0), goodput + half.get()));
        Some(SweepPoint { x: self.place(point)?, y: goodput, interval })
    }

    /// Returns the published points of each group, with its name.
    fn published(&self) -> Vec<(String, Vec<(f64, f64)>)> {
        let of_group = |group: &String| {
            let known = self.part.published.iter().filter(|run| self.group(&run.levels) == *group);
            let points = known.filter_map(|run| Some((self.value(&run.levels)?, run.goodput.as_f64())));
            (named("published, 1995", group), points.collect::<Vec<_>>())
        };
        self.groups.iter().map(of_group).filter(|(_, points)| !points.is_empty()).collect()
    }

    /// Returns the BDP and the optimum.
    fn marks(&self) -> Vec<(f64, String)> {
        let bdp = self.document.path.filter(|_| self.is_window()).map(|path| path.bdp());
        let optimum = self.part.optimum.as_ref();
        let chosen = optimum.and_then(|optimum| self.points.iter().find(|at| at.point == optimum.point));
        let chosen = chosen.and_then(|point| self.place(point));
        let bdp = bdp.map(|bdp| (bdp.0 as f64, format!("BDP {bdp}")));
        let is_apart = |place: &f64| bdp.as_ref().is_none_or(|(bdp, _)| (place - bdp).abs() > 0.01 * bdp);
        let optimum = chosen.filter(is_apart).map(|place| (place, "optimum".to_owned()));
        bdp.into_iter().chain(optimum).collect()
    }

    fn is_window(&self) -> bool {
        matches!(self.factor, Some(Factor::Window | Factor::FarWindow | Factor::ReceiveBuffer))
    }

    fn unit(&self) -> Unit {
        match self.factor.map(Factor::unit) {
            Some(factor::Unit::Bytes) => Unit::Bytes,
            Some(factor::Unit::Rate) => Unit::BitsPerSecond,
            Some(factor::Unit::Number | factor::Unit::Name) | None => Unit::Count,
        }
    }

    /// Returns the name of the axis.
    fn name(&self) -> &'static str {
        match self.factor {
            None => "settings",
            Some(Factor::Window) => "receive window",
            Some(Factor::FarWindow) => "receive window of the server",
            Some(Factor::WindowScale) => "window scale",
            Some(Factor::SendBuffer) => "send buffer",
            Some(Factor::ReceiveBuffer) => "receive buffer",
            Some(Factor::Record) => "record size",
            Some(Factor::Count) => "records",
            Some(Factor::Streams) => "streams",
            Some(Factor::Pacing) => "pacing of a stream",
            Some(Factor::Mss) => "maximum segment size",
            Some(Factor::Congestion) => "congestion control",
            Some(Factor::Direction) => "direction",
        }
    }

    /// Returns the stem of the file: the name of the part before a colon, or the factor.
    pub(super) fn stem(&self) -> String {
        let name = self.part.grid.name.split(':').next().unwrap_or_default();
        let name = if name.trim().is_empty() { format!("goodput over {}", self.name()) } else { name.to_owned() };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let stem: String = name.trim().chars().take(60).map(plain).collect();
        if stem.trim_matches('-').is_empty() { "part".to_owned() } else { stem }
    }
}

/// Returns the name of a series, with its group if there are several.
fn named(of: &str, group: &str) -> String {
    if group.is_empty() { of.to_owned() } else { format!("{of}, {group}") }
}

/// Returns the line of a prediction over the window, with places between its points. The goodput is in proportion to the
/// window up to another limit, where the line bends.
fn window_line(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut line: Vec<(f64, f64)> = points.first().copied().into_iter().collect();
    for pair in points.windows(2) {
        let [(start, low), (end, high)] = [pair[0], pair[1]];
        let bend = start * high / low;
        // On a logarithmic axis, a line in proportion is a curve.
        let steps = (1..=LINE_STEPS).map(|step| start * (bend / start).powf(f64::from(step) / f64::from(LINE_STEPS)));
        if low > 0.0 && high > low && bend <= end * 1.001 {
            line.extend(steps.map(|window| (window.min(end), low * window.min(end) / start)));
        }
        line.push((end, high));
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::units::BitRate;
    use lfn_campaign::design::Part;
    use lfn_campaign::document::SweepSchema;
    use lfn_campaign::schedule::Goals;
    use lfn_results::measure::TestLoad;
    use lfn_results::report::Origin;

    use super::*;

    fn point(number: usize, levels: &[(Factor, Value)], megabits: u64) -> PointSummary {
        let levels: Vec<Level> =
            levels.iter().map(|(factor, value)| Level { factor: *factor, value: value.clone() }).collect();
        let mut point = PointSummary::new(number, &levels, &Default::default(), &[]);
        point.goodput = Some(BitRate(megabits * 1_000_000));
        point.predicted = Some(BitRate(100_000_000));
        point
    }

    fn document(factors: &[(Factor, &[Value])], points: Vec<PointSummary>) -> SweepDocument {
        let factors =
            factors.iter().map(|(factor, values)| FactorValues { factor: *factor, values: values.to_vec() }).collect();
        let part = SweepPart {
            grid: Part { name: String::new(), factors },
            points: (0..points.len()).collect(),
            published: Vec::new(),
            optimum: None,
        };
        SweepDocument {
            schema: SweepSchema::V1,
            origin: Origin::default(),
            seed: Some(1),
            load: TestLoad::TimeSeconds(Duration::from_secs(10)),
            goals: Some(Goals { until: None, repeat: 1, budget: None }),
            path: None,
            return_path: None,
            ended: SweepEnd::Repeated,
            spent: Duration::ZERO,
            remaining: Duration::ZERO,
            parts: vec![part],
            points,
            runs: Vec::new(),
            state_file: None,
            error: None,
        }
    }

    #[test]
    fn numbers_are_the_axis_and_names_are_groups() {
        let windows = [Value::Number(1_000_000), Value::Number(2_000_000)];
        let controls = ["cubic", "bbr"].map(|name| Value::Name(name.to_owned()));
        let mut points = Vec::new();
        for window in &windows {
            for control in &controls {
                let levels = [(Factor::Window, window.clone()), (Factor::Congestion, control.clone())];
                points.push(point(points.len(), &levels, 10 * (points.len() as u64 + 1)));
            }
        }
        let document = document(&[(Factor::Window, &windows), (Factor::Congestion, &controls)], points);
        let axis = PartAxis::of(&document.parts[0], &document);
        let chart = axis.chart(&[]);
        assert_eq!((chart.factor.as_str(), chart.unit), ("receive window", Unit::Bytes));
        let names: Vec<&str> = chart.measured.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["measured: mean and 95 % interval, cubic", "measured: mean and 95 % interval, bbr"]);
        let of_bbr: Vec<(f64, f64)> = chart.measured[1].1.iter().map(|at| (at.x, at.y)).collect();
        assert_eq!(of_bbr, [(1e6, 20e6), (2e6, 40e6)]);
        let album = of_sweep(&document);
        assert_eq!(album.charts[0].stem, "goodput-over-receive-window");
    }

    #[test]
    fn a_prediction_bends_where_another_limit_begins() {
        let line = window_line(&[(4.0, 40.0), (16.0, 100.0), (32.0, 100.0)]);
        assert_eq!((line.first(), line.last()), (Some(&(4.0, 40.0)), Some(&(32.0, 100.0))));
        assert!(line.iter().any(|(window, goodput)| (window - 10.0).abs() < 1e-9 && (goodput - 100.0).abs() < 1e-9));
        assert!(line.iter().all(|(window, goodput)| (goodput - (10.0 * window).min(100.0)).abs() < 1e-9), "{line:?}");
        assert_eq!(window_line(&[]), []);
        assert_eq!(window_line(&[(4.0, 0.0), (8.0, 10.0)]).len(), 2);
    }

    #[test]
    fn names_alone_are_columns_and_groups() {
        let controls = ["cubic", "bbr", "reno"].map(|name| Value::Name(name.to_owned()));
        let directions = ["forward", "reverse"].map(|name| Value::Name(name.to_owned()));
        let mut points = Vec::new();
        for direction in &directions {
            for control in &controls {
                let levels = [(Factor::Direction, direction.clone()), (Factor::Congestion, control.clone())];
                points.push(point(points.len(), &levels, 50));
            }
        }
        let streams = [Value::Number(4)];
        let factors: [(Factor, &[Value]); 3] =
            [(Factor::Streams, &streams), (Factor::Direction, &directions), (Factor::Congestion, &controls)];
        let document = document(&factors, points);
        let chart = PartAxis::of(&document.parts[0], &document).chart(&[]);
        assert_eq!(
            (chart.factor.as_str(), chart.categories.join(" ")),
            ("congestion control", "cubic bbr reno".into())
        );
        let groups: Vec<&str> = chart.measured.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(groups, ["measured: mean and 95 % interval, forward", "measured: mean and 95 % interval, reverse"]);
        let columns: Vec<f64> = chart.measured[1].1.iter().map(|at| at.x.round()).collect();
        assert_eq!(columns, [0.0, 1.0, 2.0]);
        assert!(chart.measured[0].1[0].x < chart.measured[1].1[0].x);
    }
}
