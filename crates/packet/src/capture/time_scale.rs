//! Time stamps of an interface: their unit and their offset.

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Scale of the time stamps of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeScale {
    unit: TimeUnit,
    /// Seconds that are added to each time stamp (`if_tsoffset`).
    offset: i64,
}

/// Unit of a time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeUnit {
    /// This number of nanoseconds.
    Nanoseconds(u64),
    /// A nanosecond divided by this number.
    NanosecondParts(u64),
    /// A second divided by this power of 2.
    BinaryFraction(u32),
}

impl TimeScale {
    pub(super) const MICROSECONDS: TimeScale = TimeScale { unit: TimeUnit::Nanoseconds(1_000), offset: 0 };
    pub(super) const NANOSECONDS: TimeScale = TimeScale { unit: TimeUnit::Nanoseconds(1), offset: 0 };

    /// Creates the scale of an interface from the options `if_tsresol` and `if_tsoffset` of pcapng.
    pub(super) fn new(resolution: u8, offset: i64) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        let unit = if resolution & 0x80 != 0 {
            TimeUnit::BinaryFraction(exponent)
        } else if exponent <= 9 {
            TimeUnit::Nanoseconds(10_u64.pow(9 - exponent))
        } else {
            // In units this small, 64 bits count less than two nanoseconds.
            TimeUnit::NanosecondParts(10_u64.checked_pow(exponent - 9).unwrap_or(u64::MAX))
        };
        TimeScale { unit, offset }
    }

    /// Returns nanoseconds since 1970, limited to the range of the type.
    pub(super) fn nanos(self, stamp: u64) -> u64 {
        let nanos = match self.unit {
            TimeUnit::Nanoseconds(factor) => stamp.saturating_mul(factor),
            TimeUnit::NanosecondParts(parts) => stamp / parts,
            TimeUnit::BinaryFraction(exponent) => {
                let nanos = (u128::from(stamp) * u128::from(SECOND)) >> exponent;
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        };
        let offset = self.offset.unsigned_abs().saturating_mul(SECOND);
        if self.offset < 0 { nanos.saturating_sub(offset) } else { nanos.saturating_add(offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resolution_gives_nanoseconds() {
        let second = |resolution, units| TimeScale::new(resolution, 0).nanos(units);
        assert_eq!(second(0, 7), 7 * SECOND);
        assert_eq!(second(3, 7_001), 7_001_000_000);
        assert_eq!(second(6, 7_000_001), 7_000_001_000);
        assert_eq!(second(9, 7_000_000_001), 7_000_000_001);
        assert_eq!(second(12, 7_000_000_001_999), 7_000_000_001);
        assert_eq!(second(0x80, 7), 7 * SECOND);
        assert_eq!(second(0x80 | 10, 7 * 1024 + 512), 7_500_000_000);
        assert_eq!(second(0x80 | 63, 1 << 62), SECOND / 2);
        assert_eq!(second(0x80 | 127, u64::MAX), 0);
        assert_eq!(second(127, u64::MAX - 1), 0);
        assert_eq!(second(0, u64::MAX), u64::MAX);
    }

    #[test]
    fn offset_shifts_times_and_saturates() {
        assert_eq!(TimeScale::new(6, 100).nanos(5), 100 * SECOND + 5_000);
        assert_eq!(TimeScale::new(6, -1).nanos(2_000_000), SECOND);
        assert_eq!(TimeScale::new(6, -100).nanos(5), 0);
        assert_eq!(TimeScale::new(6, i64::MIN).nanos(5), 0);
        assert_eq!(TimeScale::new(6, i64::MAX).nanos(5), u64::MAX);
    }
}
