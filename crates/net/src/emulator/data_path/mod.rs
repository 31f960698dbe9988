//! The data path: what moves packets from one interface through the link model to the other, and nothing else.
//!
//! One thread a direction ([`forward`]) takes frames from a [`port`], keeps their bytes in a [`ring`] and decides by its
//! [`pace`] when to look again. Three things stand beside it and never hold a packet up: the [`mailbox`], by which other
//! threads tell it something, the [`tally`], in which it counts what the model cannot know, and an [`observer`]. It knows
//! no namespaces, commands or files: it is given two ports and a link.

mod dates;
mod forward;
mod mailbox;
mod observer;
mod pace;
mod port;
mod ring;
mod tally;

pub(super) use forward::Forwarder;
#[cfg(test)]
pub(super) use mailbox::obedient;
pub(super) use mailbox::{Mailbox, Snapshot};
pub(super) use observer::{Frame, Observer, Unforeseen};
pub(super) use port::Port;
pub(super) use ring::memory;
