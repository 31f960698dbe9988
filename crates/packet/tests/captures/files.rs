//! Capture files of both formats, byte by byte.

use std::io::{self, Read};

use lfn_packet::LinkLayer;
use lfn_packet::capture::{CaptureError, CaptureReader};

/// Byte order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

pub const ORDERS: [Order; 2] = [Order::Little, Order::Big];

impl Order {
    pub fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    pub fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }

    pub fn u64(self, value: u64) -> [u8; 8] {
        match self {
            Order::Little => value.to_le_bytes(),
            Order::Big => value.to_be_bytes(),
        }
    }
}

/// Classic pcap file.
pub struct PcapFile {
    order: Order,
    is_modified: bool,
    pub bytes: Vec<u8>,
}

pub const MICROSECONDS: u32 = 0xa1b2_c3d4;
pub const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Magic of the format with eight more bytes in each record header.
pub const MODIFIED: u32 = 0xa1b2_cd34;

impl PcapFile {
    pub fn new(order: Order, magic: u32, link: u32) -> Self {
        let mut bytes = Vec::new();
        bytes.extend(order.u32(magic));
        bytes.extend(order.u16(2));
        bytes.extend(order.u16(4));
        for field in [0, 0, 65_535, link] {
            bytes.extend(order.u32(field));
        }
        PcapFile { order, is_modified: magic == MODIFIED, bytes }
    }

    pub fn packet(mut self, seconds: u32, fraction: u32, frame: &[u8], original: u32) -> Self {
        for field in [seconds, fraction, frame.len() as u32, original] {
            self.bytes.extend(self.order.u32(field));
        }
        if self.is_modified {
            self.bytes.extend([7; 8]);
        }
        self.bytes.extend(frame);
        self
    }
}

/// pcapng file.
pub struct PcapngFile {
    pub order: Order,
    pub bytes: Vec<u8>,
}

impl PcapngFile {
    pub fn new(order: Order) -> Self {
        PcapngFile { order, bytes: Vec::new() }.section(order)
    }

    /// Begins a section in a byte order.
    pub fn section(mut self, order: Order) -> Self {
        self.order = order;
        let mut body = order.u32(0x1a2b_3c4d).to_vec();
        body.extend(order.u16(1));
        body.extend(order.u16(0));
        body.extend([0xff; 8]);
        body.extend(self.option(4, b"test"));
        self.block(0x0a0d_0d0a, &body)
    }

    pub fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = self.order.u16(code).to_vec();
        option.extend(self.order.u16(value.len() as u16));
        option.extend(value);
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    pub fn block(mut self, kind: u32, body: &[u8]) -> Self {
        let length = (body.len() as u32).next_multiple_of(4) + 12;
        self.bytes.extend(self.order.u32(kind));
        self.bytes.extend(self.order.u32(length));
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend(self.order.u32(length));
        self
    }

    /// Adds an interface with options of code and value.
    pub fn interface(self, link: u16, snap: u32, options: &[(u16, &[u8])]) -> Self {
        let mut body = self.order.u16(link).to_vec();
        body.extend([0; 2]);
        body.extend(self.order.u32(snap));
        for (code, value) in options {
            body.extend(self.option(*code, value));
        }
        self.block(1, &body)
    }

    pub fn packet(self, interface: u32, stamp: u64, frame: &[u8], original: u32) -> Self {
        self.packet_with(interface, stamp, frame, original, &[])
    }

    pub fn packet_with(
        self,
        interface: u32,
        stamp: u64,
        frame: &[u8],
        original: u32,
        options: &[(u16, &[u8])],
    ) -> Self {
        let mut body = Vec::new();
        for field in [interface, (stamp >> 32) as u32, stamp as u32, frame.len() as u32, original] {
            body.extend(self.order.u32(field));
        }
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        for (code, value) in options {
            body.extend(self.option(*code, value));
        }
        self.block(6, &body)
    }

    pub fn simple_packet(self, frame: &[u8], original: u32) -> Self {
        let mut body = self.order.u32(original).to_vec();
        body.extend(frame);
        self.block(3, &body)
    }

    pub fn obsolete_packet(self, interface: u16, drops: u16, stamp: u64, frame: &[u8]) -> Self {
        let mut body = self.order.u16(interface).to_vec();
        body.extend(self.order.u16(drops));
        for field in [(stamp >> 32) as u32, stamp as u32, frame.len() as u32, frame.len() as u32] {
            body.extend(self.order.u32(field));
        }
        body.extend(frame);
        self.block(2, &body)
    }

    /// Adds statistics of an interface with counts of code and value.
    pub fn statistics(self, interface: u32, counts: &[(u16, u64)]) -> Self {
        let mut body = Vec::new();
        for field in [interface, 0, 0] {
            body.extend(self.order.u32(field));
        }
        for (code, count) in counts {
            body.extend(self.option(*code, &self.order.u64(*count)));
        }
        self.block(5, &body)
    }
}

/// Frame that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub at: u64,
    pub interface: u32,
    pub link: LinkLayer,
    pub bytes: Vec<u8>,
    pub original: u32,
}

/// All frames of a file, and the error at its end.
pub struct Contents {
    pub frames: Vec<Frame>,
    pub error: Option<CaptureError>,
    pub dropped: Option<u64>,
}

impl Contents {
    /// Returns the message of the error.
    pub fn message(&self) -> String {
        self.error.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

/// Reads a file to its end, and checks the numbers of the frames.
pub fn read_all(reader: impl Read) -> Contents {
    let mut contents = Contents { frames: Vec::new(), error: None, dropped: None };
    let mut reader = match CaptureReader::new(reader) {
        Ok(reader) => reader,
        Err(error) => {
            contents.error = Some(error);
            return contents;
        }
    };
    loop {
        match reader.next() {
            Ok(Some(frame)) => {
                assert_eq!(frame.number, contents.frames.len() as u64 + 1);
                assert!(frame.original_length as usize >= frame.bytes.len());
                contents.frames.push(Frame {
                    at: frame.at,
                    interface: frame.interface,
                    link: frame.link,
                    bytes: frame.bytes.to_vec(),
                    original: frame.original_length,
                });
            }
            Ok(None) => break,
            Err(error) => {
                contents.error = Some(error);
                assert!(matches!(reader.next(), Ok(None)), "nothing follows an error");
                break;
            }
        }
    }
    contents.dropped = reader.dropped();
    contents
}

/// Reads a file that has no error.
pub fn read_frames(bytes: &[u8]) -> Vec<Frame> {
    let contents = read_all(bytes);
    assert!(contents.error.is_none(), "{}", contents.message());
    contents.frames
}

/// Reader that returns pieces of up to `size` bytes, with an interruption before each.
pub struct Pieces<'a> {
    pub bytes: &'a [u8],
    pub size: usize,
    pub is_interrupted: bool,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.is_interrupted = !self.is_interrupted;
        if self.is_interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = self.size.min(out.len());
        self.bytes.read(&mut out[..count])
    }
}
