//! The fields of one end: [`Outbox`] has those for the partner, [`Inbox`] those of the partner.
//!
//! Both are pure. The threads of the channel call them under one lock. A partner cannot make them use more memory than the window
//! permits, whatever it sends.

mod inbox;
mod outbox;
#[cfg(test)]
mod tests;

pub use inbox::{Arrived, Inbox, Taken, WaitTime};
pub use outbox::{Chunk, FieldClass, GoneField, Outbox, SMALL_FIELD};
