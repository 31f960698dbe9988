//! Sizes of the data packets: the largest usual one is the MSS of the path.

/// Number of sizes that are counted.
const MAX_SIZES: usize = 4;
/// Minimum share of the counted packets, as a divisor, that have a usual size. Receive offload can join two parts of a
/// packet to an unusual size.
const MIN_SHARE_DIVISOR: u32 = 64;

/// Counts of the largest sizes of data packets, the largest first.
#[derive(Debug, Default)]
pub(crate) struct SegmentSizes {
    sizes: [SegmentSize; MAX_SIZES],
}

/// A payload, and the packets that have it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentSize {
    /// Payload of one packet, bytes.
    pub(crate) payload: u32,
    pub(crate) packets: u32,
}

impl SegmentSizes {
    /// Counts a packet with this payload, bytes.
    pub(crate) fn add(&mut self, payload: u32) {
        match self.sizes.iter().position(|size| size.payload <= payload) {
            Some(place) if self.sizes[place].payload == payload => self.sizes[place].add_packet(),
            Some(place) => {
                self.sizes[place..].rotate_right(1);
                self.sizes[place] = SegmentSize { payload, packets: 1 };
            }
            None => {}
        }
    }

    /// Counts a super-packet: those of full packets have a multiple of their payload.
    pub(crate) fn add_super_packet(&mut self, payload: u32) {
        let divides = |size: &&mut SegmentSize| size.payload > 0 && payload.is_multiple_of(size.payload);
        if let Some(size) = self.sizes.iter_mut().find(divides) {
            size.add_packet();
        }
    }

    /// Returns the largest usual size.
    pub(crate) fn largest_usual(&self) -> SegmentSize {
        let total = self.sizes.iter().fold(0_u32, |sum, size| sum.saturating_add(size.packets));
        let is_usual = |size: &&SegmentSize| size.packets >= total / MIN_SHARE_DIVISOR;
        self.sizes.iter().find(is_usual).copied().unwrap_or_default()
    }
}

impl SegmentSize {
    fn add_packet(&mut self) {
        self.packets = self.packets.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual(sizes: &SegmentSizes) -> u32 {
        sizes.largest_usual().payload
    }

    #[test]
    fn rare_larger_packets_are_not_the_usual_size() {
        let mut sizes = SegmentSizes::default();
        (0..5).for_each(|_| sizes.add(1400));
        assert_eq!(usual(&sizes), 1400);
        (0..2000).for_each(|_| sizes.add(748));
        assert_eq!(usual(&sizes), 748);
    }

    #[test]
    fn super_packets_show_the_size_of_their_packets() {
        let mut sizes = SegmentSizes::default();
        [1000, 948, 1000, 948].into_iter().for_each(|payload| sizes.add(payload));
        (0..500).for_each(|_| sizes.add_super_packet(2 * 948));
        assert_eq!((usual(&sizes), sizes.largest_usual().packets), (948, 502));
    }

    #[test]
    fn short_packets_do_not_hide_full_ones() {
        let mut sizes = SegmentSizes::default();
        (0..100_000).for_each(|number| sizes.add(if number % 50 == 0 { 1448 } else { number % 700 }));
        assert_eq!(usual(&sizes), 1448);
    }
}
