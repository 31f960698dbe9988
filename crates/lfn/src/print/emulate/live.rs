//! Live line of an emulation: throughput, queue and drops of each direction.
//!
//! On a terminal it is one line that is redrawn twice a second, cut to the width. The cursor stays at its start, so
//! that other output overwrites the line. Without a terminal, a new line is printed every five seconds. At the end of
//! the run the line is erased.

use std::sync::Arc;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_emulate::{LiveDirection, LiveFigures, LiveOptions};

use crate::print::progress::{Figures, LINE_INTERVAL, Progress, ProgressPrinter, REDRAW_INTERVAL};
use crate::print::settings::is_quiet;
use crate::print::{for_locale, terminal};

/// Returns the options of the live line if the user requested it, or if no command runs on this terminal.
pub fn live_output(requested: bool, has_command: bool) -> Option<LiveOptions> {
    let (printer, interval) = match terminal::can_redraw_stderr() {
        true if requested || !has_command => (ProgressPrinter::Terminal, REDRAW_INTERVAL),
        false if requested && !is_quiet() => (ProgressPrinter::Lines, LINE_INTERVAL),
        _ => return None,
    };
    let progress = Progress::new(LiveLine::default(), printer);
    let show = move |figures: Option<&LiveFigures>| match figures {
        Some(figures) => {
            progress.update(|line| line.0 = Some(figures.clone()));
            progress.show_at(figures.elapsed);
        }
        None => progress.finish(),
    };
    Some(LiveOptions { interval, show: Arc::new(show) })
}

/// Figures of the line; `None` before the first ones.
#[derive(Debug, Default)]
struct LiveLine(Option<LiveFigures>);

impl Figures for LiveLine {
    fn lines(&mut self, _now: Duration, columns: usize, _rows: usize) -> Vec<String> {
        // Some terminals wrap after the last column.
        let line = self.0.as_ref().map(|figures| line(figures, columns.saturating_sub(1)));
        line.iter().map(|line| for_locale(line).into_owned()).collect()
    }

    fn plain(&self) -> Option<String> {
        self.0.as_ref().map(|figures| line(figures, usize::MAX))
    }
}

/// Returns the longest form of the line that fits, or the start of the shortest form.
fn line(figures: &LiveFigures, width: usize) -> String {
    let forms: [fn(&LiveDirection) -> String; 4] = [long_form, short_form, figures_form, rate_only];
    let mut lines = forms.into_iter().map(|form| formatted(figures, form));
    let fitting = lines.find(|line| line.chars().count() <= width);
    fitting.unwrap_or_else(|| formatted(figures, rate_only).chars().take(width).collect())
}

fn formatted(figures: &LiveFigures, form: fn(&LiveDirection) -> String) -> String {
    let mut line = format!("{:>4} s", figures.elapsed.as_secs());
    for (number, [forward, back]) in (1..).zip(&figures.paths) {
        if figures.paths.len() > 1 {
            line += &format!("  path {number}:");
        }
        line += &format!("  -> {}  <- {}", form(forward), form(back));
    }
    line
}

fn long_form(direction: &LiveDirection) -> String {
    let LiveDirection { rate, queued, newly_dropped, dropped, unmodelled, .. } = direction;
    let wait = if queued.0 > 0 { format!(" ({})", short_duration(direction.wait)) } else { String::new() };
    let newly = if *newly_dropped > 0 { format!(" (+{newly_dropped})") } else { String::new() };
    let lost = if *unmodelled > 0 { format!(", NOT ACCURATE: {unmodelled} lost") } else { String::new() };
    format!("{}, queue {}{wait}, dropped {dropped}{newly}{lost}", throughput(*rate), bytes(*queued))
}

fn short_form(direction: &LiveDirection) -> String {
    let lost = if direction.unmodelled > 0 { format!(" LOST {}", direction.unmodelled) } else { String::new() };
    format!("{} queue {} drops {}{lost}", throughput(direction.rate), short_duration(direction.wait), direction.dropped)
}

fn figures_form(direction: &LiveDirection) -> String {
    let lost = if direction.unmodelled > 0 { format!(" !{}", direction.unmodelled) } else { String::new() };
    format!("{} q {} d {}{lost}", throughput(direction.rate), short_duration(direction.wait), direction.dropped)
}

fn rate_only(direction: &LiveDirection) -> String {
    throughput(direction.rate)
}

fn throughput(rate: BitRate) -> String {
    BitRate(three_digits(rate.0)).to_string()
}

/// Formats bytes in powers of ten, so that the unit of a live figure does not change its family.
fn bytes(bytes: Bytes) -> String {
    match three_digits(bytes.0) {
        b if b < 1_000 => format!("{b} B"),
        b if b < 1_000_000 => format!("{} kB", b as f64 / 1e3),
        b if b < 1_000_000_000 => format!("{} MB", b as f64 / 1e6),
        b => format!("{} GB", b as f64 / 1e9),
    }
}

fn short_duration(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    show_duration(Duration::from_nanos(three_digits(nanos)))
}

/// Rounds down to three digits, because the figure changes twice a second.
fn three_digits(value: u64) -> u64 {
    let digits = value.checked_ilog10().unwrap_or(0);
    let unit = 10_u64.pow(digits.saturating_sub(2));
    value / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(paths: usize) -> LiveFigures {
        let busy = LiveDirection {
            rate: BitRate(134_987_654),
            queued: Bytes(3_217_890),
            wait: Duration::from_micros(190_691),
            newly_dropped: 12,
            dropped: 1234,
            unmodelled: 0,
        };
        let idle = LiveDirection { rate: BitRate(2_123_456), ..LiveDirection::default() };
        LiveFigures { elapsed: Duration::from_millis(12_600), paths: vec![[busy, idle]; paths] }
    }

    #[test]
    fn a_line_fits_any_width() {
        for paths in [1, 2, 8] {
            for width in 0..300 {
                assert!(line(&figures(paths), width).chars().count() <= width, "{width}");
            }
        }
    }

    #[test]
    fn words_are_dropped_before_figures() {
        let all = line(&figures(1), usize::MAX);
        assert_eq!(
            all,
            "  12 s  -> 134 Mb/s, queue 3.21 MB (190 ms), dropped 1234 (+12)  <- 2.12 Mb/s, queue 0 B, dropped 0"
        );
        assert_eq!(
            line(&figures(1), 79),
            "  12 s  -> 134 Mb/s queue 190 ms drops 1234  <- 2.12 Mb/s queue 0 s drops 0"
        );
        assert_eq!(line(&figures(1), 65), "  12 s  -> 134 Mb/s q 190 ms d 1234  <- 2.12 Mb/s q 0 s d 0");
        assert_eq!(line(&figures(1), 40), "  12 s  -> 134 Mb/s  <- 2.12 Mb/s");
    }

    #[test]
    fn an_unintended_loss_is_shown_at_once() {
        let mut figures = figures(1);
        figures.paths[0][1].unmodelled = 3;
        assert!(line(&figures, usize::MAX).ends_with("NOT ACCURATE: 3 lost"));
        assert!(line(&figures, 90).ends_with("LOST 3") && line(&figures, 70).contains(" !3"));
    }
}
