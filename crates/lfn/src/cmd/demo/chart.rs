//! `window.svg`: goodput over the receive window. Shows the prediction as a line, the figures of 1995 as points, and
//! the measured figures with their spread.

use std::path::Path;

use anyhow::{Context, Result};
use plotters::prelude::*;

/// Data of the chart. Windows are in bytes, rates in bit/s.
#[derive(Debug)]
pub struct Chart<'a> {
    pub title: &'a str,
    /// Predicted (window, goodput), ordered by window.
    pub predicted: Vec<(f64, f64)>,
    /// Figures of the report.
    pub published: Vec<(f64, f64)>,
    pub measured: Vec<MeasuredPoint>,
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

const SIZE: (u32, u32) = (860, 540);
const MEGA: f64 = 1e6;
// Three colours that colour-blind readers can distinguish (Okabe and Ito).
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);
const BLACK_INK: RGBColor = RGBColor(30, 30, 30);

impl Chart<'_> {
    /// Draws the chart and writes it to `path`.
    pub fn write_svg(&self, path: &Path) -> Result<()> {
        let mut svg = String::new();
        // The drawing error borrows the backend, so it is converted to text here.
        self.draw(&mut svg).map_err(|e| anyhow::anyhow!("cannot draw the chart: {e}"))?;
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
    }

    fn draw(&self, svg: &mut String) -> Result<(), Box<dyn std::error::Error + '_>> {
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (width, height) = self.extent();
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, ("sans-serif", 20).into_font().color(&BLACK_INK))
            .margin(18)
            .x_label_area_size(48)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..width, 0.0..height)?;
        chart
            .configure_mesh()
            .x_desc("receive window, MB")
            .y_desc("goodput, Mb/s")
            .light_line_style(WHITE.mix(0.0))
            .bold_line_style(BLACK_INK.mix(0.12))
            .axis_desc_style(("sans-serif", 16))
            .label_style(("sans-serif", 14))
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .draw()?;
        let scaled = |points: &[(f64, f64)]| points.iter().map(|(x, y)| (x / MEGA, y / MEGA)).collect::<Vec<_>>();
        chart
            .draw_series(LineSeries::new(scaled(&self.predicted), BLUE.stroke_width(2)))?
            .label("predicted now")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 22, y)], BLUE.stroke_width(2)));
        chart
            .draw_series(self.measured.iter().map(|point| {
                let [min, median, max] = [point.min, point.median, point.max].map(|rate| rate / MEGA);
                ErrorBar::new_vertical(point.window / MEGA, min, median, max, BLACK_INK.filled(), 10)
            }))?
            .label("measured now: median, minimum and maximum over two round trips, after slow start")
            .legend(|(x, y)| Circle::new((x + 11, y), 4, BLACK_INK.filled()));
        chart
            .draw_series(
                scaled(&self.published).into_iter().map(|at| TriangleMarker::new(at, 7, ORANGE.stroke_width(2))),
            )?
            .label("published in 1995")
            .legend(|(x, y)| TriangleMarker::new((x + 11, y), 7, ORANGE.stroke_width(2)));
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.9))
            .border_style(BLACK_INK.mix(0.3))
            .label_font(("sans-serif", 14))
            .margin(10)
            .draw()?;
        root.present()?;
        Ok(())
    }

    /// Returns the upper limits of both axes, a little above the largest values.
    fn extent(&self) -> (f64, f64) {
        let measured = self.measured.iter().map(|point| (point.window, point.max));
        let all = self.predicted.iter().chain(&self.published).copied().chain(measured);
        let (width, height) = all.fold((0.0_f64, 0.0_f64), |(w, h), (x, y)| (w.max(x), h.max(y)));
        (width.max(MEGA) / MEGA, height.max(MEGA) * 1.12 / MEGA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_in_the_chart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("window.svg");
        let chart = Chart {
            title: "Goodput over the window",
            predicted: vec![(0.0, 0.0), (9.1e6, 129e6), (14e6, 129e6)],
            published: vec![(4.5e6, 64e6)],
            measured: vec![MeasuredPoint { window: 9e6, min: 120e6, median: 129e6, max: 130e6 }],
        };
        chart.write_svg(&path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.contains("<polyline") && svg.contains("<circle"));
        for text in ["receive window, MB", "predicted now", "published in 1995", "measured now"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
