//! Errors of a capture file, with the number of the packet.

use std::io;

use super::compression::Compression;

/// Failure to read a capture file. Packets are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("the file is empty")]
    Empty,
    #[error("the file is not a pcap or pcapng capture: it begins with the bytes {}", hex(first))]
    NotACapture { first: Vec<u8> },
    #[error("the file is compressed with {0}")]
    Compressed(Compression),
    /// The file ends within its header.
    #[error("the file ends within its header")]
    TruncatedHeader,
    /// The file ends within a packet or a block. All packets before it are complete.
    #[error("the file ends within packet {packet}")]
    Truncated { packet: u64 },
    #[error("packet {packet} has {length} bytes: the limit is {maximum}")]
    TooLong { packet: u64, length: u64, maximum: u64 },
    #[error("the file is damaged at packet {packet}: {reason}")]
    Damaged { packet: u64, reason: DamageReason },
    #[error("cannot read packet {packet}: {source}")]
    Read { packet: u64, source: io::Error },
}

impl CaptureError {
    pub(super) fn not_a_capture(bytes: &[u8]) -> Self {
        CaptureError::NotACapture { first: bytes[..bytes.len().min(8)].to_vec() }
    }
}

/// Damage of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamageReason {
    #[error("a block has the length {length}")]
    BlockLength { length: u32 },
    #[error("a block begins with the length {first} and ends with the length {last}")]
    BlockLengths { first: u32, last: u32 },
    #[error("a section has an unknown byte order")]
    ByteOrder,
    #[error("the packet is longer than its block")]
    PacketLength,
    #[error("the packet names interface {interface}, and the section has {count}")]
    Interface { interface: u32, count: u32 },
    #[error("the file has more than {maximum} interfaces")]
    TooManyInterfaces { maximum: u32 },
    #[error("a block has more than {maximum} bytes of options")]
    TooManyOptions { maximum: usize },
    #[error("{bytes} bytes without a packet precede the packet")]
    NoPackets { bytes: u64 },
}

/// Returns bytes as hexadecimal numbers.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
