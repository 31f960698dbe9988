//! Sizes of the data packets: the largest usual one is the MSS of the path.

/// Number of sizes that are counted.
const MAX_SIZES: usize = 4;
/// Minimum share of the counted packets, as a divisor, that have a usual size. Receive offload can join two parts of a
/// packet to an unusual size.
const MIN_SHARE_DIVISOR: u32 = 64;

/// Counts of the largest sizes of data packets, the largest first.
#[derive(Debug, Default)]
pub(crate) struct SegmentSizes {
    sizes: [(u16, u16); MAX_SIZES],
}

impl SegmentSizes {
    /// Counts a packet with this payload, and returns the largest usual payload, both in bytes.
    pub(crate) fn add(&mut self, payload: u32) -> u32 {
        let size = u16::try_from(payload).unwrap_or(u16::MAX);
        match self.sizes.iter().position(|(known, _)| *known <= size) {
            Some(place) if self.sizes[place].0 == size => {
                self.sizes[place].1 += 1;
                if self.sizes[place].1 == u16::MAX {
                    self.sizes.iter_mut().for_each(|(_, count)| *count = count.div_ceil(2));
                }
            }
            Some(place) => {
                self.sizes[place..].rotate_right(1);
                self.sizes[place] = (size, 1);
            }
            None => {}
        }
        self.largest_usual()
    }

    fn largest_usual(&self) -> u32 {
        let total: u32 = self.sizes.iter().map(|(_, count)| u32::from(*count)).sum();
        let is_usual = |(_, count): &&(u16, u16)| u32::from(*count) * MIN_SHARE_DIVISOR >= total;
        self.sizes.iter().find(is_usual).map_or(0, |(size, _)| u32::from(*size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_larger_packets_are_not_the_usual_size() {
        let mut sizes = SegmentSizes::default();
        assert_eq!((0..5).map(|_| sizes.add(1400)).last(), Some(1400));
        assert_eq!((0..2000).map(|_| sizes.add(748)).last(), Some(748));
    }

    #[test]
    fn short_packets_do_not_hide_full_ones() {
        let mut sizes = SegmentSizes::default();
        let mss = (0..100_000).map(|number| sizes.add(if number % 50 == 0 { 1448 } else { number % 700 })).last();
        assert_eq!(mss, Some(1448));
    }
}
