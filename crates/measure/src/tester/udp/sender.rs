//! Send loop: waits for the schedule, passes a burst to the kernel, and handles the result.
//!
//! The loop sleeps until shortly before the time and then spins. `SO_TXTIME` and `SO_MAX_PACING_RATE` are not
//! used: they need the fq or etf queueing discipline on the interface. Without it the kernel accepts them, but they
//! have no effect.

use std::time::Duration;
use std::{io, thread};

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_results::udp::ramp::StepSent;
use lfn_session::transport::is_timeout;
use lfn_sys::clock::monotonic_nanos;
use lfn_sys::udp::batch::{self, MAX_GSO_BYTES, MAX_SEGMENTS};
use lfn_sys::udp::{discard_error, max_payload, set_exact_timers};

use super::datagram_too_long::DatagramTooLong;
use super::flow::UdpFlow;
use crate::load::{BurstSender, CatchUp, LoadState, Pacer, SendUntil, WaitPrecision, send_bursts};
use crate::proto::udp::datagram::{DatagramHeader, DatagramKind};

/// Pause after a full queue of this host.
const QUEUE_FULL_WAIT: Duration = Duration::from_micros(200);

/// Time that a peer may refuse datagrams (ICMP port unreachable) before the refusal is an error. The peer may just be
/// starting.
const MAX_REFUSED_NANOS: u64 = 3_000_000_000;

/// Age at which a refusal is forgotten. A host that refuses everything reports it once a second
/// (net.ipv4.icmp_ratelimit).
const REFUSAL_EXPIRY_NANOS: u64 = 2_000_000_000;

/// Pause when there is no route to the peer.
const NO_ROUTE_WAIT: Duration = Duration::from_millis(1);

/// Sender of one stream.
pub(super) struct UdpSender<'a> {
    flow: &'a UdpFlow,
    load: &'a LoadState,
    buffer: Vec<u8>,
    sequence: u64,
    /// Number of the ramp's step.
    step: u32,
    gso: bool,
    refusals: Refusals,
}

/// Refusals by the peer's host. Successful sends lie between them, because the kernel reports the error of an earlier
/// datagram and accepts the next one.
#[derive(Debug, Default)]
struct Refusals {
    /// Times of the first and the last refusal that are not forgotten.
    known: Option<(u64, u64)>,
}

impl Refusals {
    /// Records a refusal. Returns whether the refusals have lasted too long.
    fn record(&mut self, now: u64) -> bool {
        let recent = self.known.filter(|(_, last)| now.saturating_sub(*last) < REFUSAL_EXPIRY_NANOS);
        let since = recent.map_or(now, |(since, _)| since);
        self.known = Some((since, now));
        now.saturating_sub(since) > MAX_REFUSED_NANOS
    }
}

impl<'a> UdpSender<'a> {
    pub(super) fn new(flow: &'a UdpFlow, load: &'a LoadState) -> io::Result<Self> {
        set_exact_timers();
        let mut buffer = vec![0; flow.datagram_bytes * max_datagrams_per_call(flow.datagram_bytes) as usize];
        // Random bytes: zeros would be compressed by some tunnels and give wrong results.
        getrandom::fill(&mut buffer)?;
        Ok(UdpSender { flow, load, buffer, sequence: 0, step: 0, gso: flow.gso, refusals: Refusals::default() })
    }

    /// Sends at this rate until the end, and returns the number of sent datagrams.
    pub(super) fn run(&mut self, rate: BitRate, step: u32, until: SendUntil) -> io::Result<StepSent> {
        let datagram = Bytes(self.flow.datagram_bytes as u64);
        let burst = Pacer::burst_for(rate, datagram, max_datagrams_per_call(self.flow.datagram_bytes));
        self.begin(rate, burst, monotonic_nanos());
        self.step = step;
        let load = self.load;
        let sent = send_bursts(self, load, burst, WaitPrecision::Exact, until)?;
        Ok(StepSent { datagrams: sent.datagrams, datagram_bytes: datagram.0, time: sent.time })
    }

    fn begin(&self, rate: BitRate, burst: u32, now: u64) {
        let mut out = self.flow.outgoing.lock();
        let now = Instant::from_nanos(now);
        out.requested = rate;
        match &mut out.pace {
            Some(pace) => pace.change(rate, burst, now),
            none => {
                let datagram = Bytes(self.flow.datagram_bytes as u64);
                *none = Some(Pacer::new(rate, datagram, burst, CatchUp::Doubled, now).with_lateness());
            }
        }
    }

    /// Writes the headers of a burst, and returns its length in bytes.
    fn fill(&mut self, count: u32, now: u64) -> usize {
        let step = self.step;
        let length = self.flow.datagram_bytes * count as usize;
        for (sequence, datagram) in (self.sequence..).zip(self.buffer[..length].chunks_mut(self.flow.datagram_bytes)) {
            DatagramHeader { kind: DatagramKind::Load, tag: self.flow.stream.tag(), sequence, sent: now, extra: step }
                .write(datagram);
        }
        length
    }

    fn record(&mut self, sent: u32, several: bool, now: u64) {
        self.sequence += u64::from(sent);
        let mut out = self.flow.outgoing.lock();
        out.first.get_or_insert(now);
        out.last = now;
        // Readers of the figures hold the lock, so that all counts belong to the same datagrams.
        self.flow.counter.count_datagrams(sent.into(), sent as usize * self.flow.datagram_bytes, self.load);
        out.gso_used |= self.gso && several;
        if let Some(pace) = &mut out.pace {
            pace.record_sent(sent, Instant::from_nanos(now));
        }
    }

    /// Handles a failed send: tries again, or returns the error.
    fn handle_error(&mut self, error: io::Error) -> io::Result<()> {
        if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted {
            return Ok(());
        }
        while discard_error(self.flow.stream.socket()) {}
        let code = rustix::io::Errno::from_io_error(&error);
        match code {
            Some(rustix::io::Errno::NOBUFS) => {
                self.flow.outgoing.lock().queue_full += 1;
                thread::sleep(QUEUE_FULL_WAIT);
                Ok(())
            }
            // The device cannot compute the checksums, or the kernel does not accept this number of segments
            // (udp_send_skb).
            Some(rustix::io::Errno::IO | rustix::io::Errno::INVAL) if self.gso => {
                self.gso = false;
                self.flow.outgoing.lock().gso_refused = true;
                Ok(())
            }
            Some(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::HOSTUNREACH | rustix::io::Errno::NETUNREACH) => {
                if self.refusals.record(monotonic_nanos()) {
                    return Err(error);
                }
                if code != Some(rustix::io::Errno::CONNREFUSED) {
                    thread::sleep(NO_ROUTE_WAIT);
                }
                Ok(())
            }
            Some(rustix::io::Errno::MSGSIZE) => Err(io::Error::new(io::ErrorKind::InvalidInput, self.too_long_error())),
            _ => Err(error),
        }
    }

    fn too_long_error(&self) -> DatagramTooLong {
        let mtu = lfn_sys::udp::path_mtu(self.flow.stream.socket()).ok().or(self.flow.path_mtu);
        let peer = self.flow.stream.peer();
        DatagramTooLong { datagram: self.flow.datagram_bytes, mtu: mtu.map(|mtu| (mtu, max_payload(mtu, &peer))) }
    }
}

impl BurstSender for UdpSender<'_> {
    fn next_burst(&self) -> Option<Instant> {
        self.flow.outgoing.lock().pace.as_ref().map(Pacer::next)
    }

    /// Sends a burst with as many calls as necessary.
    fn send_burst(&mut self, count: u32) -> io::Result<u32> {
        let mut left = count;
        while left > 0 && !self.load.is_stopped() {
            let now = monotonic_nanos();
            let length = self.fill(left, now);
            match batch::send(self.flow.stream.socket(), &self.buffer[..length], self.flow.datagram_bytes, self.gso) {
                Ok(sent) => {
                    let sent = (sent as u32).min(left);
                    self.record(sent, left > 1, now);
                    left -= sent;
                    self.load.count_and_wait(u64::from(sent) * self.flow.datagram_bytes as u64)?;
                }
                Err(error) => self.handle_error(error)?,
            }
        }
        Ok(count - left)
    }
}

fn max_datagrams_per_call(datagram: usize) -> u32 {
    (MAX_GSO_BYTES / datagram).clamp(1, MAX_SEGMENTS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_refusals_fail_and_old_ones_expire() {
        const SECOND: u64 = 1_000_000_000;
        let mut refusals = Refusals::default();
        let all: Vec<bool> = (0..5).map(|n| refusals.record(n * SECOND)).collect();
        assert_eq!(all, [false, false, false, false, true]);
        assert!(!refusals.record(7 * SECOND), "two seconds without refusals");
        assert!(!refusals.record(8 * SECOND) && !refusals.record(10 * SECOND) && !refusals.record(11 * SECOND));
    }

    #[test]
    fn call_does_not_exceed_gso_limits() {
        assert_eq!(
            (max_datagrams_per_call(1472), max_datagrams_per_call(36), max_datagrams_per_call(65_507)),
            (44, 64, 1)
        );
    }
}
