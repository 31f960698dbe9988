//! Internet checksum (RFC 1071), and 16-bit fields in network order.

/// Reads the 16 bits at `at` in network order.
pub(super) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_be_bytes(*bytes))
}

/// Writes 16 bits at `at`, which must exist.
pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Adds the 16-bit words of `bytes`. An odd last byte counts as if a zero followed.
pub(super) fn sum_words(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks_exact(2);
    let odd = pairs.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    pairs.map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u64>() + odd
}

/// Adds the carries until none is left.
pub(super) fn fold_carries(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Updates a checksum after a change of one word (RFC 1624, equation 3). A wrong checksum stays wrong.
pub(super) fn update_checksum(checksum: u16, before: u16, after: u16) -> u16 {
    !fold_carries(u64::from(!checksum) + u64::from(!before) + u64::from(after))
}
