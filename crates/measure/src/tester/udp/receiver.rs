//! Statistics of received datagrams: all waiting datagrams are read in one call.

use lfn_sys::clock::{monotonic_nanos, wall_nanos};
use lfn_sys::udp::batch::{MergedDatagrams, ReceiveBuffers};

use super::flow::{FlowReceived, UdpFlow};
use crate::load::{LoadState, receive_datagrams};
use crate::proto::udp::datagram::{DatagramHeader, DatagramKind};
use crate::proto::udp::receiver::ArrivalKind;
use crate::proto::udp::step::StepMeter;

/// Maximum messages per call. GRO may have merged each message from several datagrams, up to 64 KiB in total.
const BATCH_MESSAGES: usize = 8;

/// Receives on one stream until the stop flag is set.
pub(super) fn run(flow: &UdpFlow, load: &LoadState) -> std::io::Result<()> {
    let socket = flow.stream.socket();
    let mut inbox = ReceiveBuffers::new(BATCH_MESSAGES, 65_536);
    receive_datagrams(socket, load, || {
        inbox.receive(socket)?;
        let (now, wall) = (monotonic_nanos(), wall_nanos());
        let mut incoming = flow.incoming.lock();
        // Every arrival counts for the rate limiter, also duplicates.
        let mut bytes = 0;
        let mut accepted = AcceptedDatagrams::default();
        for message in inbox.messages() {
            bytes += message.bytes.len() as u64;
            take(flow, &mut incoming, &mut accepted, &message, now, wall);
        }
        // Readers of the figures hold the lock, so that all counts belong to the same datagrams.
        flow.counter.count_datagrams(accepted.datagrams, accepted.bytes, load);
        Ok(bytes)
    })
}

/// Datagrams of one call that are not duplicates.
#[derive(Debug, Clone, Copy, Default)]
struct AcceptedDatagrams {
    datagrams: u64,
    bytes: usize,
}

fn take(
    flow: &UdpFlow,
    incoming: &mut FlowReceived,
    accepted: &mut AcceptedDatagrams,
    message: &MergedDatagrams<'_>,
    now: u64,
    wall: u64,
) {
    let stamp = message.timestamp.unwrap_or(wall);
    let mut merged = 0;
    for datagram in message.datagrams() {
        merged += 1;
        match DatagramHeader::read(datagram, flow.stream.tag()) {
            Ok(head) if head.kind == DatagramKind::Load => {
                if record(incoming, &head, stamp) {
                    accepted.datagrams += 1;
                    accepted.bytes += datagram.len();
                }
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

/// Records a datagram. Returns whether it is new.
fn record(incoming: &mut FlowReceived, head: &DatagramHeader, stamp: u64) -> bool {
    if !matches!(incoming.stats.arrived(head.sequence, head.sent, stamp), ArrivalKind::InOrder | ArrivalKind::Late) {
        return false;
    }
    if head.extra > incoming.step.step() {
        incoming.step = StepMeter::new(head.extra);
    }
    if head.extra == incoming.step.step() {
        incoming.step.arrived(head.sent, stamp);
    }
    true
}
