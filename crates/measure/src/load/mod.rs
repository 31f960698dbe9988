//! The load engine: one thread per stream that sends or receives, counters for the control thread, and the meter that
//! samples them.
//!
//! The tests of [`crate::tester`] over TCP and UDP and those of [`crate::iperf3`] are its front ends. They open the
//! streams, talk to the peer and decide about the end. The engine moves the data:
//!
//! - [`LoadState`] is what the streams of one end and one direction share: the stop flag, the amount that is left to
//!   send, the limits.
//! - [`LoadEngine`] has their threads and collects their events. A thread ends when its share is sent, when the peer
//!   has finished, when its time is over, or when the load is stopped and its socket shut down.
//! - [`StreamCounter`] is the progress of one stream. The loops that move blocks take no lock: they use one buffer and
//!   a blocking socket. `copying` and `no_copy` move the blocks, `payload` creates and verifies them.
//! - [`send_bursts`] and [`receive_datagrams`] move the datagrams of a stream.
//! - [`IntervalMeter`] closes the intervals and samples the streams, and [`HostWatch`] this host.
//! - [`Pacer`] is the schedule of a stream with a rate, and `wait` waits for it.
//!
//! The server's limits are enforced by waiting, at a reader too: a full receive window then stops a peer that ignores
//! the limit.

mod block_loop;
mod blocks;
mod copying;
mod counter;
mod datagrams;
mod engine;
mod host;
mod intervals;
mod lockstep;
mod no_copy;
mod pacer;
mod payload;
mod progress;
mod state;
mod wait;

pub(crate) use blocks::{move_blocks, run_blocks};
pub(crate) use counter::StreamCounter;
pub(crate) use datagrams::{BurstSender, SendUntil, receive_datagrams, send_bursts};
pub(crate) use engine::{LoadEngine, LoadError, LoadStream, STACK_SIZE, StreamEvent};
pub(crate) use host::{HostWatch, interface_counters, qdisc};
pub(crate) use intervals::{IntervalMeter, MeteredStream, StreamTotals};
pub(crate) use pacer::{CatchUp, Pacer};
pub(crate) use payload::fill_payload;
pub(crate) use state::{LoadOptions, LoadState, PayloadKind};
pub(crate) use wait::WaitPrecision;
