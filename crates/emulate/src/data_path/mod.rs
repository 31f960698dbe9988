//! Data path: moves packets from one interface through the link model to the other interface.
//!
//! One thread for each direction ([`forward`]) takes frames from a [`port`], stores their bytes in a [`ring`], and
//! plans its wake-ups ([`wakeup`]). Three parts never delay a packet: the [`control_channel`], through which other
//! threads send commands, the [`tally`] of values that the model cannot know, and an [`observer`]. The data path gets
//! two ports and a link. It knows no namespaces, commands or files.

mod control_channel;
mod forward;
mod memory;
mod observer;
mod port;
mod ring;
mod tally;
mod timestamps;
mod wakeup;

#[cfg(test)]
pub(super) use control_channel::fake_forwarder;
pub(super) use control_channel::{ControlChannel, Snapshot};
pub(super) use forward::Forwarder;
pub(super) use memory::usable_memory;
pub(super) use observer::{Frame, Observer, UnmodelledDrop};
pub(super) use port::Port;
pub(super) use ring::memory_needed;
