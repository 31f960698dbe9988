//! The picture of the demo: goodput versus receive window. Shows the prediction as a line, the figures of 1995 and the
//! measured figures as labelled points, and the BDP as a vertical line.

use lfn_base::units::Bytes;
use lfn_plot::{Picture, SweepChart, SweepPoint, Unit};

/// Data of the chart. Windows are in bytes, rates in bit/s.
#[derive(Debug)]
pub struct Chart<'a> {
    pub title: &'a str,
    /// The path in a few words, below the title.
    pub subtitle: &'a str,
    /// BDP of the path, bytes.
    pub bdp: f64,
    /// Predicted (window, goodput), ordered by window.
    pub predicted: Vec<(f64, f64)>,
    /// The legend's text for the prediction.
    pub predicted_label: String,
    /// Figures of the report.
    pub published: Vec<(f64, f64)>,
    pub measured: Vec<MeasuredPoint>,
    /// Reason why the emulation was not accurate. The chart marks the reason.
    pub inaccuracy: Option<String>,
}

/// Measured goodput of one window, with its spread.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredPoint {
    pub window: f64,
    /// Lowest goodput of an interval in the steady part.
    pub min: f64,
    /// Median of these intervals.
    pub median: f64,
    /// Highest goodput of an interval in the steady part.
    pub max: f64,
}

const MEASURED: &str = "measured now: median, and minimum to maximum";
const PUBLISHED: &str = "measured in 1995: packets of 64 KB, no selective ACKs";

impl Chart<'_> {
    /// Returns the picture. The same data gives the same picture.
    pub fn picture(&self) -> Picture {
        let measured = self.measured.iter();
        let measured = measured.map(|at| SweepPoint { x: at.window, y: at.median, interval: Some((at.min, at.max)) });
        let bdp = format!("BDP = {}", Bytes((self.bdp / 1e5).round() as u64 * 100_000).decimal());
        let windows = self.measured.iter().map(|point| point.window).filter(|window| !self.is_bdp(*window));
        let windows = windows.map(|window| (window, format!("{:.1} BDP", window / self.bdp)));
        let chart = SweepChart {
            title: self.title.to_owned(),
            lines: vec![self.subtitle.to_owned()],
            warning: self.inaccuracy.clone(),
            factor: "receive window".to_owned(),
            unit: Unit::Bytes,
            measured: vec![(MEASURED.to_owned(), measured.collect())],
            predicted: vec![(self.predicted_label.clone(), self.predicted.clone())],
            published: vec![(PUBLISHED.to_owned(), self.published.clone())],
            marks: std::iter::once((self.bdp, bdp)).chain(windows).collect(),
            ..SweepChart::default()
        };
        chart.picture()
    }

    /// Returns true if a window is the BDP, within 1 %. The line of the BDP then marks both.
    fn is_bdp(&self, window: f64) -> bool {
        (window / self.bdp - 1.0).abs() < 0.01
    }
}

#[cfg(test)]
mod tests {
    use lfn_plot::DEFAULT_SIZE;

    use super::*;

    fn chart(inaccuracy: Option<&str>) -> Chart<'static> {
        Chart {
            title: "Goodput versus receive window",
            subtitle: "A path <of> 135 Mb/s & 539 ms",
            bdp: 9.096e6,
            predicted: vec![(0.0, 0.0), (8.7e6, 129e6), (18e6, 129e6)],
            predicted_label: "predicted".into(),
            published: vec![(4.5e6, 64e6), (9.1e6, 111e6)],
            measured: vec![MeasuredPoint { window: 4.5e6, min: 66.5e6, median: 67.1e6, max: 67.6e6 }],
            inaccuracy: inaccuracy.map(str::to_owned),
        }
    }

    fn texts(chart: &Chart<'_>) -> Vec<String> {
        chart.picture().draw(DEFAULT_SIZE).texts().map(|text| text.text.clone()).collect()
    }

    #[test]
    fn points_windows_and_the_bdp_have_labels() {
        let texts = texts(&chart(None));
        for text in ["BDP = 9.1 MB", "0.5 BDP", "64.0", "111", "67.1", "predicted", MEASURED, PUBLISHED] {
            assert!(texts.iter().any(|found| found == text), "{text} in {texts:?}");
        }
        assert!(!texts.iter().any(|text| text.starts_with("NOT ACCURATE")));
    }

    #[test]
    fn inaccurate_run_is_marked_with_its_reason() {
        let texts = texts(&chart(Some("p99 lateness 12.5 ms")));
        assert!(texts.iter().any(|text| text == "NOT ACCURATE: p99 lateness 12.5 ms"), "{texts:?}");
    }

    #[test]
    fn chart_has_a_title_and_an_escaped_description() {
        let svg = chart(None).picture().draw(DEFAULT_SIZE).svg();
        assert!(svg.contains(r#"<title id="title">Goodput versus receive window</title>"#), "{svg}");
        assert!(svg.contains("A path &lt;of&gt; 135 Mb/s &amp; 539 ms."), "{svg}");
    }
}
