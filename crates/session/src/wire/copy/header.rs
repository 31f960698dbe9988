//! Block header on a data stream.
//!
//! The header is binary and of fixed length, unlike the messages of the control connection. There is one header per
//! block, and thus one per small file.

use crate::wire::copy::digest::BlockHash;
use crate::wire::copy::options::Verify;

/// Header before each block on a data stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// Entry number of the file.
    pub file: u32,
    /// Start of the block in bytes from the start of the file.
    pub offset: u64,
    /// Bytes of payload that follow; of a hole, the length of each block.
    pub length: u32,
    /// Hash of the payload or of the hole; zeros without verification.
    pub hash: BlockHash,
    /// Level of a hole: 2^level blocks of `length` bytes are all zeros and are not sent. The next header follows.
    pub hole: Option<u8>,
    /// Method of the hash.
    pub verify: Verify,
}

/// Flag of a header without payload.
const HOLE: u8 = 0b10;

/// Reason why bytes are no valid block header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The stream is out of step, or contains other data.
    #[error("block header of unknown kind {0:#04x}")]
    Kind(u8),
    /// A flag of a newer version.
    #[error("block header with unknown flags {0:#04x}")]
    Flags(u8),
    /// Reserved bytes are not zero.
    #[error("block header with reserved bytes in use")]
    Reserved,
    /// On an unencrypted stream: modified, deleted or repeated on the path, or from another stream.
    #[error("block header {0} of an unencrypted stream was modified on the path: its authentication code is wrong")]
    Seal(u64),
}

impl BlockHeader {
    /// Bytes of a header: kind `B`, flags, level of a hole, a reserved byte; file, offset, length, hash. Integers are
    /// big-endian. The flags give the hash method: 0 BLAKE3, 4 XXH3 (16 bytes, the rest zero), 8 none. Flag 2 marks a
    /// hole, flag 1 an authentication code.
    pub const LENGTH: usize = 52;

    /// Returns the header as bytes.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = b'B';
        bytes[1] = flags(self.verify) | if self.hole.is_some() { HOLE } else { 0 };
        bytes[2] = self.hole.unwrap_or(0);
        bytes[4..8].copy_from_slice(&self.file.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes[20..].copy_from_slice(&self.hash.0);
        bytes
    }

    /// Decodes a header. `lfn_copy::proto::file_assembly::FileAssembly` checks the range.
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Result<Self, HeaderError> {
        let [kind, flags, reserved @ ..] = bytes;
        if *kind != b'B' {
            return Err(HeaderError::Kind(*kind));
        }
        let made_by = |verify: &Verify| self::flags(*verify) == *flags & !HOLE;
        let verify = [Verify::Blake3, Verify::Xxh3, Verify::Off].into_iter().find(made_by);
        let verify = verify.ok_or(HeaderError::Flags(*flags))?;
        let hole = (*flags & HOLE != 0).then_some(reserved[0]);
        if (hole.is_none() && reserved[0] != 0) || reserved[1] != 0 {
            return Err(HeaderError::Reserved);
        }
        Ok(BlockHeader {
            file: u32::from_be_bytes(field(bytes, 4)),
            offset: u64::from_be_bytes(field(bytes, 8)),
            length: u32::from_be_bytes(field(bytes, 16)),
            hash: BlockHash(field(bytes, 20)),
            hole,
            verify,
        })
    }
}

/// Bit 0 marks an authenticated header, bit 1 a hole.
fn flags(verify: Verify) -> u8 {
    match verify {
        Verify::Blake3 => 0,
        Verify::Xxh3 => 4,
        Verify::Off => 8,
    }
}

fn field<const N: usize>(bytes: &[u8; BlockHeader::LENGTH], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::array::uniform::<_, { BlockHeader::LENGTH }>(any::<u8>())) {
            let mut bytes = bytes;
            let _ = BlockHeader::decode(&bytes);
            bytes[..4].copy_from_slice(b"B\0\0\0");
            prop_assert_eq!(BlockHeader::decode(&bytes).unwrap().encode(), bytes);
        }

        #[test]
        fn headers_round_trip(file: u32, offset: u64, length: u32, hash: [u8; 32], hole: Option<u8>, kind in 0usize..3) {
            let verify = [Verify::Blake3, Verify::Xxh3, Verify::Off][kind];
            let header = BlockHeader { file, offset, length, hash: BlockHash(hash), hole, verify };
            prop_assert_eq!(BlockHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn reserved_fields_are_rejected() {
        let hash = BlockHash([0; 32]);
        let verify = Verify::Blake3;
        let good = BlockHeader { file: 0, offset: 0, length: 1, hash, hole: None, verify }.encode();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            BlockHeader::decode(&bytes)
        };
        assert_eq!(with(0, b'E'), Err(HeaderError::Kind(b'E')));
        for flags in [1, 3, 5, 12, 16] {
            assert_eq!(with(1, flags), Err(HeaderError::Flags(flags)));
        }
        assert_eq!((with(2, 1), with(3, 1)), (Err(HeaderError::Reserved), Err(HeaderError::Reserved)));
    }
}
