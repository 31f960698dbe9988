//! What a person at a terminal sees beneath the table while a test runs: how the rate went, the round trips, what held
//! the sender back, and how long it will take. The table above stays; these few lines are drawn over themselves whenever
//! an interval is over, and are gone when the test is.
//!
//! [`lines`] is pure: a state and a size in, lines out. [`Live`] keeps the state and writes escape sequences of ECMA-48
//! alone. The cursor is neither hidden nor is anything else of the terminal changed, so nothing has to be put back by
//! whoever kills the command.

use std::io::{self, Write};
use std::time::Duration;

use lfn_core::report::Side;
use lfn_core::tcp_info::TcpInfo;
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_core::wire::test::{Direction, Interval, Load, TestRequest};
use lfn_net::tester::{Progress, Test};

use crate::print::terminal;

/// What the lines show.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    /// Goodput of each interval so far.
    rates: Vec<BitRate>,
    /// By the receiver's clock.
    elapsed: Duration,
    bytes: u64,
    /// When it will be over, if that is known.
    ends: Option<Ends>,
    rtt: Duration,
    least_rtt: Option<Duration>,
    cwnd: Bytes,
    rwnd: Option<Bytes>,
    resent: u64,
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    After(Duration),
    At(Bytes),
}

/// Shares of the sender's time in the last interval: what it waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Limits {
    rwnd: f64,
    sndbuf: f64,
    cwnd: f64,
    application: f64,
}

/// What the terminal can show.
#[derive(Debug, Clone, Copy)]
struct Style {
    colours: bool,
    unicode: bool,
}

/// The lines of one running test, on a terminal.
pub struct Live {
    state: State,
    style: Style,
    direction: Direction,
    /// The sender's counters an interval before: busy, stopped by rwnd, by the send buffer, of each stream together.
    before: [Duration; 3],
    /// How wide each line on the screen is.
    drawn: Vec<usize>,
}

impl Live {
    /// For a test that is to begin, if standard output is a terminal that can show it.
    pub fn new(test: &Test) -> Option<Self> {
        if !terminal::can_redraw() {
            return None;
        }
        let style = Style { colours: terminal::colours(), unicode: terminal::unicode() };
        Some(Live {
            state: State { ends: ends(&test.request), ..State::default() },
            style,
            direction: test.request.direction,
            before: [Duration::ZERO; 3],
            drawn: Vec::new(),
        })
    }

    /// Takes the lines off the screen, and leaves the cursor where the first of them began.
    pub fn erase(&mut self) {
        if self.drawn.is_empty() {
            return;
        }
        // A terminal that was made narrower has broken them.
        let columns = terminal::size().0.max(1);
        let up = self.drawn.drain(..).map(|width| width.div_ceil(columns).max(1)).sum::<usize>() - 1;
        let up = if up > 0 { format!("\x1b[{up}A") } else { String::new() };
        put(&format!("\r{up}\x1b[J"));
    }

    /// Draws them anew, where there is room.
    pub fn draw(&mut self) {
        let (columns, rows) = terminal::size();
        let lines = lines(&self.state, columns.saturating_sub(1), rows, self.style);
        self.drawn = lines.iter().map(|line| visible(line)).collect();
        put(&lines.join("\n"));
    }

    /// Takes in what happened.
    pub fn progress(&mut self, progress: &Progress<'_>) {
        let (sender, receiver) = Side::of(self.direction);
        let (side, interval) = match progress {
            Progress::Near(interval) => (Side::Near, interval),
            Progress::Far(interval) => (Side::Far, interval),
            _ => return,
        };
        if side == receiver {
            self.received(interval);
        }
        if side == sender {
            self.sent(interval);
        }
    }

    fn received(&mut self, interval: &Interval) {
        let state = &mut self.state;
        state.rates.push(Bytes(interval.bytes).per(interval.end.saturating_sub(interval.start)));
        state.elapsed = interval.end;
        state.bytes += interval.bytes;
    }

    fn sent(&mut self, interval: &Interval) {
        let infos: Vec<&TcpInfo> = interval.streams.iter().filter_map(|stream| stream.tcp_info.as_ref()).collect();
        let Ok(count) = u32::try_from(infos.len()) else { return };
        if count == 0 {
            return;
        }
        let state = &mut self.state;
        state.rtt = infos.iter().map(|info| info.rtt).sum::<Duration>() / count;
        state.least_rtt = infos.iter().filter_map(|info| info.min_rtt).min();
        state.cwnd = Bytes(infos.iter().map(|info| info.cwnd().0).sum());
        state.rwnd = infos.iter().map(|info| info.snd_wnd_bytes.map(u64::from)).sum::<Option<u64>>().map(Bytes);
        state.resent = infos.iter().map(|info| u64::from(info.retransmitted_segments)).sum();
        let sum = |figure: fn(&TcpInfo) -> Option<Duration>| infos.iter().filter_map(|info| figure(info)).sum();
        let now: [Duration; 3] =
            [sum(|info| info.busy), sum(|info| info.rwnd_limited), sum(|info| info.sndbuf_limited)];
        let [busy, rwnd, sndbuf] =
            [0, 1, 2].map(|i| now[i].saturating_sub(std::mem::replace(&mut self.before[i], now[i])));
        state.limits = Limits::of(interval.end.saturating_sub(interval.start) * count, busy, rwnd, sndbuf);
    }
}

impl Limits {
    /// The congestion window stops what nothing else does; a sender with nothing to send waits for its application.
    fn of(whole: Duration, busy: Duration, rwnd: Duration, sndbuf: Duration) -> Limits {
        let whole = whole.max(busy).as_secs_f64().max(f64::MIN_POSITIVE);
        let share = |time: Duration| time.as_secs_f64() / whole;
        let (busy, rwnd, sndbuf) = (share(busy), share(rwnd), share(sndbuf));
        Limits { rwnd, sndbuf, cwnd: (busy - rwnd - sndbuf).max(0.0), application: (1.0 - busy).max(0.0) }
    }
}

fn ends(request: &TestRequest) -> Option<Ends> {
    match request.load {
        Load::TimeSeconds(time) => Some(Ends::After(time)),
        Load::Records(count) => Some(Ends::At(Bytes(count.saturating_mul(request.record.0)))),
        Load::Bytes(bytes) => Some(Ends::At(bytes)),
    }
}

fn put(text: &str) {
    let mut out = io::stdout().lock();
    // A terminal that is gone shows nothing: the table's own lines tell of it.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Columns of the labels.
const LABEL: usize = 8;

/// The lines for a terminal with so many columns to use and so many rows; the less room, the fewer.
fn lines(state: &State, columns: usize, rows: usize, style: Style) -> Vec<String> {
    let Some(rate) = state.rates.last() else { return Vec::new() };
    let label = |name: &str| format!("{name:<LABEL$}");
    let room = columns.saturating_sub(LABEL);
    let rate = format!(" {rate}");
    let curve = sparkline(&state.rates, room.saturating_sub(rate.chars().count()), style);
    let mut all = vec![
        format!("{}{curve}{rate}", label("rate")),
        label("time") + &fitting(&[left(state), short_left(state)], room),
    ];
    // Datagrams have neither.
    if !state.rtt.is_zero() {
        all.push(label("limits") + &band(&state.limits, room, style));
        all.push(label("RTT") + &fitting(&round_trips(state), room));
    }
    // Two rows are the table's.
    all.truncate(rows.saturating_sub(2));
    // Cut at the edge, where even the shortest words are too long.
    all.into_iter().map(|line| cut(&line, columns)).collect()
}

/// The last intervals, each as high as its goodput, over the greatest of those shown.
fn sparkline(rates: &[BitRate], width: usize, style: Style) -> String {
    let steps: &[char] = if style.unicode {
        &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
    } else {
        &['_', '.', ',', '-', '=', '+', '*', '#']
    };
    let shown = &rates[rates.len().saturating_sub(width.min(60))..];
    let most = shown.iter().map(|rate| rate.0).max().unwrap_or(0).max(1);
    let step = |rate: &BitRate| (u128::from(rate.0) * 7).div_ceil(u128::from(most)) as usize;
    shown.iter().map(|rate| steps[step(rate).min(7)]).collect()
}

/// What the sender waited for, as parts of a line: r(eceive window), s(end buffer), c(ongestion window), a(pplication).
fn band(limits: &Limits, room: usize, style: Style) -> String {
    // Background colours of ECMA-48 that tell these four apart for most who see red and green alike.
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
        match style.colours && !cells.is_empty() {
            true => bar += &format!("\x1b[{colour}m{cells}\x1b[0m"),
            false => bar += &cells,
        }
        at = until;
    }
    bar + &words
}

fn left(state: &State) -> String {
    let so_far = format!("{} after {}", state_bytes(state), seconds(state.elapsed));
    match state.remaining() {
        Some(left) => format!("{so_far}, {} left", seconds(left)),
        None => so_far,
    }
}

fn short_left(state: &State) -> String {
    match state.remaining() {
        Some(left) => format!("{}, {} left", seconds(state.elapsed), seconds(left)),
        None => seconds(state.elapsed),
    }
}

impl State {
    /// Of a counted test: at the mean rate so far.
    fn remaining(&self) -> Option<Duration> {
        match self.ends? {
            Ends::After(time) => Some(time.saturating_sub(self.elapsed)),
            Ends::At(bytes) => {
                let left = bytes.0.saturating_sub(self.bytes) as f64;
                let rate = self.bytes as f64 / self.elapsed.as_secs_f64();
                Duration::try_from_secs_f64(left / rate).ok()
            }
        }
    }
}

fn state_bytes(state: &State) -> String {
    Bytes(state.bytes | 1).to_string()
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..=99 => format!("{}.{} s", s, time.subsec_millis() / 100),
        s if s < 6000 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

fn round_trips(state: &State) -> [String; 3] {
    let now = show_duration(state.rtt);
    let least = state.least_rtt.map(|least| format!(" (least {})", show_duration(least))).unwrap_or_default();
    let rwnd = state.rwnd.map(|rwnd| format!(", rwnd {}", Bytes(rwnd.0 | 1))).unwrap_or_default();
    let cwnd = Bytes(state.cwnd.0 | 1);
    [
        format!("{now}{least}, cwnd {cwnd}{rwnd}, {} resent", state.resent),
        format!("{now}{least}, {} resent", state.resent),
        format!("{now}, {} resent", state.resent),
    ]
}

/// The first that fits, else the last.
fn fitting(texts: &[String], room: usize) -> String {
    texts.iter().find(|text| text.chars().count() <= room).or(texts.last()).cloned().unwrap_or_default()
}

/// What a reader sees of a line: escape sequences have no width.
fn visible(line: &str) -> usize {
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

/// No more than so many columns; colours end where the line does.
fn cut(line: &str, columns: usize) -> String {
    if visible(line) <= columns {
        return line.to_owned();
    }
    let plain: String =
        line.split('\x1b').enumerate().map(|(i, part)| if i == 0 { part } else { after(part) }).collect();
    plain.chars().take(columns).collect()
}

/// What follows an escape sequence.
fn after(part: &str) -> &str {
    part.split_once('m').map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { colours: false, unicode: false };

    fn state() -> State {
        let rates = [10, 40, 80, 120, 128, 129, 129, 64].map(|rate| BitRate(rate * 1_000_000)).to_vec();
        State {
            rates,
            elapsed: Duration::from_millis(8600),
            bytes: 95_000_001,
            ends: Some(Ends::After(Duration::from_secs(30))),
            rtt: Duration::from_millis(541),
            least_rtt: Some(Duration::from_millis(539)),
            cwnd: Bytes(9_129_375),
            rwnd: Some(Bytes(4_547_841)),
            resent: 3,
            limits: Limits { rwnd: 0.75, sndbuf: 0.0, cwnd: 0.2, application: 0.05 },
        }
    }

    #[test]
    fn frames_are_these_to_the_letter() {
        let frame = lines(&state(), 79, 24, PLAIN);
        let wide = [
            "rate    .-+####= 64 Mb/s",
            "time    95 MB after 8.6 s, 21.4 s left",
            "limits  rrrrrrrrrrrrrrrrrrrrrrrrrccccccaa rwnd 75 %, cwnd 20 %, application 5 %",
            "RTT     541 ms (least 539 ms), cwnd 9.129 MB, rwnd 4.548 MB, 3 resent",
        ];
        assert_eq!(frame, wide);
    }

    #[test]
    fn a_narrow_terminal_has_shorter_words() {
        let frame = lines(&state(), 39, 10, PLAIN);
        assert_eq!(
            frame,
            [
                "rate    .-+####= 64 Mb/s",
                "time    95 MB after 8.6 s, 21.4 s left",
                "limits  rwnd 75 % cwnd 20 % app 5 %",
                "RTT     541 ms (least 539 ms), 3 resent"
            ]
        );
        assert_eq!(lines(&state(), 39, 4, PLAIN).len(), 2, "two rows are the table's");
    }

    #[test]
    fn every_size_of_terminal_holds_them() {
        for columns in 0..200 {
            for rows in [0, 2, 3, 10, 50] {
                for style in [PLAIN, Style { colours: true, unicode: true }] {
                    let frame = lines(&state(), columns, rows, style);
                    assert!(frame.len() + 2 <= rows.max(2), "{rows}");
                    assert!(frame.iter().all(|line| visible(line) <= columns), "{columns}: {frame:?}");
                }
            }
        }
        assert!(lines(&State::default(), 80, 24, PLAIN).is_empty(), "nothing to tell yet");
    }

    #[test]
    fn colours_are_only_where_they_are_wanted() {
        let coloured = lines(&state(), 79, 24, Style { colours: true, unicode: true });
        assert!(coloured[2].contains("\x1b[41mr") && coloured[2].contains("\x1b[0m"));
        assert!(!lines(&state(), 79, 24, PLAIN).concat().contains('\x1b'));
        assert!(coloured[0].contains('█'));
    }

    #[test]
    fn limits_are_shares_of_the_time() {
        let seconds = Duration::from_secs;
        let limits = Limits::of(seconds(10), seconds(8), seconds(4), seconds(1));
        assert!((limits.rwnd - 0.4).abs() < 1e-9 && (limits.cwnd - 0.3).abs() < 1e-9);
        assert!((limits.application - 0.2).abs() < 1e-9);
        let none = Limits::of(Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        assert!([none.rwnd, none.cwnd, none.application].iter().all(|share| share.is_finite()));
    }
}
