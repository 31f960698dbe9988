//! Sequence numbers of 32 bits as offsets that do not wrap.

/// Offset of the first sequence number: earlier numbers have smaller offsets.
const ORIGIN: u64 = 1 << 32;

/// Converts the sequence numbers of one direction to offsets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Offsets {
    /// Sequence number of the offset 0.
    origin: Option<u32>,
    /// Last offset, near which the next number is.
    last: u64,
}

impl Offsets {
    /// Sets the first sequence number, unless one is known.
    pub(crate) fn start_at(&mut self, sequence: u32) {
        if self.origin.is_none() {
            self.origin = Some(sequence.wrapping_sub(ORIGIN as u32));
            self.last = ORIGIN;
        }
    }

    /// Returns true if no number is known.
    pub(crate) fn is_empty(self) -> bool {
        self.origin.is_none()
    }

    /// Returns the offset of a number that is at most 2^31 away from the last one.
    pub(crate) fn of(&mut self, sequence: u32) -> u64 {
        self.start_at(sequence);
        let low = sequence.wrapping_sub(self.origin.unwrap_or_default());
        let distance = low.wrapping_sub(self.last as u32) as i32;
        let offset = self.last.saturating_add_signed(i64::from(distance));
        self.last = self.last.max(offset);
        offset
    }

    /// Returns the offset relative to the first number; negative numbers are zero.
    pub(crate) fn relative(offset: u64) -> u64 {
        offset.saturating_sub(ORIGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_continue_after_they_wrap() {
        let mut offsets = Offsets::default();
        let first = offsets.of(u32::MAX - 9);
        assert_eq!(offsets.of(10) - first, 20);
        assert_eq!(first - offsets.of(u32::MAX - 19), 10);
        let mut at = offsets.of(10);
        for step in 1..20_u32 {
            let next = offsets.of(10_u32.wrapping_add(step.wrapping_mul(1 << 30)));
            assert_eq!(next - at, 1 << 30);
            at = next;
        }
    }
}
