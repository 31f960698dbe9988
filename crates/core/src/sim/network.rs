//! Two endpoints and the links between them.
//!
//! The model of the link knows packets by description only; what they carry is held here until every virtual packet of
//! them has come out, as the emulator holds their bytes. Nothing here models a protocol: an [`Endpoint`] may.

use std::collections::VecDeque;

use crate::link::{Event, Link, Packet};
use crate::time::Instant;

/// One end of a path.
pub trait Endpoint {
    /// What the packets it sends carry.
    type Sends;
    /// What the packets that come to it carry.
    type Receives;

    /// Takes a packet that came over the link: some or all of what was sent as one.
    fn receive(&mut self, packet: &Packet, content: &Self::Receives, now: Instant);

    /// A packet to send now, and what it carries; called until `None` after every instant at which anything happened.
    /// The network gives it its `id`.
    fn send(&mut self, now: Instant) -> Option<(Packet, Self::Sends)>;

    /// When the endpoint wants to send though nothing comes: a timer. Later than the last `send` that gave nothing, or
    /// time would stand still.
    fn wake(&self) -> Option<Instant> {
        None
    }
}

/// Two endpoints and the links between them.
pub struct Network<Near: Endpoint, Far: Endpoint> {
    /// Sends over the link forward.
    pub near: Near,
    /// Sends over the link back.
    pub far: Far,
    forward: Way<Near::Sends>,
    back: Way<Far::Sends>,
    now: Instant,
}

impl<Near, Far> Network<Near, Far>
where
    Near: Endpoint,
    Far: Endpoint<Sends = Near::Receives, Receives = Near::Sends>,
{
    /// At the origin of time, nothing sent yet.
    pub fn new(near: Near, far: Far, forward: Link, back: Link) -> Self {
        Network { near, far, forward: Way::new(forward), back: Way::new(back), now: Instant::ZERO }
    }

    /// Lets both ends send and receive until nothing more happens before `end`.
    pub fn run_until(&mut self, end: Instant) {
        while self.step(end) {}
        self.now = self.now.max(end);
    }

    /// Goes on to the next instant at which something happens, unless that is after `end`; says whether there was one.
    pub fn step(&mut self, end: Instant) -> bool {
        self.forward.take_from(&mut self.near, self.now);
        self.back.take_from(&mut self.far, self.now);
        let next = [self.forward.link.next(), self.back.link.next(), self.near.wake(), self.far.wake()];
        let Some(next) = next.into_iter().flatten().min().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        self.forward.give_to(&mut self.far, self.now);
        self.back.give_to(&mut self.near, self.now);
        true
    }

    /// The instant that was reached.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The two links, forward and back, to read their accounts.
    pub fn links(&self) -> (&Link, &Link) {
        (&self.forward.link, &self.back.link)
    }
}

/// A link, and what the packets inside it carry.
struct Way<C> {
    link: Link,
    /// What was sent as one packet, and how many of its virtual packets have not come out; gone once none is left.
    carried: VecDeque<Option<(C, u64)>>,
    /// The id of the first.
    first: u64,
}

impl<C> Way<C> {
    fn new(link: Link) -> Self {
        Way { link, carried: VecDeque::new(), first: 0 }
    }

    fn take_from<E: Endpoint<Sends = C>>(&mut self, endpoint: &mut E, now: Instant) {
        while let Some((packet, content)) = endpoint.send(now) {
            let id = self.first + self.carried.len() as u64;
            self.carried.push_back(Some((content, u64::from(packet.count))));
            self.link.push(Packet { id, ..packet }, now);
        }
    }

    fn give_to<E: Endpoint<Receives = C>>(&mut self, endpoint: &mut E, now: Instant) {
        while let Some(event) = self.link.poll(now) {
            match event {
                Event::Forward { packet, due } => {
                    if let Some((content, _)) = self.content(packet.id) {
                        endpoint.receive(&packet, content, due);
                    }
                    self.leave(&packet);
                }
                Event::Drop { packet, .. } => self.leave(&packet),
                Event::Duplicate { packet, .. } => {
                    if let Some((_, inside)) = self.content(packet.id) {
                        *inside += u64::from(packet.count);
                    }
                }
            }
        }
    }

    fn content(&mut self, id: u64) -> Option<&mut (C, u64)> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.carried.get_mut(index)?.as_mut()
    }

    fn leave(&mut self, packet: &Packet) {
        if let Some((_, inside)) = self.content(packet.id) {
            *inside = inside.saturating_sub(u64::from(packet.count));
            if *inside == 0 {
                self.carried[(packet.id - self.first) as usize] = None;
            }
        }
        while let Some(None) = self.carried.front() {
            self.carried.pop_front();
            self.first += 1;
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
        type Sends = u64;
        type Receives = u64;

        fn receive(&mut self, _packet: &Packet, acknowledged: &u64, _now: Instant) {
            self.acknowledged = *acknowledged;
        }

        fn send(&mut self, _now: Instant) -> Option<(Packet, u64)> {
            if (self.sent + 1 - self.acknowledged) * MSS > self.window.0 {
                return None;
            }
            self.sent += 1;
            Some((Packet::single(0, MSS as u32 + HEADERS), self.sent))
        }
    }

    impl Endpoint for Acknowledger {
        type Sends = u64;
        type Receives = u64;

        fn receive(&mut self, _packet: &Packet, number: &u64, _now: Instant) {
            assert_eq!(*number, self.received + 1, "lost or out of order");
            self.received += 1;
            self.owed += 1;
        }

        fn send(&mut self, _now: Instant) -> Option<(Packet, u64)> {
            self.owed = self.owed.checked_sub(1)?;
            Some((Packet::single(0, HEADERS), self.received - self.owed))
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
