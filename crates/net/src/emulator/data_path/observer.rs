//! Who may watch a direction packet by packet: a log, a capture.
//!
//! The forwarder tells an observer of every arrival and of everything the link did, with the bytes concerned, on the
//! thread that forwards: what an observer takes long over makes packets late. Without one nothing is told and nothing
//! is paid. Figures that are wanted now and then (a live line) are asked for by
//! [`Mailbox::snapshot`](super::mailbox::Mailbox::snapshot) instead.

use lfn_core::link::segment::VnetHeader;
use lfn_core::link::{Event, Packet};
use lfn_core::time::Instant;

/// Watches one direction of a path.
pub(in crate::emulator) trait Observer: Send {
    /// A frame came in at `at` and goes to the link as `packet`, whole.
    fn arrived(&mut self, packet: &Packet, frame: Frame<'_>, at: Instant);

    /// The link did something; it is `now`. For [`Event::Forward`] `frame` is what the kernel took: the range cut out and
    /// changed. For the others it is the frame as it came, of which the packet names a range.
    fn happened(&mut self, event: &Event, frame: Frame<'_>, now: Instant);

    /// The emulator itself sent `frame` to the sender of `packet`, whose drop was what happened last: a router's answer
    /// that no more than `mtu` bytes pass.
    fn answered(&mut self, packet: &Packet, mtu: u16, frame: &[u8], now: Instant);

    /// These virtual packets are gone, and the model knows nothing of it. For [`Unforeseen::NoRoom`] `frame` is what came,
    /// and the packet's id is nobody's; for [`Unforeseen::SendFailed`] it is what the kernel did not take.
    fn lost(&mut self, packet: &Packet, frame: Frame<'_>, why: Unforeseen, now: Instant);
}

/// A frame as it crosses the packet socket.
#[derive(Clone, Copy, Debug)]
pub(in crate::emulator) struct Frame<'a> {
    /// What stands before it.
    pub(in crate::emulator) vnet: VnetHeader,
    /// Its bytes from the Ethernet header on, in two parts, of which the first may be empty.
    pub(in crate::emulator) parts: [&'a [u8]; 2],
}

/// What befell a packet outside the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::emulator) enum Unforeseen {
    /// The ring had no room for it.
    NoRoom,
    /// The kernel did not take it.
    SendFailed,
}
