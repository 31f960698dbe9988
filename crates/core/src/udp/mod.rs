//! UDP under load, without a socket: when each datagram is to leave, what the receiver makes of those that come, and
//! which rate a ramp tries next.
//!
//! [`receiver`], [`jitter`] and [`runs`] know sequence numbers and times alone, so that they judge any tool's datagrams;
//! [`datagram`] is this tool's own. [`pace`] says when to send and how well that went, [`ramp`] what rate to try, [`step`]
//! what came of it.
//! [`figures`] is what comes out of all of them, as it is told on the wire and printed; [`predicted`] what to expect.

pub mod datagram;
pub mod figures;
pub mod jitter;
pub mod pace;
mod predict;
pub mod ramp;
pub mod receiver;
pub mod runs;
pub mod step;

pub use predict::{carried, predicted};
