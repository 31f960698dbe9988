//! The table of a test as it grows. A line needs both ends: goodput is the receiver's, the windows and round trips are
//! the sender's, at the end of its interval in which the middle of the receiver's lies, where the two clocks were
//! compared. Where they were not, the n-th of one is beside the n-th of the other.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use lfn_core::path::PathProfile;
use lfn_core::report::{Hosts, Side, Unfinished};
use lfn_core::tcp_info::TcpInfo;
use lfn_core::units::{Bytes, show_duration};
use lfn_core::wire::test::{Direction, Interval, Load};
use lfn_net::tester::{Progress, Test};

use super::layout::{Grid, wrapped};
use super::summary::summary;
use crate::print;
use crate::print::terminal::columns;
use crate::print::test::Run;

/// Time, goodput, segments sent again, cwnd, rwnd, RTT.
const GRID: Grid<6> = Grid { wide: [15, 12, 7, 10, 10, 10], least: [12, 10, 6, 8, 8, 8], spared: &[4, 3, 2, 5] };

/// Where a table stands among those of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Nothing is above it.
    #[default]
    First,
    /// Under the summary of another.
    Later,
    /// Its lines are between those of another, under the head of that.
    Beside,
}

/// The table of one test as it grows.
#[derive(Default)]
pub struct Table {
    direction: Option<Direction>,
    near_name: String,
    far_name: String,
    place: Place,
    intro: String,
    path: Option<PathProfile>,
    /// Over the summary of one of two at once, for the lines above it are of both.
    heading: String,
    near: VecDeque<Interval>,
    far: VecDeque<Interval>,
    resent: u64,
    /// Lines were printed.
    lines: bool,
    /// Behind each line of a test that is not alone.
    mark: &'static str,
    failed: Option<io::Error>,
    /// Its streams are datagrams.
    datagrams: bool,
}

impl Table {
    /// For a test that is to begin.
    pub fn new(test: &Test, hosts: &Hosts, place: Place, at_once: bool) -> Self {
        let request = &test.request;
        let (sender, receiver) = Side::of(request.direction);
        let (from, to) = (hosts.name(sender), hosts.name(receiver));
        let load = match request.load {
            _ if request.udp.is_some() => super::udp::load(request),
            Load::TimeSeconds(time) => format!("{} of records of {}", show_duration(time), request.record),
            Load::Records(count) => format!("{count} records of {}", request.record),
            Load::Bytes(bytes) => format!("{bytes} in records of {}", request.record),
        };
        let streams = if request.streams == 1 { "1 stream".into() } else { format!("{} streams", request.streams) };
        let (ways, each) = match at_once {
            true => (format!("{from} to {to} and {to} to {from} at once"), " each way"),
            false => (format!("{from} to {to}"), ""),
        };
        let mark = match (at_once, request.direction) {
            (false, _) => "",
            (true, Direction::Forward) => " forward",
            (true, Direction::Reverse) => " reverse",
        };
        Table {
            direction: Some(request.direction),
            near_name: hosts.near.clone(),
            far_name: hosts.far.clone(),
            place,
            intro: wrapped("test", &format!("{ways}: {load}, {streams}{each}")),
            path: test.path,
            heading: if at_once { format!("{}: {from} to {to}\n", mark.trim_start()) } else { String::new() },
            datagrams: request.udp.is_some(),
            mark,
            ..Table::default()
        }
    }

    /// Another's head stands above, and its lines will be among these.
    pub fn stand_beside(&mut self) {
        self.place = Place::Beside;
    }

    /// Prints what can be printed by now. An error of the output waits for [`Table::finish`]: the test goes on.
    pub fn progress(&mut self, progress: &Progress<'_>) {
        let printed = match progress {
            Progress::Connected(rtt, _) => self.head(*rtt),
            Progress::Near(interval) => {
                self.near.push_back((*interval).clone());
                self.rows(false)
            }
            Progress::Far(interval) => {
                self.far.push_back((*interval).clone());
                self.rows(false)
            }
            // All steps come together, at the end.
            Progress::Step(_) => Ok(()),
        };
        if let Err(error) = printed {
            self.failed.get_or_insert(error);
        }
    }

    /// Prints what there is of a test that failed midway: the lines that waited, and what had been received by then.
    pub fn cut_off(&mut self, seen: &Unfinished) -> io::Result<()> {
        self.rows(true)?;
        let received = match self.direction {
            Some(Direction::Forward) => &seen.far_intervals,
            _ => &seen.near_intervals,
        };
        let mut out = print::out();
        if let Some(last) = received.last() {
            let bytes = Bytes(received.iter().map(|interval| interval.bytes).sum());
            let text = format!("{} over the {} until it broke off", bytes.per(last.end), show_duration(last.end));
            write!(out, "\n{}{}", self.heading, wrapped("goodput", &text))?;
        }
        if let Some(ramp) = &seen.ramp {
            write!(out, "{}", super::udp::ramp_lines(ramp, false, columns()))?;
        }
        out.flush()
    }

    /// Prints the summary and the findings.
    pub fn finish(&mut self, run: &Run) -> io::Result<()> {
        if let Err(error) = self.rows(true) {
            self.failed.get_or_insert(error);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (sender, receiver) = self.names();
        if !self.lines && run.iperf3.is_some() {
            // That is so of one that receives datagrams.
            writeln!(print::out(), "{receiver} does not tell what arrived in which interval")?;
        }
        write!(print::out(), "\n{}{}", self.heading, summary(run, sender, receiver))
    }

    /// Sender and receiver.
    fn names(&self) -> (&str, &str) {
        match self.direction {
            Some(Direction::Reverse) => (&self.far_name, &self.near_name),
            _ => (&self.near_name, &self.far_name),
        }
    }

    fn head(&mut self, rtt: Duration) -> io::Result<()> {
        let path = match self.path.map(|path| PathProfile { base_rtt: rtt, ..path }) {
            Some(path) => {
                format!("RTT {}, capacity {}, BDP {}", show_duration(rtt), path.capacity, path.bdp().decimal())
            }
            None => format!("RTT {}, capacity not known (--rate tells it): BDP after the run", show_duration(rtt)),
        };
        let mut path = wrapped("path", &path);
        if !self.heading.is_empty() {
            // The two directions need not have the same capacity.
            self.heading += &std::mem::take(&mut path);
        }
        if self.place == Place::Beside {
            return Ok(());
        }
        let gap = if self.place == Place::Later { "\n" } else { "" };
        let mut out = print::out();
        writeln!(out, "{gap}{}{path}", self.intro)?;
        let head = match self.datagrams {
            true => super::udp::head(self.columns()),
            false => GRID.line(["seconds", "goodput", "resent", "cwnd", "rwnd", "RTT"], self.columns()),
        };
        write!(out, "{head}")?;
        out.flush()
    }

    /// What a line may take, beside what marks it.
    fn columns(&self) -> usize {
        columns().saturating_sub(self.mark.len())
    }

    fn next_line(&mut self, over: bool) -> Option<(Interval, Interval)> {
        match self.direction {
            Some(Direction::Forward) => pair(&mut self.near, &mut self.far, over),
            _ => pair(&mut self.far, &mut self.near, over),
        }
    }

    /// The lines both ends have figures for.
    fn rows(&mut self, over: bool) -> io::Result<()> {
        while let Some((sent, got)) = self.next_line(over) {
            let resent = kernels(&sent).map(|info| u64::from(info.retransmitted_segments)).sum();
            let line = match self.datagrams {
                true => super::udp::row(&got, self.columns()),
                false => row(&sent, &got, resent - self.resent.min(resent), self.columns()),
            };
            let line = marked(&line, self.mark);
            self.resent = resent;
            self.lines = true;
            let mut out = print::out();
            out.write_all(line.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }
}

/// The receiver's next interval, and the sender's that lies beside it; `over` if no more of them come.
fn pair(sent: &mut VecDeque<Interval>, got: &mut VecDeque<Interval>, over: bool) -> Option<(Interval, Interval)> {
    let first = got.front()?;
    let compared = first.near_start.is_some() || sent.front()?.near_start.is_some();
    if !compared {
        return sent.pop_front().zip(got.pop_front());
    }
    let middle = first.middle();
    while sent.get(1).is_some_and(|next| next.placed().0 <= middle) {
        sent.pop_front();
    }
    // It stays: it may lie beside the next one too.
    let beside = sent.front().filter(|beside| over || beside.placed().1 > middle)?.clone();
    Some((beside, got.pop_front()?))
}

fn row(sent: &Interval, got: &Interval, resent: u64, columns: usize) -> String {
    let time = got.end.saturating_sub(got.start);
    if kernels(sent).next().is_none() {
        // An end that does not tell.
        let seconds = format!("{:.1}-{:.1}", got.start.as_secs_f64(), got.end.as_secs_f64());
        let goodput = Bytes(got.bytes).per(time).to_string();
        return GRID.line([&seconds, &goodput, "-", "-", "-", "-"], columns);
    }
    let cwnd: u64 = kernels(sent).map(|info| info.cwnd().0).sum();
    let rwnd: Option<u64> = kernels(sent).map(|info| info.snd_wnd_bytes.map(u64::from)).sum();
    let rtts: Duration = kernels(sent).map(|info| info.rtt).sum();
    let rtt = rtts / u32::try_from(kernels(sent).count()).unwrap_or(1).max(1);
    let cells = [
        format!("{:.1}-{:.1}", got.start.as_secs_f64(), got.end.as_secs_f64()),
        Bytes(got.bytes).per(time).to_string(),
        resent.to_string(),
        Bytes(cwnd).decimal(),
        rwnd.map_or("-".into(), |rwnd| Bytes(rwnd).decimal()),
        show_duration(rtt),
    ];
    GRID.line(cells.each_ref().map(String::as_str), columns)
}

/// A line of the table with what tells the directions of two tests at once apart.
fn marked(line: &str, mark: &str) -> String {
    format!("{}{mark}\n", line.trim_end())
}

/// What the sender's kernel said of each stream.
fn kernels(interval: &Interval) -> impl Iterator<Item = &TcpInfo> {
    interval.streams.iter().filter_map(|stream| stream.tcp_info.as_ref())
}

#[cfg(test)]
mod tests {
    use lfn_core::wire::test::StreamSample;

    use super::*;

    /// Of one second each, from zero on their own clock; on the near one later by so much.
    fn intervals(count: u64, later: Option<Duration>) -> VecDeque<Interval> {
        let interval = |n| {
            let (start, end) = (Duration::from_secs(n), Duration::from_secs(n + 1));
            let near = |time| later.map(|later| time + later);
            Interval { start, end, near_start: near(start), near_end: near(end), bytes: n, ..Interval::default() }
        };
        (0..count).map(interval).collect()
    }

    /// Which of the sender's stands beside each of the receiver's.
    fn beside(mut sent: VecDeque<Interval>, mut got: VecDeque<Interval>, over: bool) -> Vec<u64> {
        std::iter::from_fn(|| pair(&mut sent, &mut got, over)).map(|(sent, _)| sent.bytes).collect()
    }

    #[test]
    fn intervals_lie_beside_each_other_by_the_clock() {
        let later = |seconds: f64| intervals(4, Some(Duration::from_secs_f64(seconds)));
        // A way of 0.3 s leaves most of an interval beside its own.
        assert_eq!(beside(intervals(5, None), later(0.3), false), [0, 1, 2, 3]);
        // One of 1.7 s does not: what the receiver counted first was while the sender was two further.
        assert_eq!(beside(intervals(6, None), later(1.7), false), [2, 3, 4, 5]);
        // The other way round the sender's are the far ones.
        assert_eq!(beside(later(0.3), intervals(3, None), false), [0, 1, 2]);
        // Clocks that were not compared: by number.
        assert_eq!(beside(intervals(3, None), intervals(4, None), false), [0, 1, 2]);
    }

    #[test]
    fn lines_fit_the_terminal_with_what_marks_them() {
        let info =
            TcpInfo { snd_wnd_bytes: Some(4_500_000), rtt: Duration::from_micros(541_200), ..TcpInfo::default() };
        let streams = vec![StreamSample { tcp_info: Some(info), ..StreamSample::default() }];
        let sent = Interval { streams, ..Interval::default() };
        let (start, end) = (Duration::from_secs(99), Duration::from_secs(100));
        let got = Interval { start, end, bytes: 118_662_500, ..Interval::default() };
        for (columns, cells) in [(120, 6), (80, 6), (60, 6), (48, 5), (40, 4), (31, 2)] {
            for mark in ["", " reverse"] {
                let line = marked(&row(&sent, &got, 123_456, columns - mark.len()), mark);
                assert!(line.trim_end().chars().count() <= columns, "{columns}: {line}");
                assert!(
                    line.contains("99.0-100.0") && line.contains("949.3 Mb/s") && line.ends_with(&format!("{mark}\n"))
                );
                let shown = ["99.0", "949.3", "123456", " 0 B", "4.5 MB", "541.2"].map(|cell| line.contains(cell));
                let shown = shown.into_iter().filter(|&shown| shown).count();
                assert!(shown == cells || !mark.is_empty() && shown < cells, "{columns}: {shown} of {line}");
                if columns >= 40 {
                    assert!(line.contains("541.2 ms"), "{columns}: {line}");
                }
            }
        }
    }

    #[test]
    fn a_line_waits_for_the_sender_and_at_the_end_for_nobody() {
        let got = intervals(4, Some(Duration::from_millis(1700)));
        assert_eq!(beside(intervals(4, None), got.clone(), false), [2, 3]);
        assert_eq!(beside(intervals(4, None), got.clone(), true), [2, 3, 3, 3]);
        assert_eq!(beside(VecDeque::new(), got, true), [] as [u64; 0], "nothing came of the sender");
        // One that was missed makes the next one longer, and no line of the others slips.
        let mut sent = intervals(4, None);
        sent.remove(1);
        sent[1].start = Duration::from_secs(1);
        assert_eq!(beside(sent, intervals(4, Some(Duration::from_millis(100))), true), [0, 2, 2, 3]);
    }
}
