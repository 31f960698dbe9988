//! Live figures of a run: throughput, queue and drops of each direction, at a fixed interval.
//!
//! A thread asks the forwarders for a snapshot and computes the differences to the previous one. The caller formats and
//! shows the figures. This module writes to no terminal.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes};
use lfn_link::LinkStats;
use lfn_session::clock::now;

use crate::data_path::ControlChannel;
use crate::error::{EmulateError, system_error};

/// Function that shows figures.
pub type ShowFigures = dyn Fn(Option<&LiveFigures>) + Send + Sync;

/// Options of the live display.
#[derive(Clone)]
pub struct LiveOptions {
    pub interval: Duration,
    /// Shows the figures. The last call, at the end of the run, passes `None`.
    pub show: Arc<ShowFigures>,
}

/// Figures of a run at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveFigures {
    /// Since the first packets could arrive.
    pub elapsed: Duration,
    /// Near to far, and far to near, of every path.
    pub paths: Vec<[LiveDirection; 2]>,
}

/// Figures of a direction at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveDirection {
    /// Throughput since the previous figures.
    pub rate: BitRate,
    /// Bytes in the queues of all hops.
    pub queued: Bytes,
    /// Time to send these queues at the rate of the slowest hop.
    pub wait: Duration,
    /// Dropped by the link since the previous figures.
    pub newly_dropped: u64,
    /// Dropped by the link so far.
    pub dropped: u64,
    /// Packets lost outside the model so far. Some losses are known only after the run.
    pub unmodelled: u64,
}

/// Thread that shows figures until this value is dropped.
pub(super) struct LiveThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LiveThread {
    pub(super) fn start(live: LiveOptions, paths: Vec<[ControlChannel; 2]>) -> Result<LiveThread, EmulateError> {
        let (stop, stopped) = mpsc::channel();
        let show = move || {
            let began = Instant::now();
            let mut before: Vec<[Baseline; 2]> = paths.iter().map(|_| [Baseline::new(began); 2]).collect();
            while stopped.recv_timeout(live.interval) == Err(RecvTimeoutError::Timeout) {
                let Ok(figures) = read_figures(&paths, &mut before) else { break };
                (live.show)(Some(&LiveFigures { elapsed: began.elapsed(), paths: figures }));
            }
            (live.show)(None);
        };
        let thread = thread::Builder::new()
            .name("live".to_owned())
            .spawn(show)
            .map_err(system_error("start the live display"))?;
        Ok(LiveThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for LiveThread {
    fn drop(&mut self) {
        self.stop = None;
        // A panic of the thread has already been reported on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for LiveOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveOptions").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// Counters of one direction at the previous snapshot.
#[derive(Clone, Copy)]
struct Baseline {
    at: Instant,
    forwarded: Bytes,
    dropped: u64,
}

impl Baseline {
    fn new(at: Instant) -> Self {
        Baseline { at, forwarded: Bytes(0), dropped: 0 }
    }
}

fn read_figures(
    paths: &[[ControlChannel; 2]],
    before: &mut [[Baseline; 2]],
) -> Result<Vec<[LiveDirection; 2]>, EmulateError> {
    let pairs = paths.iter().zip(before);
    let figures = pairs.map(|([forth, back], [before_forth, before_back])| {
        Ok([direction(forth, before_forth)?, direction(back, before_back)?])
    });
    figures.collect()
}

fn direction(channel: &ControlChannel, before: &mut Baseline) -> Result<LiveDirection, EmulateError> {
    let snapshot = channel.snapshot()?;
    let now = now();
    let rate = channel.hops().iter().map(|hop| hop.rate.value_at(now - hop.epoch)).min();
    let unmodelled = snapshot.tally.unmodelled;
    let lost = unmodelled.ring_full + unmodelled.send_failed;
    Ok(figures(&snapshot.stats, rate, lost, before, Instant::now()))
}

/// Computes the figures since `before`, and stores the current counters in `before`.
fn figures(
    stats: &LinkStats,
    narrowest: Option<BitRate>,
    lost: u64,
    before: &mut Baseline,
    now: Instant,
) -> LiveDirection {
    let Baseline { at, forwarded, dropped } = *before;
    *before = Baseline { at: now, forwarded: stats.forwarded.bytes, dropped: stats.dropped.total().packets };
    LiveDirection {
        rate: Bytes(before.forwarded.0.saturating_sub(forwarded.0)).per(now - at),
        queued: stats.queued,
        wait: narrowest.map_or(Duration::ZERO, |rate| rate.time_for(stats.queued)),
        newly_dropped: before.dropped.saturating_sub(dropped),
        dropped: before.dropped,
        unmodelled: lost,
    }
}

#[cfg(test)]
mod tests {
    use lfn_link::DropCause;

    use super::*;

    #[test]
    fn figures_cover_the_time_since_the_previous_ones() {
        let began = Instant::now();
        let mut before = Baseline::new(began);
        let mut stats = LinkStats::default();
        stats.forwarded.bytes = Bytes(1_000_000);
        stats.queued = Bytes(12_500);
        stats.dropped[DropCause::Queue].packets = 3;
        let first = figures(&stats, Some(BitRate(10_000_000)), 0, &mut before, began + Duration::from_millis(500));
        assert_eq!((first.rate, first.wait), (BitRate(16_000_000), Duration::from_millis(10)));
        assert_eq!((first.newly_dropped, first.dropped), (3, 3));
        let still = figures(&stats, None, 1, &mut before, began + Duration::from_secs(1));
        assert_eq!((still.rate, still.newly_dropped, still.dropped, still.unmodelled), (BitRate(0), 0, 3, 1));
    }
}
