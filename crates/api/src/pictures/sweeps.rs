//! Pictures of several sweeps: parts with the same title and factor are drawn in the same chart.

use lfn_campaign::document::SweepDocument;
use lfn_plot::{MAX_LINE_LOOKS, SweepChart};

use super::Album;
use super::sweep::{MEASURED, PartAxis};

/// Maximum difference of equal predictions, as a share.
const MAX_SAME_SHARE: f64 = 0.01;

/// A chart of several sweeps, with the stem of its file name.
struct SharedChart {
    stem: String,
    chart: SweepChart,
    /// Groups that are not drawn, because a reader could not distinguish them.
    hidden: usize,
}

/// Returns the charts of several sweeps with the names of their files. A prediction that several sweeps have is drawn once.
pub fn of_sweeps(sweeps: &[(String, SweepDocument)]) -> Album {
    let names: Vec<&str> = sweeps.iter().map(|(file, _)| file.rsplit('/').next().unwrap_or(file)).collect();
    let lines = vec![names.join("; ")];
    let mut shared: Vec<SharedChart> = Vec::new();
    for ((_, document), name) in sweeps.iter().zip(&names) {
        for part in &document.parts {
            let axis = PartAxis::of(part, document);
            add(&mut shared, name, axis.stem(), axis.chart(&lines));
        }
    }
    let mut album = Album { title: "Sweeps of a path".into(), lines, ..Album::default() };
    for SharedChart { stem, mut chart, hidden } in shared {
        if hidden > 0 {
            let drawn = chart.measured.len();
            album.lines.push(format!("{}: {drawn} groups; {hidden} more are not drawn", chart.title));
        }
        let values = chart.measured.iter().flat_map(|(_, points)| points.iter().map(|point| point.x));
        chart.is_logarithmic &= values.clone().all(|value| value > 0.0);
        album.push_numbered(stem, chart.panel(), chart.description());
    }
    album
}

/// Reports whether two predictions differ by less than a reader sees: each measured RTT differs a little.
fn is_equal(first: &[(f64, f64)], second: &[(f64, f64)]) -> bool {
    let is_near = |((x, y), (other_x, other_y)): (&(f64, f64), &(f64, f64))| {
        (x - other_x).abs() <= MAX_SAME_SHARE * x.max(*other_x)
            && (y - other_y).abs() <= MAX_SAME_SHARE * y.max(*other_y)
    };
    first.len() == second.len() && first.iter().zip(second).all(is_near)
}

/// Adds the chart of a part to the chart with the same title and factor, or as a new one.
fn add(shared: &mut Vec<SharedChart>, name: &str, stem: String, mut chart: SweepChart) {
    for (group, _) in &mut chart.measured {
        *group = group.replacen(MEASURED, name, 1);
    }
    // The optimum of each sweep would cover the other.
    chart.marks.retain(|(_, mark)| mark != "optimum");
    let key = |chart: &SweepChart| (chart.title.clone(), chart.factor.clone(), chart.categories.clone());
    let is_same = |other: &&mut SharedChart| key(&other.chart) == key(&chart);
    let Some(SharedChart { chart: into, hidden, .. }) = shared.iter_mut().find(is_same) else {
        let hidden = chart.measured.len().saturating_sub(MAX_LINE_LOOKS);
        chart.measured.truncate(MAX_LINE_LOOKS);
        chart.predicted.truncate(MAX_LINE_LOOKS);
        return shared.push(SharedChart { stem, chart, hidden });
    };
    for group in chart.measured {
        if into.measured.len() < MAX_LINE_LOOKS { into.measured.push(group) } else { *hidden += 1 }
    }
    for (group, line) in chart.predicted {
        let is_drawn = into.predicted.iter().any(|(_, known)| is_equal(known, &line));
        if !is_drawn && into.predicted.len() < MAX_LINE_LOOKS {
            into.predicted.push((format!("{group}, {name}"), line));
        }
    }
    if into.published.is_empty() {
        into.published = chart.published;
    }
    for mark in chart.marks {
        if !into.marks.contains(&mark) {
            into.marks.push(mark);
        }
    }
    into.is_logarithmic |= chart.is_logarithmic;
}
