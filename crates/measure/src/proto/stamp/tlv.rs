//! TLVs after a base packet (RFC 8972 §4), which a reflector echoes as the RFC requires, or padding.
//!
//! A reflector keeps every byte and changes only flags. It clears U of a known type, which is extra padding (§4.1), and
//! sets U of any other type. It sets M of a TLV with an impossible length and leaves the following bytes unchanged. The
//! padding of a TWAMP Light sender may return with other flag bits, which are not evaluated.

/// Flag that the sender sets, and that a reflector keeps for an unknown type.
pub const UNRECOGNISED: u8 = 0x80;
/// Flag that a reflector sets for an invalid length.
pub const MALFORMED: u8 = 0x40;
/// Type of extra padding (§4.1).
pub const EXTRA_PADDING: u8 = 1;
/// Bytes before the value: flags, type, length.
pub const HEAD: usize = 4;

/// Returns extra padding with a total length of `length` and a value of zeros. Below the header length it is plain
/// zeros without a TLV.
pub fn padding(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // A length has 16 bits; a datagram never holds more padding.
    if let Some(value) = length.checked_sub(HEAD).and_then(|value| u16::try_from(value).ok()) {
        bytes[0] = UNRECOGNISED;
        bytes[1] = EXTRA_PADDING;
        bytes[2..HEAD].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

/// Sets the flags of the TLVs in `bytes` as a reflector must.
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
