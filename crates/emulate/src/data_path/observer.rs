//! Observer of each packet of a direction, for example a packet log.
//!
//! The forwarder calls the observer for every arrival and for every event of the link, with the bytes of the packet, on
//! the forwarding thread. A slow observer makes packets late. Without an observer there is no cost. For periodic
//! figures, such as the live display, use
//! [`ControlChannel::snapshot`](super::control_channel::ControlChannel::snapshot) instead.

use lfn_base::time::Instant;
use lfn_link::{LinkEvent, Packet};
use lfn_packet::VnetHeader;

/// Observer of one direction of a path.
pub(crate) trait Observer: Send {
    /// Called when a complete frame arrived at `at` and enters the link as `packet`.
    fn on_arrival(&mut self, packet: &Packet, frame: Frame<'_>, at: Instant);

    /// Called at `now` for an event of the link. For [`LinkEvent::Forward`], `frame` is the sent frame: the range that
    /// was cut out and changed. For other events, `frame` is the frame as it arrived, and the packet names a range of
    /// it.
    fn on_event(&mut self, event: &LinkEvent, frame: Frame<'_>, now: Instant);

    /// Called when the emulator sent the ICMP packet `frame` to the sender of `packet`, directly after the drop of the
    /// packet. The ICMP packet reports that at most `mtu` bytes pass.
    fn on_icmp_reply(&mut self, packet: &Packet, mtu: u16, frame: &[u8], now: Instant);

    /// Called for virtual packets that were lost outside the model. For [`UnmodelledDrop::RingFull`], `frame` is the
    /// arrived frame, and the packet's id is unused. For [`UnmodelledDrop::SendFailed`], `frame` is the frame that the
    /// kernel refused.
    fn on_unmodelled_drop(&mut self, packet: &Packet, frame: Frame<'_>, why: UnmodelledDrop, now: Instant);
}

/// A frame as it crosses the packet socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// The virtio-net header of the frame.
    pub(crate) vnet: VnetHeader,
    /// The bytes from the Ethernet header, in two parts. The first part may be empty.
    pub(crate) parts: [&'a [u8]; 2],
}

/// Cause of a packet loss outside the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnmodelledDrop {
    RingFull,
    /// The kernel refused the frame.
    SendFailed,
}
