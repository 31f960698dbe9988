//! The picture of the demo: goodput versus receive window. Shows the prediction as a line, the figures of 1995 and the
//! measured figures as labelled points, and the BDP as a vertical line.
//!
//! The layout is for 720 pixels and stays readable at half of that. Points and labels of 1995 are left of their
//! window, those of this run are right of it, so that they never cover each other.

use std::fmt::Write as _;

use anyhow::Result;
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::print::svg::{
    BLUE, Canvas, Drawn, FONT, INK, ORANGE, PictureText, Pixel, RED, SMALL_FONT, Size, TITLE_FONT, picture, text_style,
    write,
};

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
    /// Reason why the emulation was not accurate. The chart marks the measured points and shows the reason.
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

const SIZE: Size = Size { width: 720, height: 600 };
/// Height of the title and the path. The mark of an inaccurate run is below.
const HEADER: i32 = 74;
/// Height of a line of this mark.
const MARK_LINE: i32 = 22;
/// Maximum number of characters in a line of the picture.
const MAX_LINE: usize = 66;
/// Height of the legend.
const LEGEND: i32 = 104;
/// Pixels between a window and the points on either side of it.
const SHIFT: i32 = 8;
const MEGA: f64 = 1e6;

type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

impl Chart<'_> {
    /// Returns the chart as SVG. The same data gives the same text.
    pub fn svg(&self) -> Result<String> {
        let text = PictureText { title: self.title, description: &self.description() };
        picture(&text, SIZE, |canvas| self.draw(canvas))
    }

    fn draw(&self, canvas: &Canvas<'_>) -> Drawn {
        self.draw_header(canvas)?;
        let (width, height) = self.extent();
        let mut plot = ChartBuilder::on(canvas)
            .margin_top(HEADER + MARK_LINE * self.mark().len() as i32)
            .margin_bottom(LEGEND)
            .margin_left(12)
            .margin_right(20)
            .x_label_area_size(54)
            .y_label_area_size(66)
            .build_cartesian_2d(0.0..width, 0.0..height)?;
        plot.configure_mesh()
            .x_desc("receive window, MB")
            .y_desc("goodput, Mb/s")
            .light_line_style(WHITE.mix(0.0))
            .bold_line_style(INK.mix(0.1))
            .axis_desc_style(text_style(FONT, INK))
            .x_label_style(text_style(FONT, INK))
            .y_label_style(text_style(FONT, INK))
            .x_labels(8)
            .y_labels(8)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .draw()?;
        self.draw_windows(canvas, &plot, height)?;
        let line = self.predicted.iter().map(|(x, y)| (x / MEGA, y / MEGA));
        plot.draw_series(LineSeries::new(line, BLUE.stroke_width(3)))?;
        self.draw_published(canvas, &plot)?;
        self.draw_measured(canvas, &plot)?;
        self.draw_legend(canvas)
    }

    fn draw_header(&self, canvas: &Canvas<'_>) -> Drawn {
        write(canvas, self.title, (16, 24), TITLE_FONT, INK, HPos::Left)?;
        write(canvas, self.subtitle, (16, 52), FONT, INK, HPos::Left)?;
        let lines = self.mark();
        if lines.is_empty() {
            return Ok(());
        }
        let bottom = HEADER - 6 + MARK_LINE * lines.len() as i32;
        canvas.draw(&Rectangle::new([(0, HEADER - 8), (SIZE.width, bottom)], RED.mix(0.1).filled()))?;
        for (number, line) in (0..).zip(&lines) {
            write(canvas, line, (16, HEADER + 4 + MARK_LINE * number), FONT, RED, HPos::Left)?;
        }
        Ok(())
    }

    /// Returns the lines that mark an inaccurate run, with its reason. Empty after an accurate run.
    fn mark(&self) -> Vec<String> {
        let Some(reason) = &self.inaccuracy else { return Vec::new() };
        let mut lines = vec!["NOT ACCURATE:".to_owned()];
        for word in reason.split_whitespace() {
            match lines.last_mut().filter(|line| line.chars().count() + word.chars().count() < MAX_LINE) {
                Some(line) => *line += &format!(" {word}"),
                None => lines.push(word.to_owned()),
            }
        }
        lines
    }

    /// Draws a vertical line at each tested window and at the BDP, with a label at the top.
    fn draw_windows(&self, canvas: &Canvas<'_>, plot: &Plot<'_, '_>, height: f64) -> Drawn {
        let windows = self.measured.iter().map(|point| point.window).chain(self.published.iter().map(|point| point.0));
        let mut tested: Vec<f64> = windows.filter(|window| !self.is_bdp(*window)).collect();
        tested.sort_unstable_by(f64::total_cmp);
        tested.dedup();
        for window in tested {
            let (top, bottom) = (pixel(plot, window, height * MEGA), pixel(plot, window, 0.0));
            canvas.draw(&PathElement::new([(top.0, top.1 + 24), bottom], INK.mix(0.25).stroke_width(1)))?;
            let label = format!("{:.1} BDP", window / self.bdp);
            write(canvas, &label, (top.0, top.1 + 10), FONT, INK, HPos::Center)?;
        }
        let (top, bottom) = (pixel(plot, self.bdp, height * MEGA), pixel(plot, self.bdp, 0.0));
        let ends = [(top.0, top.1 + 24), bottom];
        canvas.draw(&DashedPathElement::new(ends, 8, 5, INK.stroke_width(2)))?;
        let label = format!("BDP = {:.1} MB", self.bdp / MEGA);
        write(canvas, &label, (top.0, top.1 + 10), FONT, INK, HPos::Center)
    }

    /// Returns true if a window is the BDP, within 1 %. The line of the BDP then marks both.
    fn is_bdp(&self, window: f64) -> bool {
        (window / self.bdp - 1.0).abs() < 0.01
    }

    fn draw_published(&self, canvas: &Canvas<'_>, plot: &Plot<'_, '_>) -> Drawn {
        for point in &self.published {
            let (x, y) = pixel(plot, point.0, point.1);
            canvas.draw(&TriangleMarker::new((x - SHIFT, y), 8, ORANGE.filled()))?;
            // The label is on the side of the marker that is away from the line.
            let below = self.predicted_at(point.0).is_some_and(|rate| point.1 < 0.9 * rate);
            let at = if below { (x - 4, y + 20) } else { (x - SHIFT - 10, y - 13) };
            write(canvas, &megabits(point.1), at, FONT, ORANGE, HPos::Right)?;
        }
        Ok(())
    }

    /// Returns the predicted goodput of a window, between two points of the line.
    fn predicted_at(&self, window: f64) -> Option<f64> {
        self.predicted.windows(2).find_map(|ends| {
            let [(x0, y0), (x1, y1)] = [ends[0], ends[1]];
            (x0..=x1).contains(&window).then(|| y0 + (y1 - y0) * (window - x0) / (x1 - x0))
        })
    }

    /// Draws a dot at each median and a bar from the minimum to the maximum. After an inaccurate run the dots are
    /// hollow.
    fn draw_measured(&self, canvas: &Canvas<'_>, plot: &Plot<'_, '_>) -> Drawn {
        for point in &self.measured {
            let [(x, low), (_, middle), (_, high)] =
                [point.min, point.median, point.max].map(|rate| pixel(plot, point.window, rate));
            let x = x + SHIFT;
            let bar = INK.stroke_width(2);
            for ends in [[(x, low), (x, high)], [(x - 5, low), (x + 5, low)], [(x - 5, high), (x + 5, high)]] {
                canvas.draw(&PathElement::new(ends, bar))?;
            }
            self.draw_dot(canvas, (x, middle))?;
            let label = megabits(point.median);
            write(canvas, &label, (x + 12, middle + 13), FONT, INK, HPos::Left)?;
            let spread = format!("{} to {}", megabits(point.min), megabits(point.max));
            write(canvas, &spread, (x + 12, middle + 32), SMALL_FONT, INK, HPos::Left)?;
        }
        Ok(())
    }

    fn draw_dot(&self, canvas: &Canvas<'_>, at: Pixel) -> Drawn {
        if self.inaccuracy.is_none() {
            return canvas.draw(&Circle::new(at, 6, INK.filled()));
        }
        canvas.draw(&Circle::new(at, 6, WHITE.filled()))?;
        canvas.draw(&Circle::new(at, 6, RED.stroke_width(2)))
    }

    fn draw_legend(&self, canvas: &Canvas<'_>) -> Drawn {
        let row = |number: i32| SIZE.height - LEGEND + 20 + 30 * number;
        canvas.draw(&PathElement::new([(20, row(0)), (48, row(0))], BLUE.stroke_width(3)))?;
        write(canvas, &self.predicted_label, (62, row(0)), FONT, INK, HPos::Left)?;
        self.draw_dot(canvas, (34, row(1)))?;
        let measured = if self.inaccuracy.is_some() { MEASURED_INACCURATE } else { MEASURED };
        write(canvas, measured, (62, row(1)), FONT, INK, HPos::Left)?;
        canvas.draw(&TriangleMarker::new((34, row(2)), 8, ORANGE.filled()))?;
        write(canvas, PUBLISHED, (62, row(2)), FONT, INK, HPos::Left)
    }

    /// Returns the upper limits of both axes. The space above the largest value holds the labels of the windows.
    fn extent(&self) -> (f64, f64) {
        let measured = self.measured.iter().map(|point| (point.window, point.max));
        let all = self.predicted.iter().chain(&self.published).copied().chain(measured).chain([(self.bdp, 0.0)]);
        let (width, height) = all.fold((0.0_f64, 0.0_f64), |(w, h), (x, y)| (w.max(x), h.max(y)));
        (width.max(MEGA) / MEGA, height.max(MEGA) * 1.25 / MEGA)
    }

    /// Returns the chart in words, for readers that cannot see it.
    fn description(&self) -> String {
        let mut text = format!("{}. BDP {:.1} MB. {}.", self.subtitle, self.bdp / MEGA, self.predicted_label);
        for point in &self.measured {
            let [min, median, max] = [point.min, point.median, point.max].map(megabits);
            let _ = write!(
                text,
                " Window {:.1} MB: measured {median} Mb/s, between {min} and {max} Mb/s",
                point.window / MEGA
            );
            let published = self.published.iter().find(|published| published.0 == point.window);
            if let Some((_, rate)) = published {
                let _ = write!(text, "; measured in 1995 {} Mb/s", megabits(*rate));
            }
            text.push('.');
        }
        if let Some(reason) = &self.inaccuracy {
            let _ = write!(text, " This run was not accurate: {reason}.");
        }
        text
    }
}

const MEASURED: &str = "measured now: median, and minimum to maximum";
const MEASURED_INACCURATE: &str = "measured now, NOT ACCURATE: median, min to max";
const PUBLISHED: &str = "measured in 1995: packets of 64 KB, no selective ACKs";

/// Returns the pixel of a point of the plot, in bytes and bit/s.
fn pixel(plot: &Plot<'_, '_>, window: f64, rate: f64) -> Pixel {
    plot.backend_coord(&(window / MEGA, rate / MEGA))
}

/// Returns a rate as Mb/s with one decimal, without the unit.
fn megabits(rate: f64) -> String {
    format!("{:.1}", rate / MEGA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::svg::check::{no_text_leaves, texts};

    fn chart(inaccuracy: Option<&str>) -> Chart<'static> {
        Chart {
            title: "Goodput versus receive window",
            subtitle: "A path <of> 135 Mb/s & 539 ms",
            bdp: 9.1e6,
            predicted: vec![(0.0, 0.0), (8.7e6, 129e6), (18e6, 129e6)],
            predicted_label: "predicted".into(),
            published: vec![(4.5e6, 64e6), (9.1e6, 111e6)],
            measured: vec![MeasuredPoint { window: 4.5e6, min: 66.5e6, median: 67.1e6, max: 67.6e6 }],
            inaccuracy: inaccuracy.map(str::to_owned),
        }
    }

    #[test]
    fn points_windows_and_the_bdp_have_labels() {
        let svg = chart(None).svg().unwrap();
        let texts = texts(&svg);
        for text in
            ["BDP = 9.1 MB", "0.5 BDP", "64.0", "111.0", "67.1", "66.5 to 67.6", "predicted", MEASURED, PUBLISHED]
        {
            assert!(texts.contains(&text), "{text} in {texts:?}");
        }
        assert!(!svg.contains("NOT ACCURATE"));
    }

    #[test]
    fn inaccurate_run_is_marked_with_its_reason() {
        let svg = chart(Some("p99 lateness 12.5 ms")).svg().unwrap();
        let texts = texts(&svg);
        assert!(texts.contains(&"NOT ACCURATE: p99 lateness 12.5 ms"), "{texts:?}");
        assert!(texts.contains(&MEASURED_INACCURATE), "{texts:?}");
        assert!(svg.contains("This run was not accurate: p99 lateness 12.5 ms.</desc>"), "{svg}");
    }

    #[test]
    fn chart_has_a_title_and_an_escaped_description() {
        let svg = chart(None).svg().unwrap();
        assert!(svg.starts_with(r#"<svg role="img" aria-labelledby="title desc" "#), "{svg}");
        assert!(svg.contains(r#"<title id="title">Goodput versus receive window</title>"#), "{svg}");
        assert!(svg.contains(r#"<desc id="desc">A path &lt;of&gt; 135 Mb/s &amp; 539 ms. BDP 9.1 MB. "#), "{svg}");
        assert!(
            svg.contains("measured 67.1 Mb/s, between 66.5 and 67.6 Mb/s; measured in 1995 64.0 Mb/s.</desc>"),
            "{svg}"
        );
    }

    #[test]
    fn same_data_draws_the_same_picture() {
        assert_eq!(chart(None).svg().unwrap(), chart(None).svg().unwrap());
    }

    #[test]
    fn no_text_leaves_the_picture() {
        let long = "far to near: 123456 packets dropped by the kernel before the emulator could read them";
        for inaccuracy in [None, Some("far to near: p99 lateness 12.53 ms is above 5.39 ms"), Some(long)] {
            no_text_leaves(&chart(inaccuracy).svg().unwrap());
        }
    }
}
