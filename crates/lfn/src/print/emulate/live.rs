//! The live line of an emulation: how fast each direction carries, what waits, what was dropped.
//!
//! On a terminal it is one line, written over itself twice a second and as much of it as fits; whatever else is written
//! goes over it as well, which is why the cursor is left at its start. Elsewhere it is a line every five seconds, to be
//! kept. When the run ends a terminal is left as if it had never been there.

use std::time::Duration;

use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_net::emulator::{Live, LiveDirection, LiveFigures};

use crate::print::{draw_over, talk, terminal};

/// How often on a terminal.
const OFTEN: Duration = Duration::from_millis(500);
/// How often elsewhere.
const SELDOM: Duration = Duration::from_secs(5);
/// Columns of a terminal that does not say how wide it is.
const WIDTH: usize = 80;
/// Erases a line and goes to its start (ECMA-48, EL).
const ERASE: &str = "\r\x1b[2K";

/// Whether there is to be a live line, and which: where it was asked for, and where a person has nothing else to look at,
/// because no command runs here whose output it would disturb.
pub fn wanted(asked_for: bool, has_command: bool) -> Option<Live> {
    match terminal::talks_to_one() {
        true if asked_for || !has_command => Some(Live { every: OFTEN, show: draw }),
        false if asked_for => Some(Live { every: SELDOM, show: write }),
        _ => None,
    }
}

fn draw(figures: Option<&LiveFigures>) {
    match figures {
        Some(figures) => draw_over(format_args!("{ERASE}{}\r", line(figures, width()))),
        None => draw_over(ERASE),
    }
}

fn write(figures: Option<&LiveFigures>) {
    if let Some(figures) = figures {
        talk(format_args!("{}\n", line(figures, usize::MAX)));
    }
}

/// One column less than there are: some terminals wrap when the last one is written to.
fn width() -> usize {
    terminal::talk_columns().map_or(WIDTH, |columns| columns - 1)
}

/// As much as fits into so many columns: all of it, or fewer words, or the start of that.
fn line(figures: &LiveFigures, width: usize) -> String {
    let shapes: [fn(&LiveDirection) -> String; 4] = [in_words, in_short, in_figures, rate_only];
    let mut lines = shapes.into_iter().map(|shape| shaped(figures, shape));
    let fitting = lines.find(|line| line.chars().count() <= width);
    fitting.unwrap_or_else(|| shaped(figures, rate_only).chars().take(width).collect())
}

fn shaped(figures: &LiveFigures, shape: fn(&LiveDirection) -> String) -> String {
    let mut line = format!("{:>4} s", figures.elapsed.as_secs());
    for (number, [forth, back]) in (1..).zip(&figures.paths) {
        if figures.paths.len() > 1 {
            line += &format!("  path {number}:");
        }
        line += &format!("  -> {}  <- {}", shape(forth), shape(back));
    }
    line
}

fn in_words(direction: &LiveDirection) -> String {
    let LiveDirection { rate, queued, newly_dropped, dropped, unmodelled, .. } = direction;
    let wait = if queued.0 > 0 { format!(" ({})", short(direction.wait)) } else { String::new() };
    let lately = if *newly_dropped > 0 { format!(" (+{newly_dropped})") } else { String::new() };
    let lost = if *unmodelled > 0 { format!(", NOT FAITHFUL: {unmodelled} lost") } else { String::new() };
    format!("{}, queue {}{wait}, dropped {dropped}{lately}{lost}", throughput(*rate), bytes(*queued))
}

fn in_short(direction: &LiveDirection) -> String {
    let lost = if direction.unmodelled > 0 { format!(" LOST {}", direction.unmodelled) } else { String::new() };
    format!("{} queue {} drops {}{lost}", throughput(direction.rate), short(direction.wait), direction.dropped)
}

fn in_figures(direction: &LiveDirection) -> String {
    let lost = if direction.unmodelled > 0 { format!(" !{}", direction.unmodelled) } else { String::new() };
    format!("{} q {} d {}{lost}", throughput(direction.rate), short(direction.wait), direction.dropped)
}

fn rate_only(direction: &LiveDirection) -> String {
    throughput(direction.rate)
}

fn throughput(rate: BitRate) -> String {
    BitRate(three_digits(rate.0)).to_string()
}

/// Always in powers of ten: a figure that moves is not to jump between two kinds of units.
fn bytes(bytes: Bytes) -> String {
    match three_digits(bytes.0) {
        b if b < 1_000 => format!("{b} B"),
        b if b < 1_000_000 => format!("{} kB", b as f64 / 1e3),
        b if b < 1_000_000_000 => format!("{} MB", b as f64 / 1e6),
        b => format!("{} GB", b as f64 / 1e9),
    }
}

fn short(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    show_duration(Duration::from_nanos(three_digits(nanos)))
}

/// What changes twice a second is not read to more.
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
    fn what_is_left_out_first_is_words() {
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
    fn a_loss_that_was_not_meant_is_seen_at_once() {
        let mut figures = figures(1);
        figures.paths[0][1].unmodelled = 3;
        assert!(line(&figures, usize::MAX).ends_with("NOT FAITHFUL: 3 lost"));
        assert!(line(&figures, 90).ends_with("LOST 3") && line(&figures, 70).contains(" !3"));
    }
}
