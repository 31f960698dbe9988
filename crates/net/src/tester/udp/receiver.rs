//! The loop that receives: takes what is there in one call, and has the account note it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_core::udp::datagram::{Head, Kind};
use lfn_core::udp::receiver::Arrival;
use lfn_core::udp::step::StepMeter;
use lfn_sys::clock::{monotonic_nanos, wall_nanos};
use lfn_sys::udp::batch::{Inbox, Message};

use super::lane::{Incoming, Lane};
use crate::server::throttle::Throttle;
use crate::session::timed_out;

/// How often a stop is looked for.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Messages taken in a call, each of which GRO may have merged of up to 64 KiB.
const AT_ONCE: usize = 8;

/// Receives over one stream until it is stopped.
pub(super) fn run(lane: &Lane, throttle: &Throttle, stop: &AtomicBool) -> io::Result<()> {
    let socket = lane.stream.socket();
    socket.set_read_timeout(Some(LOOK_UP))?;
    let mut inbox = Inbox::new(AT_ONCE, 65_536);
    while !stop.load(Ordering::Relaxed) {
        match inbox.receive(socket) {
            Ok(_) => {}
            Err(error) if timed_out(&error) || error.kind() == io::ErrorKind::Interrupted => continue,
            // The far socket is gone or not there yet; the control connection knows which.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        }
        let (now, wall) = (monotonic_nanos(), wall_nanos());
        let mut incoming = lane.incoming();
        // All that came costs the path, also what came twice and does not count.
        let mut bytes = 0;
        for message in inbox.messages() {
            bytes += message.bytes.len() as u64;
            take(lane, &mut incoming, &message, (now, wall));
        }
        drop(incoming);
        throttle.pass(bytes, stop).map_err(io::Error::other)?;
    }
    Ok(())
}

fn take(lane: &Lane, incoming: &mut Incoming, message: &Message<'_>, (now, wall): (u64, u64)) {
    let stamp = message.stamp.unwrap_or(wall);
    let mut merged = 0;
    for datagram in message.datagrams() {
        merged += 1;
        match Head::read(datagram, lane.stream.tag()) {
            Ok(head) if head.kind == Kind::Load => {
                note(incoming, &head, datagram.len(), stamp);
                incoming.first.get_or_insert(now);
                incoming.last = now;
            }
            _ if lane.stream.is_opening(datagram) => {}
            _ => incoming.foreign += 1,
        }
    }
    incoming.merged = incoming.merged.max(merged);
    incoming.kernel_stamps |= message.stamp.is_some();
}

fn note(incoming: &mut Incoming, head: &Head, length: usize, stamp: u64) {
    if !matches!(incoming.account.arrived(head.sequence, head.sent, stamp), Arrival::InOrder | Arrival::Late) {
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
