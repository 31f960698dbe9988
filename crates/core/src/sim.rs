//! Virtual time: arrivals through a link, and endpoints at the two ends of one.
//!
//! Time jumps from event to event, so an hour of a slow path takes as long as its packets take to compute, and the
//! same input gives the same output to the nanosecond. Nothing here models TCP: an [`Endpoint`] may, and is handed
//! packets as the link delivers them. [`run`] is for scripted arrivals, [`Network`] for two ends that answer.

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

/// One end of a path.
pub trait Endpoint {
    /// Takes a packet that came over the link.
    fn receive(&mut self, packet: Packet, now: Instant);

    /// A packet to send now; called until `None` after every packet received and at every [`wake`](Self::wake).
    fn send(&mut self, now: Instant) -> Option<Packet>;

    /// When the endpoint wants to send though nothing comes: a timer. Later than the last `send` that gave nothing, or
    /// time would stand still.
    fn wake(&self) -> Option<Instant> {
        None
    }
}

/// Two endpoints and the links between them.
pub struct Network<Near, Far> {
    /// Sends over `forward`.
    pub near: Near,
    /// Sends over `back`.
    pub far: Far,
    forward: Link,
    back: Link,
    now: Instant,
}

impl<Near: Endpoint, Far: Endpoint> Network<Near, Far> {
    /// At the origin of time, nothing sent yet.
    pub fn new(near: Near, far: Far, forward: Link, back: Link) -> Self {
        Network { near, far, forward, back, now: Instant::ZERO }
    }

    /// Lets both ends send and receive until nothing more happens before `end`.
    pub fn run_until(&mut self, end: Instant) {
        loop {
            send_all(&mut self.near, &mut self.forward, self.now);
            send_all(&mut self.far, &mut self.back, self.now);
            let next = [self.forward.next(), self.back.next(), self.near.wake(), self.far.wake()];
            let Some(next) = next.into_iter().flatten().min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            deliver_all(&mut self.forward, &mut self.far, self.now);
            deliver_all(&mut self.back, &mut self.near, self.now);
        }
        self.now = self.now.max(end);
    }

    /// The two links, forward and back, to read their accounts.
    pub fn links(&self) -> (&Link, &Link) {
        (&self.forward, &self.back)
    }
}

fn send_all(endpoint: &mut impl Endpoint, link: &mut Link, now: Instant) {
    while let Some(packet) = endpoint.send(now) {
        link.push(packet, now);
    }
}

fn deliver_all(link: &mut Link, endpoint: &mut impl Endpoint, now: Instant) {
    while let Some(event) = link.poll(now) {
        if let Event::Forward { packet, due } = event {
            endpoint.receive(packet, due);
        }
    }
}

/// Polls at every instant the link names, up to `until` or until it is empty.
fn drain(link: &mut Link, until: Option<Instant>, events: &mut Vec<Event>) {
    while let Some(next) = link.next().filter(|next| until.is_none_or(|until| *next <= until)) {
        while let Some(event) = link.poll(next) {
            events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::link::{Direction, LinkConfig};
    use crate::units::{BitRate, Bytes};

    const MSS: u64 = 1448;
    /// Ethernet, IPv4, and TCP with timestamps.
    const HEADERS: u32 = 66;

    /// Keeps a fixed number of payload bytes unacknowledged, whole segments only: TCP past its start, held by rwnd.
    struct WindowSender {
        window: Bytes,
        sent: u64,
        acknowledged: u64,
    }

    /// Acknowledges every segment.
    struct Acknowledger {
        received: u64,
        owed: u64,
    }

    impl Endpoint for WindowSender {
        fn receive(&mut self, packet: Packet, _now: Instant) {
            self.acknowledged = packet.id;
        }

        fn send(&mut self, _now: Instant) -> Option<Packet> {
            if (self.sent + 1 - self.acknowledged) * MSS > self.window.0 {
                return None;
            }
            self.sent += 1;
            Some(Packet::single(self.sent, MSS as u32 + HEADERS))
        }
    }

    impl Endpoint for Acknowledger {
        fn receive(&mut self, packet: Packet, _now: Instant) {
            assert_eq!(packet.id, self.received + 1, "lost or out of order");
            self.received += 1;
            self.owed += 1;
        }

        fn send(&mut self, _now: Instant) -> Option<Packet> {
            self.owed = self.owed.checked_sub(1)?;
            Some(Packet::single(self.received - self.owed, HEADERS))
        }
    }

    /// Goodput over 40 round trips of the path of ACTS, after 10 of them to settle.
    fn goodput(window: Bytes) -> f64 {
        let forward = LinkConfig {
            rate: BitRate(135_000_000).into(),
            delay: Duration::from_micros(269_500).into(),
            // Two products: the sender has no slow start.
            queue: Bytes(18_191_250).into(),
            ..LinkConfig::default()
        };
        let back = LinkConfig { direction: Direction::Return, ..forward.clone() };
        let sender = WindowSender { window, sent: 0, acknowledged: 0 };
        let receiver = Acknowledger { received: 0, owed: 0 };
        let (forward, back) = (Link::new(&forward).unwrap(), Link::new(&back).unwrap());
        let mut network = Network::new(sender, receiver, forward, back);
        let at = |trips: u64| Instant::from_nanos(trips * 539_000_000);
        network.run_until(at(10));
        let before = network.far.received;
        network.run_until(at(50));
        let bits = (network.far.received - before) * MSS * 8;
        assert_eq!(network.links().0.stats().dropped.total().packets, 0);
        bits as f64 / (at(50) - at(10)).as_secs_f64()
    }

    #[test]
    fn half_the_product_as_window_gives_half_the_rate_of_acts() {
        // 000: 4,547,813 B / 539 ms = 67.5 Mb/s. The last part of a segment stays home, and a segment and its
        // acknowledgement take 94 µs to send: 3,140 segments every 539.094 ms.
        let expected = 3_140.0 * 1_448.0 * 8.0 / 0.539_094;
        let measured = goodput(Bytes(4_547_813));
        assert!((measured / expected - 1.0).abs() < 0.002, "{measured} not {expected}");
        assert!((measured / 67.5e6 - 1.0).abs() < 0.002, "{measured}");
    }

    #[test]
    fn a_window_of_more_than_the_product_fills_the_line() {
        // Nothing but payload share is lost: 135 Mb/s × 1448/1514 = 129.1 Mb/s.
        let expected = 135e6 * 1_448.0 / 1_514.0;
        let measured = goodput(Bytes(12_000_000));
        assert!((measured / expected - 1.0).abs() < 0.0005, "{measured} not {expected}");
    }
}
