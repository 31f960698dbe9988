//! Simulation in virtual time: arrivals through a link, endpoints at both ends of a link, and a TCP for these
//! endpoints.
//!
//! Time jumps from event to event, so an hour of a slow path takes only the time to compute its packets. The same input
//! gives the same output to the nanosecond. [`run_link`] feeds scripted arrivals; [`SimNetwork`] connects two ends that
//! answer each other; [`tcp`] models such ends; [`transfer`] moves data of a fixed size between them, and shows
//! its packets as a capture does.

#![forbid(unsafe_code)]

mod capture;
mod network;
pub mod tcp;
pub mod transfer;

pub use capture::{CapturedSegment, TransferEnd};
pub use network::{SimEndpoint, SimNetwork};

use lfn_base::time::Instant;
use lfn_link::{Link, LinkEvent, Packet};

/// A packet that reaches the link at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptedArrival {
    pub at: Instant,
    pub packet: Packet,
}

/// Feeds `arrivals`, in order of time, through `link` until the link is empty, and returns all events.
pub fn run_link(link: &mut Link, arrivals: impl IntoIterator<Item = ScriptedArrival>) -> Vec<LinkEvent> {
    let mut events = Vec::new();
    for ScriptedArrival { at, packet } in arrivals {
        drain(link, Some(at), &mut events);
        link.push(packet, at);
    }
    drain(link, None, &mut events);
    events
}

/// Polls the link at each of its events, up to `until` or until the link is empty.
fn drain(link: &mut Link, until: Option<Instant>, events: &mut Vec<LinkEvent>) {
    while let Some(next) = link.next_event_at().filter(|next| until.is_none_or(|until| *next <= until)) {
        while let Some(event) = link.poll(next) {
            events.push(event);
        }
    }
}
