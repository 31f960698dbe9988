//! The Internet checksum (RFC 1071), and 16-bit fields in network order.

/// The 16 bits at `at`, in network order.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_be_bytes(*bytes))
}

/// Writes 16 bits at `at`, which must be there.
pub(super) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The 16-bit words of `bytes`, added up; an odd byte at the end counts as if a zero followed.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks_exact(2);
    let odd = pairs.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    pairs.map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u64>() + odd
}

/// Adds the carries back in until none is left.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// What a checksum becomes when a word it covers changes (RFC 1624, equation 3). A wrong one stays wrong.
pub(super) fn replaced(checksum: u16, before: u16, after: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!before) + u64::from(after))
}
