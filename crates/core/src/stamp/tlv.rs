//! What follows a base packet: TLVs (RFC 8972 §4), echoed as the RFC says, or padding.
//!
//! A reflector keeps every byte of them and changes flags alone: U is cleared of a type it knows, which is extra padding
//! (§4.1), and set of any other; M is set of one whose length cannot be, and what follows it is left as it came. Of a
//! TWAMP Light sender's padding the same may come out with other flag bits, which nobody reads.

/// Set by the sender, and left by a reflector that does not know the type.
pub const UNRECOGNISED: u8 = 0x80;
/// Set by a reflector: the length makes no sense.
pub const MALFORMED: u8 = 0x40;
/// Type of extra padding (§4.1).
pub const EXTRA_PADDING: u8 = 1;
/// Bytes before the value: flags, type, length.
pub const HEAD: usize = 4;

/// Extra padding that takes `length` bytes in all, zeros for a value; less than a head is no TLV but plain zeros.
pub fn padding(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // A length has 16 bits: more padding than a datagram holds does not come up.
    if let Some(value) = length.checked_sub(HEAD).and_then(|value| u16::try_from(value).ok()) {
        bytes[0] = UNRECOGNISED;
        bytes[1] = EXTRA_PADDING;
        bytes[2..HEAD].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// Sets the flags of the TLVs in `bytes` as a reflector has to.
pub fn reflect(mut bytes: &mut [u8]) {
    while bytes.len() >= HEAD {
        let length = HEAD + usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        if length > bytes.len() {
            bytes[0] |= MALFORMED;
            return;
        }
        match bytes[1] {
            EXTRA_PADDING => bytes[0] &= !UNRECOGNISED,
            _ => bytes[0] |= UNRECOGNISED,
        }
        bytes = &mut bytes[length..];
    }
}
