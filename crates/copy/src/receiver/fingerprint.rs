//! Short hashes of names, for sets of millions of names.

/// Hash of a name.
pub(super) type Fingerprint = u64;

/// Returns the fingerprint of a name. A collision made on purpose can only save an entry from deletion.
pub(super) fn fingerprint(name: &[u8]) -> Fingerprint {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(name).as_bytes()[..8]);
    u64::from_le_bytes(first)
}
