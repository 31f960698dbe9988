//! Table of a running test. A row needs both ends: the goodput is from the receiver; windows and round trips are from
//! the end of the sender's interval that contains the middle of the receiver's interval, if the two clocks were
//! compared. Otherwise row n joins interval n of both ends.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::{Bytes, show_duration};
use lfn_measure::tester::{Test, TestProgress};
use lfn_results::evidence::{HostNames, Side};
use lfn_results::measure::{Interval, TestDirection, TestLoad};
use lfn_results::report::{Run, UnfinishedTest};

use super::layout::{Grid, bytes_cell, rate_cell, time_cell, wrapped};
use super::summary::summary;
use crate::print;
use crate::print::terminal::columns;

/// Columns: time, goodput, retransmitted segments, cwnd, rwnd, RTT.
const GRID: Grid<6> = Grid { wide: [15, 12, 7, 10, 10, 10], min: [12, 10, 6, 8, 8, 8], dropped: &[4, 3, 2, 5] };

/// Position of a table among the tables of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TablePosition {
    /// The first table of the command.
    #[default]
    First,
    /// Below the summary of another test.
    Later,
    /// Its rows are among those of another table, under the head of that table.
    Interleaved,
}

/// Table of one test.
#[derive(Default)]
pub struct Table {
    direction: Option<TestDirection>,
    near_name: String,
    far_name: String,
    place: TablePosition,
    intro: String,
    path: Option<PathProfile>,
    /// Heading of the summary if two tests ran at once, because the rows above belong to both.
    heading: String,
    near: VecDeque<Interval>,
    far: VecDeque<Interval>,
    resent: u64,
    /// True after the first row.
    lines: bool,
    /// Direction after each row, if two tests run at once.
    mark: &'static str,
    failed: Option<io::Error>,
    /// True for a test of datagrams.
    datagrams: bool,
}

impl Table {
    /// Creates the table of a test that starts.
    pub fn new(test: &Test, hosts: &HostNames, place: TablePosition, at_once: bool) -> Self {
        let request = &test.request;
        let (sender, receiver) = Side::sender_and_receiver(request.direction);
        let (from, to) = (hosts.name(sender), hosts.name(receiver));
        let lockstep = if request.lockstep { " in lock-step" } else { "" };
        let load = match request.load {
            _ if request.udp.is_some() => super::udp::load(request),
            TestLoad::TimeSeconds(time) => {
                format!("{} of records of {}{lockstep}", show_duration(time), request.record)
            }
            TestLoad::Records(count) => format!("{count} records of {}{lockstep}", request.record),
            TestLoad::Bytes(bytes) => format!("{bytes} in records of {}{lockstep}", request.record),
        };
        let streams = if request.streams == 1 { "1 stream".into() } else { format!("{} streams", request.streams) };
        let (ways, each) = if at_once {
            (format!("{from} to {to} and {to} to {from} at once"), " each way")
        } else {
            (format!("{from} to {to}"), "")
        };
        let mark = match (at_once, request.direction) {
            (false, _) => "",
            (true, TestDirection::Forward) => " forward",
            (true, TestDirection::Reverse) => " reverse",
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

    /// Prints the rows among those of another table, under its head.
    pub fn interleave(&mut self) {
        self.place = TablePosition::Interleaved;
    }

    /// Prints the complete rows. An output error is kept for [`Table::finish`], because the test goes on.
    pub fn progress(&mut self, progress: &TestProgress<'_>) {
        let printed = match progress {
            TestProgress::Connected(rtt, _) => self.head(*rtt),
            TestProgress::Near(interval) => {
                self.near.push_back((*interval).clone());
                self.rows(false)
            }
            TestProgress::Far(interval) => {
                self.far.push_back((*interval).clone());
                self.rows(false)
            }
            // All steps arrive together at the end.
            TestProgress::Step(_) => Ok(()),
        };
        if let Err(error) = printed {
            self.failed.get_or_insert(error);
        }
    }

    /// Prints the figures of a failed test: the remaining rows, and the goodput until the failure.
    pub fn finish_unfinished(&mut self, seen: &UnfinishedTest) -> io::Result<()> {
        self.rows(true)?;
        let received = match self.direction {
            Some(TestDirection::Forward) => &seen.far_intervals,
            _ => &seen.near_intervals,
        };
        let mut out = print::out();
        if let Some(last) = received.last() {
            let bytes = Bytes(received.iter().map(|interval| interval.bytes).sum());
            let text = format!("{} over {} until the failure", bytes.per(last.end), show_duration(last.end));
            write!(out, "\n{}{}", self.heading, wrapped("goodput", &text))?;
        }
        if let Some(ramp) = &seen.ramp {
            write!(out, "{}", super::udp::ramp_lines(ramp, None, columns()))?;
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
        if !self.lines && run.evidence.iperf3.is_some() {
            // An iperf3 server that receives datagrams has no intervals.
            writeln!(print::out(), "{receiver} does not report its intervals")?;
        }
        print::result(&format!("\n{}{}", self.heading, summary(run, sender, receiver)))
    }

    /// Returns the names of sender and receiver.
    fn names(&self) -> (&str, &str) {
        match self.direction {
            Some(TestDirection::Reverse) => (&self.far_name, &self.near_name),
            _ => (&self.near_name, &self.far_name),
        }
    }

    fn head(&mut self, rtt: Duration) -> io::Result<()> {
        let path = match self.path.map(|path| PathProfile { base_rtt: rtt, ..path }) {
            Some(path) => {
                format!("RTT {}, capacity {}, BDP {}", show_duration(rtt), path.capacity, path.bdp().decimal())
            }
            None => format!(
                "RTT {}, capacity unknown (set it with --rate); BDP is computed after the test",
                show_duration(rtt)
            ),
        };
        let mut path = wrapped("path", &path);
        if !self.heading.is_empty() {
            // The two directions may have different capacities.
            self.heading += &std::mem::take(&mut path);
        }
        if self.place == TablePosition::Interleaved {
            return Ok(());
        }
        let gap = if self.place == TablePosition::Later { "\n" } else { "" };
        let mut out = print::out();
        writeln!(out, "{gap}{}{path}", self.intro)?;
        let head = if self.datagrams {
            super::udp::head(self.columns())
        } else {
            GRID.line(["seconds", "goodput", "resent", "cwnd", "rwnd", "RTT"], self.columns())
        };
        write!(out, "{head}")?;
        out.flush()
    }

    /// Returns the width of a row without its direction.
    fn columns(&self) -> usize {
        columns().saturating_sub(self.mark.len())
    }

    fn next_line(&mut self, is_over: bool) -> Option<(Interval, Interval)> {
        match self.direction {
            Some(TestDirection::Forward) => next_pair(&mut self.near, &mut self.far, is_over),
            _ => next_pair(&mut self.far, &mut self.near, is_over),
        }
    }

    /// Prints the rows that have figures of both ends.
    fn rows(&mut self, is_over: bool) -> io::Result<()> {
        while let Some((sent, received)) = self.next_line(is_over) {
            let resent = kernel_samples(&sent).map(|info| u64::from(info.retransmitted_segments)).sum();
            let line = if self.datagrams {
                super::udp::row(&received, self.columns())
            } else {
                row(&sent, &received, resent - self.resent.min(resent), self.columns())
            };
            let line = with_mark(&line, self.mark);
            self.resent = resent;
            self.lines = true;
            let mut out = print::out();
            out.write_all(line.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }
}

/// Returns the receiver's next interval and the sender's interval of the same time. `over` is true if no more intervals
/// come.
fn next_pair(
    sent: &mut VecDeque<Interval>,
    received: &mut VecDeque<Interval>,
    is_over: bool,
) -> Option<(Interval, Interval)> {
    let first = received.front()?;
    let compared = first.near_start.is_some() || sent.front()?.near_start.is_some();
    if !compared {
        return sent.pop_front().zip(received.pop_front());
    }
    let middle = first.middle();
    while sent.get(1).is_some_and(|next| next.placed().0 <= middle) {
        sent.pop_front();
    }
    // The sender's interval stays, because it may also cover the next row.
    let aligned = sent.front().filter(|aligned| is_over || aligned.placed().1 > middle)?.clone();
    Some((aligned, received.pop_front()?))
}

fn row(sent: &Interval, received: &Interval, resent: u64, columns: usize) -> String {
    let time = received.end.saturating_sub(received.start);
    if kernel_samples(sent).next().is_none() {
        // An end without figures of its kernel.
        let seconds = format!("{:.1}-{:.1}", received.start.as_secs_f64(), received.end.as_secs_f64());
        let goodput = rate_cell(Bytes(received.bytes).per(time));
        return GRID.line([&seconds, &goodput, "-", "-", "-", "-"], columns);
    }
    let cwnd: u64 = kernel_samples(sent).map(|info| info.cwnd().0).sum();
    let rwnd: Option<u64> = kernel_samples(sent).map(|info| info.snd_wnd_bytes.map(u64::from)).sum();
    let rtts: Duration = kernel_samples(sent).map(|info| info.rtt).sum();
    let rtt = rtts / u32::try_from(kernel_samples(sent).count()).unwrap_or(1).max(1);
    let cells = [
        format!("{:.1}-{:.1}", received.start.as_secs_f64(), received.end.as_secs_f64()),
        rate_cell(Bytes(received.bytes).per(time)),
        resent.to_string(),
        bytes_cell(Bytes(cwnd)),
        rwnd.map_or("-".into(), |rwnd| bytes_cell(Bytes(rwnd))),
        time_cell(rtt),
    ];
    GRID.line(cells.each_ref().map(String::as_str), columns)
}

/// Returns a row with the direction of its test.
fn with_mark(line: &str, mark: &str) -> String {
    format!("{}{mark}\n", line.trim_end())
}

/// Returns the sample of each stream's kernel at the sender.
fn kernel_samples(interval: &Interval) -> impl Iterator<Item = &TcpInfo> {
    interval.streams.iter().filter_map(|stream| stream.tcp_info.as_ref())
}

#[cfg(test)]
mod tests {
    use lfn_results::measure::StreamSample;

    use super::*;

    /// Intervals of one second on their own clock, which starts at `later` on the near clock.
    fn intervals(count: u64, later: Option<Duration>) -> VecDeque<Interval> {
        let interval = |n| {
            let (start, end) = (Duration::from_secs(n), Duration::from_secs(n + 1));
            let near = |time| later.map(|later| time + later);
            Interval { start, end, near_start: near(start), near_end: near(end), bytes: n, ..Interval::default() }
        };
        (0..count).map(interval).collect()
    }

    /// Returns the number of the sender's interval for each interval of the receiver.
    fn aligned(mut sent: VecDeque<Interval>, mut received: VecDeque<Interval>, is_over: bool) -> Vec<u64> {
        std::iter::from_fn(|| next_pair(&mut sent, &mut received, is_over)).map(|(sent, _)| sent.bytes).collect()
    }

    #[test]
    fn intervals_are_aligned_by_the_clock() {
        let later = |seconds: f64| intervals(4, Some(Duration::from_secs_f64(seconds)));
        // With a delay of 0.3 s, most of an interval is at the same time as the other end's.
        assert_eq!(aligned(intervals(5, None), later(0.3), false), [0, 1, 2, 3]);
        // With 1.7 s, the receiver's first interval is at the same time as the sender's third.
        assert_eq!(aligned(intervals(6, None), later(1.7), false), [2, 3, 4, 5]);
        // In the reverse direction, the sender's intervals are the far ones.
        assert_eq!(aligned(later(0.3), intervals(3, None), false), [0, 1, 2]);
        // Without compared clocks, intervals are aligned by number.
        assert_eq!(aligned(intervals(3, None), intervals(4, None), false), [0, 1, 2]);
    }

    #[test]
    fn rows_fit_the_terminal_with_their_direction() {
        let info =
            TcpInfo { snd_wnd_bytes: Some(4_500_000), rtt: Duration::from_micros(541_200), ..TcpInfo::default() };
        let streams = vec![StreamSample { tcp_info: Some(info), ..StreamSample::default() }];
        let sent = Interval { streams, ..Interval::default() };
        let (start, end) = (Duration::from_secs(99), Duration::from_secs(100));
        let received = Interval { start, end, bytes: 118_662_500, ..Interval::default() };
        for (columns, cells) in [(120, 6), (80, 6), (60, 6), (48, 5), (40, 4), (31, 2)] {
            for mark in ["", " reverse"] {
                let line = with_mark(&row(&sent, &received, 123_456, columns - mark.len()), mark);
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
    fn a_row_waits_for_the_sender_until_the_end() {
        let received = intervals(4, Some(Duration::from_millis(1700)));
        assert_eq!(aligned(intervals(4, None), received.clone(), false), [2, 3]);
        assert_eq!(aligned(intervals(4, None), received.clone(), true), [2, 3, 3, 3]);
        assert_eq!(aligned(VecDeque::new(), received, true), [] as [u64; 0], "no interval of the sender");
        // A missed interval makes the next one longer, and the other rows stay aligned.
        let mut sent = intervals(4, None);
        sent.remove(1);
        sent[1].start = Duration::from_secs(1);
        assert_eq!(aligned(sent, intervals(4, Some(Duration::from_millis(100))), true), [0, 2, 2, 3]);
    }
}
