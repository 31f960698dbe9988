//! Receive loop: reads all waiting datagrams in one call and counts them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::transport::is_timeout;
use lfn_sys::clock::{monotonic_nanos, wall_nanos};
use lfn_sys::udp::batch::{MergedDatagrams, ReceiveBuffers};

use super::flow::{FlowReceived, UdpFlow};
use crate::proto::udp::datagram::{DatagramHeader, DatagramKind};
use crate::proto::udp::receiver::ArrivalKind;
use crate::proto::udp::step::StepMeter;

/// Interval at which the stop flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum messages per call. GRO may have merged each message from several datagrams, up to 64 KiB in total.
const BATCH_MESSAGES: usize = 8;

/// Receives on one stream until the stop flag is set.
pub(super) fn run(flow: &UdpFlow, rate_limiter: &RateLimiter, stop: &AtomicBool) -> io::Result<()> {
    let socket = flow.stream.socket();
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    let mut inbox = ReceiveBuffers::new(BATCH_MESSAGES, 65_536);
    while !stop.load(Ordering::Relaxed) {
        match inbox.receive(socket) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => continue,
            // The peer's socket is closed or not open yet; the control connection knows which.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        }
        let (now, wall) = (monotonic_nanos(), wall_nanos());
        let mut incoming = flow.incoming();
        // Every arrival counts for the rate limiter, also duplicates.
        let mut bytes = 0;
        for message in inbox.messages() {
            bytes += message.bytes.len() as u64;
            take(flow, &mut incoming, &message, now, wall);
        }
        drop(incoming);
        rate_limiter.count_and_wait(bytes, stop).map_err(io::Error::other)?;
    }
    Ok(())
}

fn take(flow: &UdpFlow, incoming: &mut FlowReceived, message: &MergedDatagrams<'_>, now: u64, wall: u64) {
    let stamp = message.timestamp.unwrap_or(wall);
    let mut merged = 0;
    for datagram in message.datagrams() {
        merged += 1;
        match DatagramHeader::read(datagram, flow.stream.tag()) {
            Ok(head) if head.kind == DatagramKind::Load => {
                record(incoming, &head, datagram.len(), stamp);
                incoming.first.get_or_insert(now);
                incoming.last = now;
            }
            _ if flow.stream.is_repeated_hello(datagram) => {}
            _ => incoming.unrecognised += 1,
        }
    }
    incoming.merged = incoming.merged.max(merged);
    incoming.kernel_stamps |= message.timestamp.is_some();
}

fn record(incoming: &mut FlowReceived, head: &DatagramHeader, length: usize, stamp: u64) {
    if !matches!(incoming.stats.arrived(head.sequence, head.sent, stamp), ArrivalKind::InOrder | ArrivalKind::Late) {
        return;
    }
    incoming.bytes += length as u64;
    if head.extra > incoming.step.step() {
        incoming.step = StepMeter::new(head.extra);
    }
    if head.extra == incoming.step.step() {
        incoming.step.arrived(head.sent, stamp);
    }
}
