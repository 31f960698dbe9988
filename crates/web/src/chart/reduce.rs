//! Reduces a line to the columns of a picture.

use std::time::Duration;

use super::position::position;
use crate::view::{Line, Sample};

/// The samples of one column, without marked ones.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    /// Position of the column.
    pub at: usize,
    pub min: f64,
    pub median: f64,
    pub max: f64,
    /// Median of the predictions.
    pub predicted: Option<f64>,
}

/// Reason why a sample is not part of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MarkKind {
    Failed,
    Maintenance,
    OwnLoad,
}

impl MarkKind {
    pub const ALL: [MarkKind; 3] = [MarkKind::Failed, MarkKind::Maintenance, MarkKind::OwnLoad];

    /// Returns the classes of its shape in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            MarkKind::Failed => "mark failed",
            MarkKind::Maintenance => "mark maintenance",
            MarkKind::OwnLoad => "mark own-load",
        }
    }

    /// Returns the word of the legend.
    pub fn word(self) -> &'static str {
        match self {
            MarkKind::Failed => "failed",
            MarkKind::Maintenance => "during maintenance",
            MarkKind::OwnLoad => "under own load",
        }
    }

    /// Returns the shape around a point: a cross, a triangle or a square.
    pub fn path(self, x: f64, y: f64) -> String {
        match self {
            MarkKind::Failed => format!("M{} {}l7 7m0-7l-7 7", position(x - 3.5), position(y - 3.5)),
            MarkKind::Maintenance => format!("M{} {}l4 7h-8z", position(x), position(y - 4.0)),
            MarkKind::OwnLoad => format!("M{} {}h6v6h-6z", position(x - 3.0), position(y - 3.0)),
        }
    }
}

/// A sample that is drawn as a shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MarkAt {
    pub at: usize,
    /// Value; `None` for a failed measurement.
    pub value: Option<f64>,
    pub kind: MarkKind,
}

/// A line without more points than columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reduced {
    /// Columns between two gaps.
    pub segments: Vec<Vec<Column>>,
    pub marks: Vec<MarkAt>,
    /// Samples in the shown time.
    pub samples: usize,
    pub gaps: usize,
    /// Figures of all samples that are not marked, or of the marked ones if there are no others.
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Reduced {
    /// Returns whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Returns whether a column stands for several values.
    pub fn is_aggregated(&self) -> bool {
        self.segments.iter().flatten().any(|column| column.min < column.max)
    }

    /// Returns the largest value of all samples, also of marked ones.
    pub fn highest(&self) -> f64 {
        self.marks.iter().filter_map(|mark| mark.value).fold(self.max, f64::max)
    }

    /// Returns the largest prediction; 0 without one.
    pub fn predicted_max(&self) -> f64 {
        self.segments.iter().flatten().filter_map(|column| column.predicted).fold(0.0, f64::max)
    }
}

/// Largest value of a picture: above every rate of a log entry, and far below the overflow of the scale.
const MAX_VALUE: f64 = 1e30;

/// Reports whether a picture has room for a value: a finite number of sensible size.
fn is_drawable(value: f64) -> bool {
    value.abs() <= MAX_VALUE
}

/// Reduces the samples from `since` to `until`, in the order of time. A failed sample and a pause longer than `max_gap` end a
/// segment. A marked sample is no part of a segment.
pub(super) fn reduce(line: &Line, since: Duration, until: Duration, columns: usize) -> Reduced {
    let span = until.saturating_sub(since).as_secs_f64().max(f64::MIN_POSITIVE);
    let column_of = |time: Duration| {
        let share = time.saturating_sub(since).as_secs_f64() / span;
        ((share * columns as f64) as usize).min(columns.saturating_sub(1))
    };
    let mut reduced = Reduced::default();
    let mut builder = Builder::default();
    let mut earlier: Option<Duration> = None;
    let (mut plain, mut marked): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for sample in line.samples.iter().filter(|sample| (since..=until).contains(&sample.time)) {
        let at = column_of(sample.time);
        if earlier.is_some_and(|time| sample.time.saturating_sub(time) > line.max_gap) {
            builder.end_segment(&mut reduced);
            reduced.gaps += 1;
        }
        earlier = Some(sample.time);
        reduced.samples += 1;
        let value = sample.value.filter(|value| is_drawable(*value));
        match (mark_of(sample), value) {
            (None, Some(value)) => {
                plain.push(value);
                builder.add(at, value, sample.predicted);
            }
            (kind, value) => {
                marked.extend(value);
                let kind = kind.unwrap_or(MarkKind::Failed);
                if kind == MarkKind::Failed {
                    builder.end_segment(&mut reduced);
                }
                add_mark(&mut reduced.marks, MarkAt { at, value, kind });
            }
        }
    }
    builder.end_segment(&mut reduced);
    let values = if plain.is_empty() { &mut marked } else { &mut plain };
    values.sort_by(f64::total_cmp);
    let figure = |place: usize| values.get(place).copied().unwrap_or(0.0);
    (reduced.min, reduced.median) = (figure(0), figure(values.len() / 2));
    reduced.max = figure(values.len().saturating_sub(1));
    reduced
}

fn mark_of(sample: &Sample) -> Option<MarkKind> {
    match sample {
        Sample { value: None, .. } => Some(MarkKind::Failed),
        Sample { marks, .. } if marks.maintenance => Some(MarkKind::Maintenance),
        Sample { marks, .. } if marks.own_load => Some(MarkKind::OwnLoad),
        _ => None,
    }
}

/// Adds a mark, unless the column has one of this kind: the first one stands for all.
fn add_mark(marks: &mut Vec<MarkAt>, mark: MarkAt) {
    let is_drawn = marks.iter().rev().take_while(|other| other.at == mark.at).any(|other| other.kind == mark.kind);
    if !is_drawn {
        marks.push(mark);
    }
}

/// The samples of the current column and the columns of the current segment.
#[derive(Default)]
struct Builder {
    at: usize,
    values: Vec<f64>,
    predicted: Vec<f64>,
    segment: Vec<Column>,
}

impl Builder {
    fn add(&mut self, at: usize, value: f64, predicted: Option<f64>) {
        if at != self.at {
            self.end_column();
            self.at = at;
        }
        self.values.push(value);
        self.predicted.extend(predicted.filter(|predicted| is_drawable(*predicted)));
    }

    fn end_column(&mut self) {
        self.values.sort_by(f64::total_cmp);
        self.predicted.sort_by(f64::total_cmp);
        let middle = |values: &[f64]| values.get(values.len() / 2).copied();
        if let (Some(min), Some(median), Some(max)) =
            (self.values.first().copied(), middle(&self.values), self.values.last().copied())
        {
            self.segment.push(Column { at: self.at, min, median, max, predicted: middle(&self.predicted) });
        }
        self.values.clear();
        self.predicted.clear();
    }

    fn end_segment(&mut self, reduced: &mut Reduced) {
        self.end_column();
        if !self.segment.is_empty() {
            reduced.segments.push(std::mem::take(&mut self.segment));
        }
    }
}
