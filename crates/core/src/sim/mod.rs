//! Virtual time: arrivals through a link, endpoints at the two ends of one, and a TCP to put there.
//!
//! Time jumps from event to event, so an hour of a slow path takes as long as its packets take to compute, and the
//! same input gives the same output to the nanosecond. [`run`] is for scripted arrivals, [`Network`] for two ends that
//! answer each other; [`tcp`] models such ends, and [`transfer`] moves data of a fixed size between them.

mod network;
pub mod tcp;
pub mod transfer;

pub use network::{Endpoint, Network};

use crate::link::{Event, Link, Packet};
use crate::time::Instant;

/// A packet that reaches the link at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Instant,
    /// What.
    pub packet: Packet,
}

/// Feeds `arrivals`, in order of time, through `link` until it is empty, and gives everything that happened.
pub fn run(link: &mut Link, arrivals: impl IntoIterator<Item = Arrival>) -> Vec<Event> {
    let mut events = Vec::new();
    for Arrival { at, packet } in arrivals {
        drain(link, Some(at), &mut events);
        link.push(packet, at);
    }
    drain(link, None, &mut events);
    events
}

/// Polls at every instant the link names, up to `until` or until it is empty.
fn drain(link: &mut Link, until: Option<Instant>, events: &mut Vec<Event>) {
    while let Some(next) = link.next().filter(|next| until.is_none_or(|until| *next <= until)) {
        while let Some(event) = link.poll(next) {
            events.push(event);
        }
    }
}
