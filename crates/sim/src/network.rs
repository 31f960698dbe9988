//! Two endpoints and the links between them.
//!
//! The link model knows packets by description only. This module keeps the content of each packet until all its virtual
//! packets have left the link, as the emulator keeps their bytes. It models no protocol; a [`SimEndpoint`] may.

use std::collections::VecDeque;

use lfn_base::time::Instant;
use lfn_link::{Link, LinkEvent, Packet};

/// One end of a simulated path.
pub trait SimEndpoint {
    /// Content of the packets that the endpoint sends.
    type Sends;
    /// Content of the packets that the endpoint receives.
    type Receives;

    /// Handles a packet from the link: some or all virtual packets of one sent packet.
    fn receive(&mut self, packet: &Packet, content: &Self::Receives, now: Instant);

    /// Returns a packet to send now, with its content. The network calls this until `None` after every instant with an
    /// event. The network sets the packet's `id`.
    fn send(&mut self, now: Instant) -> Option<(Packet, Self::Sends)>;

    /// Returns the next timer of the endpoint. The timer must be later than the last `send` that returned `None`, or
    /// the simulated time would not advance.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Two endpoints and the links between them.
pub struct SimNetwork<Near: SimEndpoint, Far: SimEndpoint> {
    /// Sends over the forward link.
    pub near: Near,
    /// Sends over the return link.
    pub far: Far,
    forward: LoadedLink<Near::Sends>,
    back: LoadedLink<Far::Sends>,
    now: Instant,
}

impl<Near, Far> SimNetwork<Near, Far>
where
    Near: SimEndpoint,
    Far: SimEndpoint<Sends = Near::Receives, Receives = Near::Sends>,
{
    /// Creates a network at the origin of time, with nothing sent.
    pub fn new(near: Near, far: Far, forward: Link, back: Link) -> Self {
        SimNetwork { near, far, forward: LoadedLink::new(forward), back: LoadedLink::new(back), now: Instant::ZERO }
    }

    /// Runs both ends until no event is left before `end`.
    pub fn run_until(&mut self, end: Instant) {
        while self.step(end) {}
        self.now = self.now.max(end);
    }

    /// Advances to the next event, unless it is after `end`; returns whether there was one.
    pub fn step(&mut self, end: Instant) -> bool {
        self.forward.push_from(&mut self.near, self.now);
        self.back.push_from(&mut self.far, self.now);
        let next = [
            self.forward.link.next_event_at(),
            self.back.link.next_event_at(),
            self.near.poll_timeout(),
            self.far.poll_timeout(),
        ];
        let Some(next) = next.into_iter().flatten().min().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        self.forward.deliver_to(&mut self.far, self.now);
        self.back.deliver_to(&mut self.near, self.now);
        true
    }

    /// Returns the current simulated time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the forward and the return link, for their statistics.
    pub fn links(&self) -> (&Link, &Link) {
        (&self.forward.link, &self.back.link)
    }
}

/// A link and the content of the packets in transit.
struct LoadedLink<C> {
    link: Link,
    /// Content of each sent packet, and the number of its virtual packets that have not left the link; `None` when all
    /// have left.
    in_transit: VecDeque<Option<(C, u64)>>,
    /// Id of the first entry of `in_transit`.
    first: u64,
}

impl<C> LoadedLink<C> {
    fn new(link: Link) -> Self {
        LoadedLink { link, in_transit: VecDeque::new(), first: 0 }
    }

    fn push_from<E: SimEndpoint<Sends = C>>(&mut self, endpoint: &mut E, now: Instant) {
        while let Some((packet, content)) = endpoint.send(now) {
            let id = self.first + self.in_transit.len() as u64;
            self.in_transit.push_back(Some((content, u64::from(packet.count))));
            self.link.push(Packet { id, ..packet }, now);
        }
    }

    fn deliver_to<E: SimEndpoint<Receives = C>>(&mut self, endpoint: &mut E, now: Instant) {
        while let Some(event) = self.link.poll(now) {
            match event {
                LinkEvent::Forward { packet, due } => {
                    if let Some((content, _)) = self.content(packet.id) {
                        endpoint.receive(&packet, content, due);
                    }
                    self.release(&packet);
                }
                LinkEvent::Drop { packet, .. } => self.release(&packet),
                LinkEvent::Duplicate { packet, .. } => {
                    if let Some((_, remaining)) = self.content(packet.id) {
                        *remaining += u64::from(packet.count);
                    }
                }
            }
        }
    }

    fn content(&mut self, id: u64) -> Option<&mut (C, u64)> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.in_transit.get_mut(index)?.as_mut()
    }

    fn release(&mut self, packet: &Packet) {
        if let Some((_, remaining)) = self.content(packet.id) {
            *remaining = remaining.saturating_sub(u64::from(packet.count));
            if *remaining == 0 {
                self.in_transit[(packet.id - self.first) as usize] = None;
            }
        }
        while let Some(None) = self.in_transit.front() {
            self.in_transit.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::units::{BitRate, Bytes};
    use lfn_link::{LinkConfig, LinkDirection};

    use super::*;

    const MSS: u64 = 1448;
    /// Ethernet, IPv4, and TCP with timestamps.
    const HEADERS: u32 = 66;

    /// Keeps a fixed number of payload bytes unacknowledged, whole segments only, like TCP limited by rwnd after
    /// start-up.
    struct WindowSender {
        window: Bytes,
        sent: u64,
        acknowledged: u64,
    }

    /// Acknowledges every segment at once.
    struct Acknowledger {
        received: u64,
        unacknowledged: u64,
    }

    impl SimEndpoint for WindowSender {
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

    impl SimEndpoint for Acknowledger {
        type Sends = u64;
        type Receives = u64;

        fn receive(&mut self, _packet: &Packet, number: &u64, _now: Instant) {
            assert_eq!(*number, self.received + 1, "lost or out of order");
            self.received += 1;
            self.unacknowledged += 1;
        }

        fn send(&mut self, _now: Instant) -> Option<(Packet, u64)> {
            self.unacknowledged = self.unacknowledged.checked_sub(1)?;
            Some((Packet::single(0, HEADERS), self.received - self.unacknowledged))
        }
    }

    /// Measures the goodput over 40 round trips of the ACTS path, after 10 round trips to settle.
    fn goodput(window: Bytes) -> f64 {
        let forward = LinkConfig {
            rate: BitRate(135_000_000).into(),
            delay: Duration::from_micros(269_500).into(),
            // Two BDPs, because the sender has no slow start.
            queue: Bytes(18_191_250).into(),
            ..LinkConfig::default()
        };
        let back = LinkConfig { direction: LinkDirection::Return, ..forward.clone() };
        let sender = WindowSender { window, sent: 0, acknowledged: 0 };
        let receiver = Acknowledger { received: 0, unacknowledged: 0 };
        let (forward, back) = (Link::new(&forward).unwrap(), Link::new(&back).unwrap());
        let mut network = SimNetwork::new(sender, receiver, forward, back);
        let at = |trips: u64| Instant::from_nanos(trips * 539_000_000);
        network.run_until(at(10));
        let before = network.far.received;
        network.run_until(at(50));
        let bits = (network.far.received - before) * MSS * 8;
        assert_eq!(network.links().0.stats().dropped.total().packets, 0);
        bits as f64 / (at(50) - at(10)).as_secs_f64()
    }

    #[test]
    fn half_a_bdp_of_window_gives_half_the_rate() {
        // 000: 4,547,813 B / 539 ms = 67.5 Mb/s. A partial segment is not sent, and a segment and its acknowledgement
        // take 94 µs to send: 3,140 segments every 539.094 ms.
        let expected = 3_140.0 * 1_448.0 * 8.0 / 0.539_094;
        let measured = goodput(Bytes(4_547_813));
        assert!((measured / expected - 1.0).abs() < 0.002, "{measured} not {expected}");
        assert!((measured / 67.5e6 - 1.0).abs() < 0.002, "{measured}");
    }

    #[test]
    fn window_above_the_bdp_fills_the_link() {
        // Only the header share is lost: 135 Mb/s × 1448/1514 = 129.1 Mb/s.
        let expected = 135e6 * 1_448.0 / 1_514.0;
        let measured = goodput(Bytes(12_000_000));
        assert!((measured / expected - 1.0).abs() < 0.0005, "{measured} not {expected}");
    }
}
