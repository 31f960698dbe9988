//! The picture of a sweep: goodput over one factor, with the prediction, intervals and published figures.

use crate::color::{BLUE, Color, Dash, INK, ORANGE, line_look};
use crate::model::{Guide, GuideAt, Label, MARKS, Mark, Panel, Picture, Point, RangePoint, Series, Shape};
use crate::scale::{Axis, AxisKind, Unit};

/// Goodput over one factor of a sweep.
///
/// ```
/// use lfn_plot::{DEFAULT_SIZE, SweepChart, SweepPoint, Unit};
///
/// let point = |x, y| SweepPoint { x, y, interval: Some((0.98 * y, 1.02 * y)) };
/// let chart = SweepChart {
///     title: "Goodput over receive window".into(),
///     lines: vec!["135 Mb/s, RTT 539 ms".into()],
///     factor: "receive window".into(),
///     unit: Unit::Bytes,
///     measured: vec![("measured: mean and 95 % interval".into(), vec![point(4.5e6, 67e6), point(9.1e6, 129e6)])],
///     predicted: vec![("predicted".into(), vec![(0.0, 0.0), (8.7e6, 129e6), (14e6, 129e6)])],
///     published: vec![("ACTS 1995".into(), vec![(4.5e6, 64e6), (9.1e6, 111e6)])],
///     marks: vec![(9.1e6, "BDP = 9.1 MB".into())],
///     ..SweepChart::default()
/// };
/// let svg = chart.picture().draw(DEFAULT_SIZE).svg();
/// assert!(svg.contains("receive window, MB"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SweepChart {
    pub title: String,
    /// Lines below the title: the path, the settings that stay the same.
    pub lines: Vec<String>,
    /// Reason why the figures are not reliable.
    pub warning: Option<String>,
    /// Name of the factor.
    pub factor: String,
    /// Unit of the factor.
    pub unit: Unit,
    /// Names of the values of a factor without numbers. The values are then the places of the names, see [`SweepChart::slot`].
    pub categories: Vec<String>,
    /// True for a logarithmic axis of the factor. The values of the factor must then be above zero.
    pub is_logarithmic: bool,
    /// Measured points with their name, one group for each value of a second factor. Goodput in bit/s.
    pub measured: Vec<(String, Vec<SweepPoint>)>,
    /// Predicted goodput (factor, bit/s) with its name, ordered by the factor.
    pub predicted: Vec<(String, Vec<(f64, f64)>)>,
    /// Published goodput (factor, bit/s) with its name. Several have the colours of the measured groups, in their order.
    pub published: Vec<(String, Vec<(f64, f64)>)>,
    /// Values of the factor that are marked with a vertical line and a text: the BDP, the optimum.
    pub marks: Vec<(f64, String)>,
}

/// Goodput at one value of the factor, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SweepPoint {
    pub x: f64,
    /// Mean or median, bit/s.
    pub y: f64,
    /// Ends of the interval, bit/s; `None` if it is unknown.
    pub interval: Option<(f64, f64)>,
}

impl Default for SweepChart {
    fn default() -> Self {
        SweepChart {
            title: String::new(),
            lines: Vec::new(),
            warning: None,
            factor: String::new(),
            unit: Unit::Count,
            categories: Vec::new(),
            is_logarithmic: false,
            measured: Vec::new(),
            predicted: Vec::new(),
            published: Vec::new(),
            marks: Vec::new(),
        }
    }
}

/// Marks of published figures. Measured points have whiskers.
const PUBLISHED_MARKS: [Mark; 3] = [Mark::Triangle, Mark::Ring, Mark::Cross];

/// Room above the highest value, for labels.
const HEADROOM: f64 = 1.15;
/// Distance of the marks of two groups at the same number, in font sizes.
const SHIFT: f64 = 0.45;
/// Share of a column that the groups take.
const GROUPS: f64 = 0.7;
/// Maximum number of labelled points. More labels would cover the plot.
const MAX_LABELS: usize = 12;

impl SweepChart {
    /// Returns the picture of this chart alone.
    pub fn picture(&self) -> Picture {
        Picture {
            title: self.title.clone(),
            lines: self.lines.clone(),
            warning: self.warning.clone(),
            description: self.description(),
            panels: vec![self.panel()],
        }
    }

    /// Returns the panel, for a picture with several panels.
    pub fn panel(&self) -> Panel {
        let mut panel =
            Panel::new(&self.title, self.x_axis(), Axis::from_zero("goodput", Unit::BitsPerSecond, self.highest()));
        for (value, label) in &self.marks {
            panel.guides.push(Guide {
                at: GuideAt::X(*value),
                name: String::new(),
                label: label.clone(),
                color: INK.with_opacity(0.7),
                dash: Dash::Short,
            });
        }
        let color = |place: usize| if self.measured.len() > 1 { line_look(place).color } else { INK };
        for (place, (name, line)) in self.predicted.iter().enumerate() {
            let points = self.predicted_line(line);
            let color = if self.predicted.len() > 1 { color(place) } else { BLUE };
            let shape = Shape::Line { points, width: 2.4, dash: line_look(place).dash };
            panel.series.push(Series { name: name.clone(), color, shape });
        }
        for (place, (name, points)) in self.published.iter().enumerate() {
            let points = points.iter().map(|(x, y)| Point { x: *x, y: *y }).collect();
            let shape = Shape::Marks { points, mark: PUBLISHED_MARKS[place % PUBLISHED_MARKS.len()] };
            panel.series.push(Series { name: name.clone(), color: self.published_color(place), shape });
        }
        for (place, (name, points)) in self.measured.iter().enumerate() {
            let range = |point: &SweepPoint| {
                let (low, high) = point.interval.unwrap_or((point.y, point.y));
                RangePoint { x: point.x, low, y: point.y, high }
            };
            let points = points.iter().map(range).collect();
            // Triangles are published figures.
            let marks: Vec<Mark> = MARKS.into_iter().filter(|mark| *mark != Mark::Triangle).collect();
            let middle = (self.measured.len() as f64 - 1.0) / 2.0;
            let shift = if self.categories.is_empty() { SHIFT * (place as f64 - middle) } else { 0.0 };
            let shape = Shape::Whiskers { points, mark: marks[place % marks.len()], shift };
            panel.series.push(Series { name: name.clone(), color: color(place), shape });
        }
        panel.labels = self.labels(&color);
        if self.measured.iter().all(|(_, points)| points.is_empty()) && self.predicted.is_empty() {
            panel.note = Some("no point was measured".to_owned());
        }
        panel
    }

    /// Returns the place of a group within the column of a name: the groups are next to each other.
    pub fn slot(category: usize, group: usize, groups: usize) -> f64 {
        category as f64 + GROUPS * ((group as f64 + 0.5) / groups.max(1) as f64 - 0.5)
    }

    /// Returns the line of a prediction. That of a name is as wide as the part of a group in a column.
    fn predicted_line(&self, line: &[(f64, f64)]) -> Vec<Point> {
        if self.categories.is_empty() {
            return line.iter().map(|(x, y)| Point { x: *x, y: *y }).collect();
        }
        let half = GROUPS / 2.0 / self.measured.len().max(1) as f64;
        let ends = |(x, y): &(f64, f64)| [(x - half, *y), (x + half, *y), (f64::NAN, f64::NAN)];
        line.iter().flat_map(ends).map(|(x, y)| Point { x, y }).collect()
    }

    /// Returns a value of the factor for the picture in words.
    fn value(&self, x: f64) -> String {
        self.categories.get(x.round().max(0.0) as usize).cloned().unwrap_or_else(|| x.to_string())
    }

    fn x_axis(&self) -> Axis {
        if !self.categories.is_empty() {
            return Axis::categories(&self.factor, self.categories.clone());
        }
        let measured = self.measured.iter().flat_map(|(_, points)| points.iter().map(|point| point.x));
        let predicted = self.predicted.iter().flat_map(|(_, line)| line.iter().map(|(x, _)| *x));
        let published = self.published.iter().flat_map(|(_, points)| points.iter().map(|(x, _)| *x));
        let all = measured.chain(predicted).chain(published).chain(self.marks.iter().map(|(x, _)| *x));
        let all = all.filter(|x| x.is_finite() && (*x > 0.0 || !self.is_logarithmic));
        let (low, high) = all.fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(x), high.max(x)));
        let (low, kind) =
            if self.is_logarithmic { (low, AxisKind::Logarithmic) } else { (low.min(0.0), AxisKind::Rounded) };
        Axis { name: self.factor.clone(), unit: self.unit, low, high, kind }
    }

    fn highest(&self) -> f64 {
        let measured = self.measured.iter().flat_map(|(_, points)| points.iter().map(SweepPoint::high));
        let predicted = self.predicted.iter().flat_map(|(_, line)| line.iter().map(|(_, y)| *y));
        let published = self.published.iter().flat_map(|(_, points)| points.iter().map(|(_, y)| *y));
        measured.chain(predicted).chain(published).filter(|y| y.is_finite()).fold(0.0, f64::max) * HEADROOM
    }

    fn labels(&self, color: &dyn Fn(usize) -> Color) -> Vec<Label> {
        let count: usize = self.measured.iter().map(|(_, points)| points.len()).sum();
        if count > MAX_LABELS {
            return Vec::new();
        }
        let label = |x: f64, y: f64, color| Label { at: Point { x, y }, text: rate_label(y, self.highest()), color };
        let measured = self
            .measured
            .iter()
            .enumerate()
            .flat_map(|(place, (_, points))| points.iter().map(move |point| label(point.x, point.y, color(place))));
        let published = self.published.iter().enumerate().flat_map(|(place, (_, points))| {
            points.iter().map(move |(x, y)| label(*x, *y, self.published_color(place)))
        });
        measured.chain(published).collect()
    }

    fn published_color(&self, place: usize) -> Color {
        if self.published.len() > 1 { line_look(place).color } else { ORANGE }
    }

    /// Returns the points in words, for a reader who does not see the picture.
    pub fn description(&self) -> String {
        let highest = self.highest();
        let mut text = String::new();
        for (name, points) in &self.measured {
            for point in points {
                let at = self.value(point.x);
                text += &format!("{name}: {} {at}: {}", self.factor, in_words(point.y, highest));
                text += &match point.interval {
                    Some((low, high)) => format!(", {} to {}. ", rate_label(low, highest), in_words(high, highest)),
                    None => ", interval unknown. ".to_owned(),
                };
            }
        }
        for (name, points) in &self.published {
            for (x, y) in points {
                text += &format!("{name}: {} {}: {}. ", self.factor, self.value(*x), in_words(*y, highest));
            }
        }
        text.trim_end().to_owned()
    }
}

impl SweepPoint {
    fn high(&self) -> f64 {
        self.interval.map_or(self.y, |(_, high)| high.max(self.y))
    }
}

/// Prefixes of a rate, with their factors.
const PREFIXES: [(f64, &str); 5] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

/// Returns the prefix of an axis up to `highest`.
fn prefix(highest: f64) -> (f64, &'static str) {
    PREFIXES.into_iter().find(|(factor, _)| highest >= *factor).unwrap_or((1.0, ""))
}

/// Returns a rate with its unit, with the prefix of the axis up to `highest`.
fn in_words(rate: f64, highest: f64) -> String {
    format!("{} {}b/s", rate_label(rate, highest), prefix(highest).1)
}

/// Returns a rate without its unit, with the prefix of the axis up to `highest`.
fn rate_label(rate: f64, highest: f64) -> String {
    let number = rate / prefix(highest).0;
    if number >= 100.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::DEFAULT_SIZE;

    fn chart() -> SweepChart {
        let at = |x: f64, y: f64| SweepPoint { x, y, interval: Some((0.95 * y, 1.05 * y)) };
        SweepChart {
            title: "Goodput over receive window".into(),
            factor: "receive window".into(),
            unit: Unit::Bytes,
            measured: vec![("measured".into(), vec![at(1e6, 14e6), at(4.5e6, 67e6), at(9.1e6, 128e6)])],
            predicted: vec![("predicted".into(), vec![(0.0, 0.0), (8.7e6, 129e6), (16e6, 129e6)])],
            published: vec![("ACTS 1995".into(), vec![(9.1e6, 111e6)])],
            marks: vec![(9.1e6, "BDP = 9.1 MB".into())],
            ..SweepChart::default()
        }
    }

    fn texts(chart: &SweepChart) -> Vec<String> {
        chart.picture().draw(DEFAULT_SIZE).texts().map(|text| text.text.clone()).collect()
    }

    #[test]
    fn points_have_their_figures_and_the_goodput_begins_at_zero() {
        let texts = texts(&chart());
        for text in
            ["goodput, Mb/s", "receive window, MB", "67.0", "111", "128", "BDP = 9.1 MB", "predicted", "ACTS 1995", "0"]
        {
            assert!(texts.iter().any(|found| found == text), "{text} in {texts:?}");
        }
    }

    #[test]
    fn logarithmic_factor_has_its_own_prefixes() {
        let texts = texts(&SweepChart { is_logarithmic: true, ..chart() });
        assert!(texts.iter().any(|text| text == "receive window, B (logarithmic)"), "{texts:?}");
        assert!(texts.iter().any(|text| text == "10 M"), "{texts:?}");
    }

    #[test]
    fn names_are_columns_with_the_groups_next_to_each_other() {
        let at = |category: usize, group: usize| {
            let x = SweepChart::slot(category, group, 2);
            SweepPoint { x, y: 41e6, interval: Some((40e6, 42e6)) }
        };
        let chart = SweepChart {
            factor: "congestion control".into(),
            categories: ["cubic", "bbr"].map(str::to_owned).to_vec(),
            measured: (0..2).map(|group| (format!("group {group}"), vec![at(0, group), at(1, group)])).collect(),
            ..SweepChart::default()
        };
        let all: Vec<f64> = chart.measured.iter().flat_map(|(_, points)| points.iter().map(|p| p.x)).collect();
        assert_eq!(all, [-0.175, 0.825, 0.175, 1.175]);
        let texts = texts(&chart);
        for text in ["congestion control", "cubic", "bbr"] {
            assert!(texts.iter().any(|found| found == text), "{text} in {texts:?}");
        }
        assert!(
            chart.picture().description.contains("congestion control bbr: 41.0 Mb/s, 40.0 to 42.0 Mb/s"),
            "{}",
            chart.picture().description
        );
    }

    #[test]
    fn sweep_without_points_says_so() {
        let empty = SweepChart { title: "empty".into(), ..SweepChart::default() };
        assert!(texts(&empty).iter().any(|text| text == "no point was measured"));
    }
}
