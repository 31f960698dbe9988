//! The table of a test as it grows. A line needs both ends: goodput is the receiver's, the windows and round trips are
//! the sender's.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use lfn_core::path::PathProfile;
use lfn_core::report::{Hosts, Side};
use lfn_core::tcp_info::TcpInfo;
use lfn_core::units::{Bytes, show_duration};
use lfn_core::wire::test::{Direction, Interval, Kernel, Load};
use lfn_net::tester::{Progress, Test};

use super::layout::{decimal, table_line, wrapped};
use super::summary::summary;
use crate::print::terminal::columns;
use crate::print::test::Run;

/// The table of one test as it grows.
#[derive(Default)]
pub struct Table {
    direction: Option<Direction>,
    near_name: String,
    far_name: String,
    intro: String,
    path: Option<PathProfile>,
    near: VecDeque<Interval>,
    far: VecDeque<Interval>,
    resent: u64,
    /// Behind each line of a test that is not alone.
    mark: &'static str,
    failed: Option<io::Error>,
    /// Its streams are datagrams.
    datagrams: bool,
}

impl Table {
    /// For a test that is to begin; `first` of one or two.
    pub fn new(test: &Test, hosts: &Hosts, first: bool, at_once: bool) -> Self {
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
        let gap = if first { "" } else { "\n" };
        Table {
            direction: Some(request.direction),
            near_name: hosts.near.clone(),
            far_name: hosts.far.clone(),
            intro: format!("{gap}{}", wrapped("test", &format!("{from} to {to}: {load}, {streams}"))),
            path: test.path,
            datagrams: request.udp.is_some(),
            mark: match (at_once, request.direction) {
                (false, _) => "",
                (true, Direction::Forward) => " forward",
                (true, Direction::Reverse) => " reverse",
            },
            ..Table::default()
        }
    }

    /// Prints what can be printed by now. An error of the output waits for [`Table::finish`]: the test goes on.
    pub fn progress(&mut self, progress: &Progress<'_>) {
        let printed = match progress {
            Progress::Connected(rtt, kernel) => self.head(*rtt, kernel),
            Progress::Near(interval) => {
                self.near.push_back((*interval).clone());
                self.rows()
            }
            Progress::Far(interval) => {
                self.far.push_back((*interval).clone());
                self.rows()
            }
        };
        if let Err(error) = printed {
            self.failed.get_or_insert(error);
        }
    }

    /// Prints the summary and the findings.
    pub fn finish(&mut self, run: &Run) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (sender, receiver) = self.names();
        io::stdout().lock().write_all(summary(run, sender, receiver).as_bytes())
    }

    /// Sender and receiver.
    fn names(&self) -> (&str, &str) {
        match self.direction {
            Some(Direction::Reverse) => (&self.far_name, &self.near_name),
            _ => (&self.near_name, &self.far_name),
        }
    }

    fn head(&self, rtt: Duration, _far: &Kernel) -> io::Result<()> {
        let path = match self.path.map(|path| PathProfile { base_rtt: rtt, ..path }) {
            Some(path) => {
                format!("RTT {}, capacity {}, BDP {}", show_duration(rtt), path.capacity, path.bdp())
            }
            None => format!("RTT {}, capacity not known (--rate tells it): BDP after the run", show_duration(rtt)),
        };
        let mut out = io::stdout().lock();
        writeln!(out, "{}{}", self.intro, wrapped("path", &path))?;
        if self.datagrams {
            write!(out, "{}", super::udp::head())?;
            return out.flush();
        }
        let heads = ["seconds", "goodput", "resent", "cwnd", "rwnd", "RTT"];
        write!(out, "{}", table_line(heads, columns()))?;
        out.flush()
    }

    /// The lines both ends have figures for.
    fn rows(&mut self) -> io::Result<()> {
        while let (Some(near), Some(far)) = (self.near.front(), self.far.front()) {
            let (sent, got) = if self.direction == Some(Direction::Forward) { (near, far) } else { (far, near) };
            let resent = kernels(sent).map(|info| u64::from(info.retransmitted_segments)).sum();
            let line = match self.datagrams {
                true => super::udp::row(sent, got),
                false => row(sent, got, resent - self.resent.min(resent), self.mark),
            };
            self.resent = resent;
            self.near.pop_front();
            self.far.pop_front();
            let mut out = io::stdout().lock();
            out.write_all(line.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }
}

fn row(sent: &Interval, got: &Interval, resent: u64, mark: &str) -> String {
    let time = got.end.saturating_sub(got.start);
    if kernels(sent).next().is_none() {
        // An end that does not tell.
        let seconds = format!("{:.1}-{:.1}", got.start.as_secs_f64(), got.end.as_secs_f64());
        let goodput = Bytes(got.bytes).per(time).to_string();
        return marked(&table_line([&seconds, &goodput, "-", "-", "-", "-"], columns()), mark);
    }
    let cwnd: u64 = kernels(sent).map(|info| info.cwnd().0).sum();
    let rwnd: Option<u64> = kernels(sent).map(|info| info.snd_wnd_bytes.map(u64::from)).sum();
    let rtts: Duration = kernels(sent).map(|info| info.rtt).sum();
    let rtt = rtts / u32::try_from(kernels(sent).count()).unwrap_or(1).max(1);
    let cells = [
        format!("{:.1}-{:.1}", got.start.as_secs_f64(), got.end.as_secs_f64()),
        Bytes(got.bytes).per(time).to_string(),
        resent.to_string(),
        decimal(cwnd),
        rwnd.map_or("-".into(), decimal),
        show_duration(rtt),
    ];
    marked(&table_line(cells.each_ref().map(String::as_str), columns()), mark)
}

/// A line of the table with what tells the directions of two tests at once apart.
fn marked(line: &str, mark: &str) -> String {
    format!("{}{mark}\n", line.trim_end())
}

/// What the sender's kernel said of each stream.
fn kernels(interval: &Interval) -> impl Iterator<Item = &TcpInfo> {
    interval.streams.iter().filter_map(|stream| stream.tcp_info.as_ref())
}
