//! The loop that sends: waits for the schedule, hands a burst to the kernel, looks at what it says.
//!
//! It sleeps to within [`SPIN`] of the time and spins the rest. `SO_TXTIME` and `SO_MAX_PACING_RATE` are not used: they
//! need the fq or etf queueing discipline on the way out, and without it they are taken and do nothing.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use lfn_core::time::Instant;
use lfn_core::udp::datagram::{Head, Kind};
use lfn_core::udp::pace::Pace;
use lfn_core::udp::ramp::StepSent;
use lfn_core::units::{BitRate, Bytes};
use lfn_sys::clock::{monotonic_nanos, sleep_until};
use lfn_sys::udp::batch::{self, MOST_BYTES, MOST_SEGMENTS};
use lfn_sys::udp::{forget_error, payload_within, wake_on_time};

use super::lane::Lane;
use crate::server::throttle::Throttle;
use crate::session::timed_out;

/// What is left to a wait is spun away: about what a wake-up takes.
const SPIN: u64 = 20_000;

/// Sleeps no longer than this, so that a stop is seen.
const LOOK_UP: u64 = 50_000_000;

/// When a queue of this host is full, it is given this long to drain.
const QUEUE_FULL: Duration = Duration::from_micros(200);

/// So long a peer may refuse datagrams (ICMP port unreachable) before that is an error: it may only just be starting.
const REFUSED_FOR: u64 = 3_000_000_000;

/// A refusal this long ago is forgotten. A host that refuses everything says so once a second (net.ipv4.icmp_ratelimit).
const FORGIVEN_AFTER: u64 = 2_000_000_000;

/// Where there is no way to the peer, this long is waited for one.
const NO_WAY: Duration = Duration::from_millis(1);

/// When a sender has sent enough.
#[derive(Debug)]
pub(super) enum Until<'a> {
    /// For this long.
    Time(Duration),
    /// As long as there are datagrams left, which all streams of the test share.
    Count(&'a AtomicU64),
}

/// Sends over one stream.
pub(super) struct Sender<'a> {
    lane: &'a Lane,
    throttle: &'a Throttle,
    stop: &'a AtomicBool,
    buffer: Vec<u8>,
    sequence: u64,
    gso: bool,
    refusals: Refusals,
}

/// Refusals of the peer's host, as it is sent to. Sends that are taken lie between them: the kernel tells of an earlier
/// datagram what came back, and takes the next one.
#[derive(Debug, Default)]
struct Refusals {
    /// The first and the last of those that are not forgotten.
    known: Option<(u64, u64)>,
}

impl Refusals {
    /// Notes one; whether it has been so for too long.
    fn note(&mut self, now: u64) -> bool {
        let recent = self.known.filter(|(_, last)| now.saturating_sub(*last) < FORGIVEN_AFTER);
        let since = recent.map_or(now, |(since, _)| since);
        self.known = Some((since, now));
        now.saturating_sub(since) > REFUSED_FOR
    }
}

impl<'a> Sender<'a> {
    pub(super) fn new(lane: &'a Lane, throttle: &'a Throttle, stop: &'a AtomicBool) -> io::Result<Self> {
        wake_on_time();
        let mut buffer = vec![0; lane.datagram * most_in_a_call(lane.datagram) as usize];
        // Not zeros: a compressing tunnel would make a path of its own of them.
        getrandom::fill(&mut buffer)?;
        Ok(Sender { lane, throttle, stop, buffer, sequence: 0, gso: lane.gso, refusals: Refusals::default() })
    }

    /// Sends at this rate until it is enough, and says what was sent.
    pub(super) fn run(&mut self, rate: BitRate, step: u32, until: Until<'_>) -> io::Result<StepSent> {
        let datagram = Bytes(self.lane.datagram as u64);
        let burst = Pace::burst_for(rate, datagram, most_in_a_call(self.lane.datagram));
        let began = monotonic_nanos();
        self.begin(rate, burst, began);
        let (mut first, mut last, mut datagrams) = (None, began, 0);
        loop {
            let due = self.lane.outgoing().pace.as_ref().map_or(began, |pace| pace.next().as_nanos());
            self.wait(due);
            let now = monotonic_nanos();
            let over = matches!(until, Until::Time(time) if now.saturating_sub(began) as u128 >= time.as_nanos());
            if over || self.stop.load(Ordering::Relaxed) {
                break;
            }
            let count = match until {
                Until::Time(_) => burst,
                Until::Count(left) => take(left, burst),
            };
            if count == 0 {
                break;
            }
            let sent = self.send_all(count, step)?;
            (first, last) = (first.or(Some(now)), now);
            datagrams += u64::from(sent);
        }
        let time = Duration::from_nanos(last.saturating_sub(first.unwrap_or(last)));
        Ok(StepSent { datagrams, datagram_bytes: datagram.0, time })
    }

    fn begin(&self, rate: BitRate, burst: u32, now: u64) {
        let mut out = self.lane.outgoing();
        let now = Instant::from_nanos(now);
        out.asked = rate;
        match &mut out.pace {
            Some(pace) => pace.change(rate, burst, now),
            none => *none = Some(Pace::new(rate, Bytes(self.lane.datagram as u64), burst, now)),
        }
    }

    fn wait(&self, due: u64) {
        loop {
            let now = monotonic_nanos();
            if now >= due || self.stop.load(Ordering::Relaxed) {
                return;
            }
            if due - now > SPIN {
                sleep_until((due - SPIN).min(now + LOOK_UP));
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Sends a burst, as often as it takes; stops in the middle if it is told to.
    fn send_all(&mut self, count: u32, step: u32) -> io::Result<u32> {
        let mut left = count;
        while left > 0 && !self.stop.load(Ordering::Relaxed) {
            let now = monotonic_nanos();
            let length = self.fill(left, step, now);
            match batch::send(self.lane.stream.socket(), &self.buffer[..length], self.lane.datagram, self.gso) {
                Ok(sent) => {
                    let sent = (sent as u32).min(left);
                    self.note(sent, left > 1, now);
                    left -= sent;
                    let bytes = u64::from(sent) * self.lane.datagram as u64;
                    self.throttle.pass(bytes, self.stop).map_err(io::Error::other)?;
                }
                Err(error) => self.survive(error)?,
            }
        }
        Ok(count - left)
    }

    /// Writes the heads of a burst; how many bytes it is.
    fn fill(&mut self, count: u32, step: u32, now: u64) -> usize {
        let length = self.lane.datagram * count as usize;
        for (sequence, datagram) in (self.sequence..).zip(self.buffer[..length].chunks_mut(self.lane.datagram)) {
            Head { kind: Kind::Load, tag: self.lane.stream.tag(), sequence, sent: now, extra: step }.write(datagram);
        }
        length
    }

    fn note(&mut self, sent: u32, several: bool, now: u64) {
        self.sequence += u64::from(sent);
        let mut out = self.lane.outgoing();
        out.first.get_or_insert(now);
        out.last = now;
        out.datagrams += u64::from(sent);
        out.bytes += u64::from(sent) * self.lane.datagram as u64;
        out.gso_used |= self.gso && several;
        if let Some(pace) = &mut out.pace {
            pace.left(sent, Instant::from_nanos(now));
        }
    }

    /// What a send that failed means: another try, or the end.
    fn survive(&mut self, error: io::Error) -> io::Result<()> {
        if timed_out(&error) || error.kind() == io::ErrorKind::Interrupted {
            return Ok(());
        }
        while forget_error(self.lane.stream.socket()) {}
        let code = rustix::io::Errno::from_io_error(&error);
        match code {
            Some(rustix::io::Errno::NOBUFS) => {
                self.lane.outgoing().queue_full += 1;
                thread::sleep(QUEUE_FULL);
                Ok(())
            }
            // The device cannot do the checksums, or the kernel has another idea of how much may be cut (udp_send_skb).
            Some(rustix::io::Errno::IO | rustix::io::Errno::INVAL) if self.gso => {
                self.gso = false;
                self.lane.outgoing().gso_refused = true;
                Ok(())
            }
            Some(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::HOSTUNREACH | rustix::io::Errno::NETUNREACH) => {
                if self.refusals.note(monotonic_nanos()) {
                    return Err(error);
                }
                if code != Some(rustix::io::Errno::CONNREFUSED) {
                    thread::sleep(NO_WAY);
                }
                Ok(())
            }
            Some(rustix::io::Errno::MSGSIZE) => Err(io::Error::new(io::ErrorKind::InvalidInput, self.too_long())),
            _ => Err(error),
        }
    }

    fn too_long(&self) -> TooLong {
        let mtu = lfn_sys::udp::path_mtu(self.lane.stream.socket()).ok().or(self.lane.path_mtu);
        let peer = self.lane.stream.peer();
        TooLong { datagram: self.lane.datagram, mtu: mtu.map(|mtu| (mtu, payload_within(mtu, &peer))) }
    }
}

/// Datagrams that do not fit the path, and may not be fragmented.
#[derive(Debug, thiserror::Error)]
#[error("datagrams of {datagram} B do not fit the path MTU{}", .mtu.map(|(mtu, _)| format!(" of {mtu} B")).unwrap_or_default())]
pub(in crate::tester) struct TooLong {
    datagram: usize,
    /// The path MTU, if it is known, and what fits it.
    mtu: Option<(u32, u32)>,
}

impl TooLong {
    pub(in crate::tester) fn hint(&self) -> String {
        let fits = self.mtu.map_or("a smaller --record".into(), |(_, fits)| format!("--record {fits}"));
        format!("use {fits}, or --fragment to have them fragmented")
    }
}

fn most_in_a_call(datagram: usize) -> u32 {
    (MOST_BYTES / datagram).clamp(1, MOST_SEGMENTS) as u32
}

/// Takes up to `most` of what is left.
fn take(left: &AtomicU64, most: u32) -> u32 {
    let mut taken = 0;
    let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        taken = left.min(most.into());
        left.checked_sub(taken).filter(|_| taken > 0)
    });
    taken as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_dealt_once() {
        let left = AtomicU64::new(10);
        assert_eq!([take(&left, 4), take(&left, 4), take(&left, 4), take(&left, 4)], [4, 4, 2, 0]);
    }

    #[test]
    fn refusals_that_go_on_are_an_error_and_old_ones_are_forgotten() {
        const SECOND: u64 = 1_000_000_000;
        let mut refusals = Refusals::default();
        let all: Vec<bool> = (0..5).map(|n| refusals.note(n * SECOND)).collect();
        assert_eq!(all, [false, false, false, false, true]);
        assert!(!refusals.note(7 * SECOND), "two seconds of quiet");
        assert!(!refusals.note(8 * SECOND) && !refusals.note(10 * SECOND) && !refusals.note(11 * SECOND));
    }

    #[test]
    fn a_call_takes_no_more_than_the_kernel_cuts() {
        assert_eq!((most_in_a_call(1472), most_in_a_call(36), most_in_a_call(65_507)), (44, 64, 1));
    }
}
