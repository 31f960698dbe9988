//! Writer of pcapng files (draft-ietf-opsawg-pcapng): the blocks that tcpdump and Wireshark need for frames of Ethernet.
//!
//! A file begins with [`write_section`] and one [`write_interface`] for each interface. All functions append to `out`.
//! Timestamps are nanoseconds since 1970. The byte order is little endian on any machine.

/// Section header block (§4.1). It is always the first block.
const SECTION: u32 = 0x0a0d_0d0a;
/// Interface description block (§4.2).
const INTERFACE: u32 = 1;
/// Interface statistics block (§4.6).
const STATISTICS: u32 = 5;
/// Enhanced packet block (§4.3).
const PACKET: u32 = 6;
/// Magic number that shows the byte order.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
/// Timestamps are in units of 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Option code that all blocks have.
const COMMENT: u16 = 1;
const END_OF_OPTIONS: u16 = 0;

/// A captured frame of one interface.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPacket<'a> {
    /// Number of the interface in this section, from 0.
    pub interface: u32,
    /// Time of the capture, nanoseconds since 1970.
    pub time: u64,
    /// Captured part of the frame, from its start.
    pub bytes: &'a [u8],
    /// Bytes of the whole frame.
    pub length: u32,
    pub is_inbound: bool,
    /// Number of the packet, equal for each capture of the same packet (`epb_packetid`).
    pub id: Option<u64>,
    pub comment: Option<&'a str>,
}

/// Writes the section header block: the name of the program, and a comment.
pub fn write_section(application: &str, comment: &str, out: &mut Vec<u8>) {
    const APPLICATION: u16 = 4;
    let mut block = Block::begin(out, SECTION);
    block.u32(BYTE_ORDER);
    // Version 1.0. The length of the section is not known.
    block.u16(1);
    block.u16(0);
    block.u64(u64::MAX);
    block.option(APPLICATION, application.as_bytes());
    block.option(COMMENT, comment.as_bytes());
    block.end_with_options();
}

/// Writes the description of the next interface. Frames are captured up to `snap_length` bytes.
pub fn write_interface(name: &str, description: &str, snap_length: u32, out: &mut Vec<u8>) {
    const NAME: u16 = 2;
    const DESCRIPTION: u16 = 3;
    const RESOLUTION: u16 = 9;
    let mut block = Block::begin(out, INTERFACE);
    block.u16(LINKTYPE_ETHERNET);
    block.u16(0);
    block.u32(snap_length);
    block.option(NAME, name.as_bytes());
    block.option(DESCRIPTION, description.as_bytes());
    block.option(RESOLUTION, &[NANOSECONDS]);
    block.end_with_options();
}

/// Writes a captured frame.
pub fn write_packet(packet: &CapturedPacket<'_>, out: &mut Vec<u8>) {
    const FLAGS: u16 = 2;
    const PACKET_ID: u16 = 5;
    let mut block = Block::begin(out, PACKET);
    block.u32(packet.interface);
    block.time(packet.time);
    block.u32(packet.bytes.len() as u32);
    block.u32(packet.length);
    block.padded(packet.bytes);
    if let Some(comment) = packet.comment {
        block.option(COMMENT, comment.as_bytes());
    }
    // The lowest two bits are 1 for inbound and 2 for outbound.
    block.option(FLAGS, &if packet.is_inbound { 1_u32 } else { 2 }.to_le_bytes());
    if let Some(id) = packet.id {
        block.option(PACKET_ID, &id.to_le_bytes());
    }
    block.end_with_options();
}

/// Writes the counts of an interface at a time: frames received, and frames of these that are not in the file.
pub fn write_statistics(interface: u32, time: u64, received: u64, dropped: u64, out: &mut Vec<u8>) {
    const RECEIVED: u16 = 4;
    const DROPPED: u16 = 5;
    let mut block = Block::begin(out, STATISTICS);
    block.u32(interface);
    block.time(time);
    block.option(RECEIVED, &received.to_le_bytes());
    block.option(DROPPED, &dropped.to_le_bytes());
    block.end_with_options();
}

/// A block: its type, its length, the body, and its length again. All parts are multiples of four bytes (§3.1).
struct Block<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Block<'a> {
    fn begin(out: &'a mut Vec<u8>, kind: u32) -> Self {
        let start = out.len();
        let mut block = Block { out, start };
        block.u32(kind);
        block.u32(0);
        block
    }

    fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a timestamp. The upper half comes first in any byte order.
    fn time(&mut self, nanos: u64) {
        self.u32((nanos >> 32) as u32);
        self.u32(nanos as u32);
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.out.extend_from_slice(&[0; 3][..padding]);
    }

    /// Writes an option (§3.5).
    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    fn end_with_options(mut self) {
        self.u16(END_OF_OPTIONS);
        self.u16(0);
        let length = (self.out.len() - self.start + 4) as u32;
        self.u32(length);
        self.out[self.start + 4..self.start + 8].copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_padded_to_whole_words() {
        for length in 0..9 {
            let mut out = vec![0xff; length];
            let mut block = Block::begin(&mut out, PACKET);
            block.padded(&vec![1; length]);
            block.option(COMMENT, &vec![2; length]);
            block.end_with_options();
            let block = &out[length..];
            assert_eq!(block.len(), 8 + length.next_multiple_of(4) + 4 + length.next_multiple_of(4) + 4 + 4);
            assert_eq!(block[4..8], (block.len() as u32).to_le_bytes());
            assert_eq!(block[block.len() - 4..], block[4..8]);
        }
    }
}
