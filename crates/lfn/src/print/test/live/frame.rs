//! Lines of the live display for a terminal's size, made from the state.

use std::time::Duration;

use lfn_base::units::{BitRate, show_duration};
use lfn_results::measure::TestDirection;

use super::state::{DatagramCounts, TestState, WaitShares};

/// Capabilities of the terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) colours: bool,
    pub(super) unicode: bool,
}

/// Width of the label column.
const LABEL: usize = 8;

/// Kinds of lines in their order of importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LineKind {
    Rate,
    Time,
    Limits,
    RoundTrips,
}

/// Returns the lines for this number of columns and rows; a smaller terminal has fewer lines.
pub(super) fn lines(states: &[&TestState], columns: usize, rows: usize, style: Style) -> Vec<String> {
    let begun: Vec<&&TestState> = states.iter().filter(|state| state.is_connected || !state.rates.is_empty()).collect();
    let alone = begun.len() < 2;
    let mut all: Vec<(LineKind, String)> = Vec::new();
    for state in &begun {
        let name = match (alone, state.direction) {
            (false, Some(TestDirection::Forward)) => "forward",
            (false, Some(TestDirection::Reverse)) => "reverse",
            _ => "rate",
        };
        all.extend(predict_test(state, name, columns, style));
    }
    if !begun.is_empty() {
        let place = if alone { all.len().min(1) } else { all.len() };
        all.insert(place, (LineKind::Time, label("time") + &fitting(&time(&begun), columns.saturating_sub(LABEL))));
    }
    // Two rows are for the table, one for the cursor.
    for worth in [LineKind::RoundTrips, LineKind::Limits, LineKind::Time, LineKind::Rate] {
        if all.len() > rows.saturating_sub(3) {
            all.retain(|(other, _)| *other != worth);
        }
    }
    // A line is cut if its shortest form does not fit.
    all.into_iter().map(|(_, line)| cut(&line, columns)).collect()
}

fn label(name: &str) -> String {
    format!("{name:<LABEL$}")
}

/// Returns the lines of one test.
fn predict_test(state: &TestState, name: &str, columns: usize, style: Style) -> Vec<(LineKind, String)> {
    let Some(rate) = state.rates.last() else { return Vec::new() };
    let room = columns.saturating_sub(LABEL);
    let rate = format!(" {rate}");
    let curve = sparkline(&state.rates, room.saturating_sub(rate.chars().count()), style);
    let mut lines = vec![(LineKind::Rate, format!("{}{curve}{rate}", label(name)))];
    if let Some(datagrams) = &state.datagrams {
        lines.push((LineKind::Limits, label("lost") + &fitting(&losses(datagrams), room)));
    } else if !state.rtt.is_zero() {
        lines.push((LineKind::Limits, label("limits") + &band(&state.limits, room, style)));
        lines.push((LineKind::RoundTrips, label("RTT") + &fitting(&round_trips(state), room)));
    }
    lines
}

/// Returns the last intervals as bars; the highest bar is the maximum of these intervals.
fn sparkline(rates: &[BitRate], width: usize, style: Style) -> String {
    let steps: &[char] = if style.unicode {
        &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
    } else {
        &['_', '.', ',', '-', '=', '+', '*', '#']
    };
    let shown = &rates[rates.len().saturating_sub(width.min(60))..];
    let max = shown.iter().map(|rate| rate.0).max().unwrap_or(0).max(1);
    let step = |rate: &BitRate| (u128::from(rate.0) * 7).div_ceil(u128::from(max)) as usize;
    shown.iter().map(|rate| steps[step(rate).min(7)]).collect()
}

/// Returns the causes of the sender's waits as a bar: r(eceive window), s(end buffer), c(ongestion window),
/// a(pplication).
fn band(limits: &WaitShares, room: usize, style: Style) -> String {
    // Background colours of ECMA-48 that most people with red-green colour blindness can distinguish.
    let parts = [
        ('r', "rwnd", limits.rwnd, 41),
        ('s', "send buffer", limits.sndbuf, 43),
        ('c', "cwnd", limits.cwnd, 44),
        ('a', "application", limits.application, 46),
    ];
    let words: Vec<String> = parts
        .iter()
        .filter(|(_, _, share, _)| *share >= 0.005)
        .map(|(_, name, share, _)| format!("{name} {:.0} %", share * 100.0))
        .collect();
    let words = format!(" {}", words.join(", "));
    let width = room.saturating_sub(words.chars().count()).min(40);
    if width < 8 {
        let short = words.replace("send buffer", "sndbuf").replace("application", "app").replace(',', "");
        return fitting(&[words.trim_start().to_owned(), short.trim_start().to_owned()], room);
    }
    let mut ends = 0.0;
    let mut at = 0;
    let mut bar = String::new();
    for (letter, _, share, colour) in parts {
        ends += share;
        let until = ((ends * width as f64).round() as usize).clamp(at, width);
        let cells: String = std::iter::repeat_n(letter, until - at).collect();
        if style.colours && !cells.is_empty() {
            bar += &format!("\x1b[{colour}m{cells}\x1b[0m")
        } else {
            bar += &cells
        }
        at = until;
    }
    bar + &words
}

/// Returns the elapsed and the remaining time, with the bytes and without them. Two directions end together, so the
/// later remaining time counts for both.
fn time(states: &[&&TestState]) -> [String; 2] {
    let clock = seconds(states.iter().map(|state| state.clock).max().unwrap_or_default());
    let remaining = states.iter().filter_map(|state| state.remaining()).max();
    let max = if states.iter().any(|state| state.may_end_early) { "at most " } else { "" };
    let left = remaining.map(|left| format!(", {max}{} left", seconds(left))).unwrap_or_default();
    let ways: Vec<String> = states.iter().map(|state| bytes(state, states.len() > 1)).collect();
    [format!("{} after {clock}{left}", ways.join(", ")), format!("{clock}{left}")]
}

fn bytes(state: &TestState, both: bool) -> String {
    let way = match state.direction {
        Some(TestDirection::Forward) if both => " forward",
        Some(TestDirection::Reverse) if both => " back",
        _ => "",
    };
    format!("{}{way}", state.bytes.decimal())
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..=99 => format!("{}.{} s", s, time.subsec_millis() / 100),
        s if s < 6000 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

fn losses(datagrams: &DatagramCounts) -> [String; 3] {
    let DatagramCounts { received, lost, reordered, jitter } = *datagrams;
    let share = lost as f64 / (received + lost).max(1) as f64 * 100.0;
    let jitter = jitter.map(|jitter| format!(", jitter {}", show_duration(jitter))).unwrap_or_default();
    [
        format!("{share:.2} %: {lost} of {} datagrams, {reordered} reordered{jitter}", received + lost),
        format!("{share:.2} %, {reordered} reordered{jitter}"),
        format!("{share:.2} %{jitter}"),
    ]
}

fn round_trips(state: &TestState) -> [String; 3] {
    let now = show_duration(state.rtt);
    let min = state.min_rtt.map(|min| format!(" (min {})", show_duration(min))).unwrap_or_default();
    let rwnd = state.rwnd.map(|rwnd| format!(", rwnd {}", rwnd.decimal())).unwrap_or_default();
    let cwnd = state.cwnd.decimal();
    [
        format!("{now}{min}, cwnd {cwnd}{rwnd}, {} resent", state.resent),
        format!("{now}{min}, {} resent", state.resent),
        format!("{now}, {} resent", state.resent),
    ]
}

/// Returns the first text that fits, else the last one.
fn fitting(texts: &[String], room: usize) -> String {
    texts.iter().find(|text| text.chars().count() <= room).or(texts.last()).cloned().unwrap_or_default()
}

/// Returns the visible width of a line, without escape sequences.
pub(super) fn visible(line: &str) -> usize {
    let mut width = 0;
    let mut escaped = false;
    for c in line.chars() {
        match (c, escaped) {
            ('\x1b', _) => escaped = true,
            ('m', true) => escaped = false,
            (_, true) => {}
            _ => width += 1,
        }
    }
    width
}

/// Cuts a line to the number of columns; the cut line has no colours.
fn cut(line: &str, columns: usize) -> String {
    if visible(line) <= columns {
        return line.to_owned();
    }
    let plain: String =
        line.split('\x1b').enumerate().map(|(i, part)| if i == 0 { part } else { after(part) }).collect();
    plain.chars().take(columns).collect()
}

/// Returns the text after an escape sequence.
fn after(part: &str) -> &str {
    part.split_once('m').map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;

    use super::super::state::TestEnd;
    use super::*;

    const PLAIN: Style = Style { colours: false, unicode: false };

    fn state() -> TestState {
        let rates = [10, 40, 80, 120, 128, 129, 129, 64].map(|rate| BitRate(rate * 1_000_000)).to_vec();
        TestState {
            is_connected: true,
            rates,
            elapsed: Duration::from_millis(8600),
            clock: Duration::from_millis(8600),
            elapsed_at_update: Duration::from_millis(8600),
            bytes: Bytes(95_000_001),
            ends: Some(TestEnd::After(Duration::from_secs(30))),
            rtt: Duration::from_millis(541),
            min_rtt: Some(Duration::from_millis(539)),
            cwnd: Bytes(9_129_375),
            rwnd: Some(Bytes(4_547_841)),
            resent: 3,
            limits: WaitShares { rwnd: 0.75, sndbuf: 0.0, cwnd: 0.2, application: 0.05 },
            ..TestState::default()
        }
    }

    #[test]
    fn frames_match_exactly() {
        let frame = lines(&[&state()], 79, 24, PLAIN);
        let wide = [
            "rate    .-+####= 64 Mb/s",
            "time    95 MB after 8.6 s, 21.4 s left",
            "limits  rrrrrrrrrrrrrrrrrrrrrrrrrccccccaa rwnd 75 %, cwnd 20 %, application 5 %",
            "RTT     541 ms (min 539 ms), cwnd 9.129 MB, rwnd 4.548 MB, 3 resent",
        ];
        assert_eq!(frame, wide);
    }

    #[test]
    fn each_direction_has_its_own_lines() {
        let of = |direction| TestState { direction: Some(direction), ..state() };
        let (forward, mut reverse) = (of(TestDirection::Forward), of(TestDirection::Reverse));
        reverse.clock += Duration::from_millis(300);
        reverse.bytes = Bytes(98_765_432);
        let begins = |rows: usize| -> Vec<String> {
            let frame = lines(&[&forward, &reverse], 79, rows, PLAIN);
            frame.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(begins(24), ["forward", "limits", "RTT", "reverse", "limits", "RTT", "time"]);
        assert_eq!(begins(8), ["forward", "limits", "reverse", "limits", "time"]);
        assert_eq!(begins(6), ["forward", "reverse", "time"]);
        let frame = lines(&[&forward, &reverse], 79, 24, PLAIN);
        assert_eq!(frame[6], "time    95 MB forward, 98.77 MB back after 8.9 s, 21.4 s left", "one clock for both");
        // The order of the directions does not matter.
        let frame = lines(&[&reverse, &forward], 39, 24, PLAIN);
        assert_eq!(frame[6], "time    8.9 s, 21.4 s left");
    }

    #[test]
    fn datagrams_show_losses_and_the_maximum_time() {
        let seen = DatagramCounts { received: 990, lost: 10, reordered: 2, jitter: Some(Duration::from_micros(120)) };
        let state = TestState { datagrams: Some(seen), may_end_early: true, ..state() };
        let frame = lines(&[&state], 79, 24, PLAIN);
        assert_eq!(frame[1], "time    95 MB after 8.6 s, at most 21.4 s left");
        assert_eq!(frame[2], "lost    1.00 %: 10 of 1000 datagrams, 2 reordered, jitter 120 µs");
        assert_eq!(frame.len(), 3);
    }

    #[test]
    fn time_advances_during_long_intervals() {
        let clock = Duration::from_millis(3200);
        let first = TestState { is_connected: true, clock, ends: state().ends, ..TestState::default() };
        assert_eq!(lines(&[&first], 79, 24, PLAIN), ["time    0 B after 3.2 s, 26.8 s left"]);
        let later = TestState { clock: Duration::from_millis(10_600), ..state() };
        assert_eq!(lines(&[&later], 79, 24, PLAIN)[1], "time    95 MB after 10.6 s, 19.4 s left");
        let over = TestState { clock: Duration::from_secs(99), ..state() };
        assert!(lines(&[&over], 79, 24, PLAIN)[1].ends_with(" 0.0 s left"));
    }

    #[test]
    fn a_narrow_terminal_has_shorter_words() {
        let frame = lines(&[&state()], 39, 10, PLAIN);
        assert_eq!(
            frame,
            [
                "rate    .-+####= 64 Mb/s",
                "time    95 MB after 8.6 s, 21.4 s left",
                "limits  rwnd 75 % cwnd 20 % app 5 %",
                "RTT     541 ms (min 539 ms), 3 resent"
            ]
        );
        assert_eq!(lines(&[&state()], 39, 5, PLAIN).len(), 2, "two rows are the table's, one the cursor's");
    }

    #[test]
    fn lines_fit_every_size_of_terminal() {
        for columns in 0..200 {
            for rows in [0, 2, 3, 10, 50] {
                for style in [PLAIN, Style { colours: true, unicode: true }] {
                    let frame = lines(&[&state(), &state()], columns, rows, style);
                    assert!(frame.len() + 3 <= rows.max(3), "{rows}");
                    assert!(frame.iter().all(|line| visible(line) <= columns), "{columns}: {frame:?}");
                }
            }
        }
        assert!(lines(&[&TestState::default()], 80, 24, PLAIN).is_empty(), "no figures yet");
    }

    #[test]
    fn colours_are_used_only_if_enabled() {
        let coloured = lines(&[&state()], 79, 24, Style { colours: true, unicode: true });
        assert!(coloured[2].contains("\x1b[41mr") && coloured[2].contains("\x1b[0m"));
        assert!(!lines(&[&state()], 79, 24, PLAIN).concat().contains('\x1b'));
        assert!(coloured[0].contains('█'));
    }
}
