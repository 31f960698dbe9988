//! Figures of a run while it goes, now and then: how fast each direction carries, what waits, what was dropped.
//!
//! A thread asks the forwarders how they stand and hands on what has changed since it last did; how that looks, and
//! where, is the caller's business. It reads no terminal and formats nothing.

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_core::link::LinkStats;
use lfn_core::units::{BitRate, Bytes};

use crate::emulator::data_path::Mailbox;
use crate::emulator::{EmulateError, now, system};

/// How figures are to be shown.
#[derive(Clone, Copy)]
pub struct Live {
    /// How often.
    pub every: Duration,
    /// Shows them; once more without any when the run has ended.
    pub show: fn(Option<&LiveFigures>),
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveFigures {
    /// Since the first packets could come.
    pub elapsed: Duration,
    /// Near to far, and far to near, of every path.
    pub paths: Vec<[LiveDirection; 2]>,
}

/// How a direction stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveDirection {
    /// Throughput since the figures before.
    pub rate: BitRate,
    /// Bytes in the queues of all hops.
    pub queued: Bytes,
    /// How long those take to send at the rate of the narrowest hop.
    pub wait: Duration,
    /// Dropped by the link since the figures before.
    pub newly_dropped: u64,
    /// Dropped by the link so far.
    pub dropped: u64,
    /// Lost outside the model so far, as far as the emulator itself knows yet.
    pub unmodelled: u64,
}

/// Shows figures until it is dropped.
pub(super) struct LiveThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LiveThread {
    pub(super) fn start(live: Live, paths: Vec<[Mailbox; 2]>) -> Result<LiveThread, EmulateError> {
        let (stop, stopped) = mpsc::channel();
        let show = move || {
            let began = Instant::now();
            let mut before: Vec<[Look; 2]> = paths.iter().map(|_| [Look::new(began); 2]).collect();
            while stopped.recv_timeout(live.every) == Err(RecvTimeoutError::Timeout) {
                let Ok(figures) = look(&paths, &mut before) else { break };
                (live.show)(Some(&LiveFigures { elapsed: began.elapsed(), paths: figures }));
            }
            (live.show)(None);
        };
        let thread =
            thread::Builder::new().name("live".to_owned()).spawn(show).map_err(system("start the live line"))?;
        Ok(LiveThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for LiveThread {
    fn drop(&mut self) {
        self.stop = None;
        // That it panicked was said where it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("every", &self.every).finish_non_exhaustive()
    }
}

/// What one direction had done when it was looked at.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    forwarded: Bytes,
    dropped: u64,
}

impl Look {
    fn new(at: Instant) -> Self {
        Look { at, forwarded: Bytes(0), dropped: 0 }
    }
}

fn look(paths: &[[Mailbox; 2]], before: &mut [[Look; 2]]) -> Result<Vec<[LiveDirection; 2]>, EmulateError> {
    let pairs = paths.iter().zip(before);
    let figures = pairs.map(|([forth, back], [before_forth, before_back])| {
        Ok([direction(forth, before_forth)?, direction(back, before_back)?])
    });
    figures.collect()
}

fn direction(mailbox: &Mailbox, before: &mut Look) -> Result<LiveDirection, EmulateError> {
    let snapshot = mailbox.snapshot()?;
    let now = now();
    let rate = mailbox.hops().iter().map(|hop| hop.rate.at(now - hop.epoch)).min();
    let unmodelled = snapshot.tally.unmodelled;
    let lost = unmodelled.no_room + unmodelled.send_failed;
    Ok(figures(&snapshot.stats, rate, lost, before, Instant::now()))
}

/// What has changed since `before`, which becomes what is so now.
fn figures(stats: &LinkStats, narrowest: Option<BitRate>, lost: u64, before: &mut Look, now: Instant) -> LiveDirection {
    let Look { at, forwarded, dropped } = *before;
    *before = Look { at: now, forwarded: stats.forwarded.bytes, dropped: stats.dropped.total().packets };
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
    use lfn_core::link::DropCause;

    use super::*;

    #[test]
    fn figures_are_of_the_time_since_the_last_ones() {
        let began = Instant::now();
        let mut before = Look::new(began);
        let mut stats = LinkStats::default();
        (stats.forwarded.bytes, stats.queued) = (Bytes(1_000_000), Bytes(12_500));
        stats.dropped[DropCause::Queue].packets = 3;
        let first = figures(&stats, Some(BitRate(10_000_000)), 0, &mut before, began + Duration::from_millis(500));
        assert_eq!((first.rate, first.wait), (BitRate(16_000_000), Duration::from_millis(10)));
        assert_eq!((first.newly_dropped, first.dropped), (3, 3));
        let still = figures(&stats, None, 1, &mut before, began + Duration::from_secs(1));
        assert_eq!((still.rate, still.newly_dropped, still.dropped, still.unmodelled), (BitRate(0), 0, 3, 1));
    }
}
