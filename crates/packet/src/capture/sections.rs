//! Sections and blocks of the format pcapng (draft-ietf-opsawg-pcapng).

use std::io::Read;

use pcap_parser::nom::IResult;
use pcap_parser::pcapng::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, InterfaceStatisticsBlock, parse_enhancedpacketblock_be,
    parse_enhancedpacketblock_le, parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le,
    parse_interfacestatisticsblock_be, parse_interfacestatisticsblock_le,
};
use pcap_parser::{OptionCode, PcapError, PcapNGOption};

use super::buffer::{Buffer, MAX_BLOCK};
use super::error::{CaptureError, DamageReason};
use super::interface::{CapturedInterface, MAX_INTERFACES};
use super::record::Record;
use super::time_scale::TimeScale;
use crate::LinkLayer;

/// Maximum bytes of blocks without a packet that precede a packet.
pub const MAX_BYTES_WITHOUT_PACKET: u64 = 256 << 20;

/// Maximum bytes of the options of a block. Each option takes up to eight times its bytes in memory.
const MAX_OPTIONS: usize = 1 << 20;

// Types of blocks.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Bytes of the type and of the two lengths of a block.
const FRAMING: usize = 12;
/// Bytes of a packet block before the frame, with the type and the first length.
const PACKET_HEADER: usize = 28;
const SIMPLE_HEADER: usize = 12;

/// State of a pcapng file.
#[derive(Debug)]
pub(super) struct Sections {
    order: ByteOrder,
    interfaces: Vec<CapturedInterface>,
    /// Number of the first interface of this section.
    first: usize,
    /// Time of the last packet with a time.
    last_time: u64,
}

/// Byte order of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

/// Fields that all packet blocks have.
struct PacketFields {
    interface: u32,
    stamp: Option<u64>,
    frame_at: usize,
    captured: usize,
    original_length: u32,
    drops: Option<u64>,
}

impl Sections {
    /// Returns true if a file with these first bytes is a pcapng file.
    pub(super) fn is_start(first: &[u8]) -> bool {
        first.starts_with(&SECTION.to_le_bytes())
    }

    /// Checks the start of the first section.
    pub(super) fn new<R: Read>(buffer: &mut Buffer<R>) -> Result<Self, CaptureError> {
        if buffer.fill(FRAMING, 0)? < FRAMING {
            return Err(CaptureError::TruncatedHeader);
        }
        let Some(order) = ByteOrder::of_section(buffer.bytes()) else {
            return Err(CaptureError::not_a_capture(buffer.bytes()));
        };
        Ok(Sections { order, interfaces: Vec::new(), first: 0, last_time: 0 })
    }

    pub(super) fn interfaces(&self) -> &[CapturedInterface] {
        &self.interfaces
    }

    /// Reads blocks up to and with the next packet; `None` at the end of the file.
    pub(super) fn next<R: Read>(
        &mut self,
        buffer: &mut Buffer<R>,
        packet: u64,
    ) -> Result<Option<Record>, CaptureError> {
        let damaged = |reason| CaptureError::Damaged { packet, reason };
        let mut skipped: u64 = 0;
        loop {
            let Some(length) = self.read_block(buffer, packet)? else { return Ok(None) };
            let block = &buffer.bytes()[..length];
            let fields = match self.order.u32(block, 0) {
                ENHANCED_PACKET => Some(self.enhanced_packet(block).map_err(damaged)?),
                SIMPLE_PACKET => Some(self.simple_packet(block).map_err(damaged)?),
                OBSOLETE_PACKET => Some(self.obsolete_packet(block).map_err(damaged)?),
                INTERFACE => self.add_interface(block).map(|()| None).map_err(damaged)?,
                STATISTICS => self.count_drops(block).map(|()| None).map_err(damaged)?,
                SECTION => {
                    self.first = self.interfaces.len();
                    None
                }
                _ => None,
            };
            if let Some(fields) = fields {
                return self.record(&fields, length).map(Some).map_err(damaged);
            }
            buffer.take(length);
            skipped += length as u64;
            if skipped > MAX_BYTES_WITHOUT_PACKET {
                return Err(damaged(DamageReason::NoPackets { bytes: skipped }));
            }
        }
    }

    /// Reads a complete block into the buffer and returns its length; `None` at the end of the file.
    fn read_block<R: Read>(&mut self, buffer: &mut Buffer<R>, packet: u64) -> Result<Option<usize>, CaptureError> {
        let damaged = |reason| Err(CaptureError::Damaged { packet, reason });
        match buffer.fill(FRAMING, packet)? {
            0 => return Ok(None),
            available if available < FRAMING => return Err(CaptureError::Truncated { packet }),
            _ => {}
        }
        if Sections::is_start(buffer.bytes()) {
            match ByteOrder::of_section(buffer.bytes()) {
                Some(order) => self.order = order,
                None => return damaged(DamageReason::ByteOrder),
            }
        }
        let length = self.order.u32(buffer.bytes(), 4);
        let size = length as usize;
        if size < FRAMING || !size.is_multiple_of(4) {
            return damaged(DamageReason::BlockLength { length });
        }
        if size > MAX_BLOCK {
            return Err(CaptureError::TooLong { packet, length: length.into(), maximum: MAX_BLOCK as u64 });
        }
        if buffer.fill(size, packet)? < size {
            return Err(CaptureError::Truncated { packet });
        }
        let last = self.order.u32(buffer.bytes(), size - 4);
        if last != length {
            return damaged(DamageReason::BlockLengths { first: length, last });
        }
        Ok(Some(size))
    }

    fn enhanced_packet(&self, block: &[u8]) -> Result<PacketFields, DamageReason> {
        const DROPS: OptionCode = OptionCode(4);
        let captured = self.packet_length(block, PACKET_HEADER, 20)?;
        let parsed = self.parse(block, parse_enhancedpacketblock_le, parse_enhancedpacketblock_be)?;
        let EnhancedPacketBlock { if_id, ts_high, ts_low, origlen, options, .. } = parsed;
        Ok(PacketFields {
            interface: if_id,
            stamp: Some(u64::from(ts_high) << 32 | u64::from(ts_low)),
            frame_at: PACKET_HEADER,
            captured,
            original_length: origlen,
            drops: self.option_u64(&options, DROPS),
        })
    }

    /// Reads a packet block of an old program (appendix of the draft).
    fn obsolete_packet(&self, block: &[u8]) -> Result<PacketFields, DamageReason> {
        const UNKNOWN_DROPS: u16 = 0xffff;
        let captured = self.packet_length(block, PACKET_HEADER, 20)?;
        let drops = self.order.u16(block, 10);
        Ok(PacketFields {
            interface: self.order.u16(block, 8).into(),
            stamp: Some(u64::from(self.order.u32(block, 12)) << 32 | u64::from(self.order.u32(block, 16))),
            frame_at: PACKET_HEADER,
            captured,
            original_length: self.order.u32(block, 24),
            drops: (drops != UNKNOWN_DROPS).then_some(drops.into()),
        })
    }

    /// Reads a packet block without an interface and a time. The frame ends at the snap length of the first interface.
    fn simple_packet(&self, block: &[u8]) -> Result<PacketFields, DamageReason> {
        if block.len() < SIMPLE_HEADER + 4 {
            return Err(DamageReason::BlockLength { length: block.len() as u32 });
        }
        let original_length = self.order.u32(block, 8);
        let limit = match self.interfaces.get(self.first).map_or(0, |interface| interface.snap_length) {
            0 => u32::MAX,
            limit => limit,
        };
        let captured = (original_length.min(limit) as usize).min(block.len() - SIMPLE_HEADER - 4);
        Ok(PacketFields { interface: 0, stamp: None, frame_at: SIMPLE_HEADER, captured, original_length, drops: None })
    }

    /// Reads the captured length of a packet block, and checks that the block has this length and few options.
    fn packet_length(&self, block: &[u8], header: usize, at: usize) -> Result<usize, DamageReason> {
        if block.len() < header + 4 {
            return Err(DamageReason::BlockLength { length: block.len() as u32 });
        }
        let captured = self.order.u32(block, at) as usize;
        match (block.len() - header - 4).checked_sub(captured.next_multiple_of(4)) {
            Some(0..=MAX_OPTIONS) => Ok(captured),
            Some(_) => Err(DamageReason::TooManyOptions { maximum: MAX_OPTIONS }),
            None => Err(DamageReason::PacketLength),
        }
    }

    fn record(&mut self, fields: &PacketFields, length: usize) -> Result<Record, DamageReason> {
        let number = self.first.saturating_add(fields.interface as usize);
        let count = (self.interfaces.len() - self.first) as u32;
        let Some(interface) = self.interfaces.get_mut(number) else {
            return Err(DamageReason::Interface { interface: fields.interface, count });
        };
        if let Some(drops) = fields.drops {
            interface.add_reported_drops(drops);
        }
        if let Some(stamp) = fields.stamp {
            self.last_time = interface.time_scale.nanos(stamp);
        }
        Ok(Record {
            length,
            frame_at: fields.frame_at,
            captured: fields.captured,
            original_length: fields.original_length,
            at: self.last_time,
            interface: number as u32,
            link: interface.link,
        })
    }

    fn add_interface(&mut self, block: &[u8]) -> Result<(), DamageReason> {
        const RESOLUTION_MICROSECONDS: u8 = 6;
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(DamageReason::TooManyInterfaces { maximum: MAX_INTERFACES as u32 });
        }
        check_options(block)?;
        let parsed = self.parse(block, parse_interfacedescriptionblock_le, parse_interfacedescriptionblock_be)?;
        let InterfaceDescriptionBlock { linktype, snaplen, options, .. } = parsed;
        let resolution = match option(&options, OptionCode::IfTsresol) {
            Some([resolution, ..]) => *resolution,
            _ => RESOLUTION_MICROSECONDS,
        };
        let offset = self.option_u64(&options, OptionCode::IfTsoffset).unwrap_or(0).cast_signed();
        let link = LinkLayer::from_number(linktype.0 as u32);
        let mut interface = CapturedInterface::new(link, snaplen, TimeScale::new(resolution, offset));
        if let Some(name) = option(&options, OptionCode::IfName) {
            interface.set_name(name);
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Stores the drops of a statistics block: those of the interface and those of the operating system.
    fn count_drops(&mut self, block: &[u8]) -> Result<(), DamageReason> {
        check_options(block)?;
        let parsed = self.parse(block, parse_interfacestatisticsblock_le, parse_interfacestatisticsblock_be)?;
        let InterfaceStatisticsBlock { if_id, options, .. } = parsed;
        let codes = [OptionCode::IsbIfDrop, OptionCode::IsbOsDrop];
        let drops = codes.iter().filter_map(|code| self.option_u64(&options, *code)).reduce(u64::saturating_add);
        if let (Some(interface), Some(drops)) =
            (self.interfaces.get_mut(self.first.saturating_add(if_id as usize)), drops)
        {
            interface.counted_drops = Some(drops);
        }
        Ok(())
    }

    /// Parses a complete block in the byte order of the section. A part that is missing in the block is damage.
    fn parse<'a, T>(
        &self,
        block: &'a [u8],
        little: impl Fn(&'a [u8]) -> IResult<&'a [u8], T, PcapError<&'a [u8]>>,
        big: impl Fn(&'a [u8]) -> IResult<&'a [u8], T, PcapError<&'a [u8]>>,
    ) -> Result<T, DamageReason> {
        let result = match self.order {
            ByteOrder::Little => little(block),
            ByteOrder::Big => big(block),
        };
        result.map(|(_, parsed)| parsed).map_err(|_| DamageReason::BlockLength { length: block.len() as u32 })
    }

    fn option_u64(&self, options: &[PcapNGOption<'_>], code: OptionCode) -> Option<u64> {
        let bytes = *option(options, code)?.first_chunk::<8>()?;
        Some(match self.order {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        })
    }
}

impl ByteOrder {
    /// Reads the byte order from the start of a section.
    fn of_section(block: &[u8]) -> Option<ByteOrder> {
        match block.get(8..12)? {
            [0x4d, 0x3c, 0x2b, 0x1a] => Some(ByteOrder::Little),
            [0x1a, 0x2b, 0x3c, 0x4d] => Some(ByteOrder::Big),
            _ => None,
        }
    }

    /// Reads a number of a block. The caller has checked the length of the block.
    fn u32(self, block: &[u8], at: usize) -> u32 {
        let bytes = block.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u16(self, block: &[u8], at: usize) -> u16 {
        let bytes = block.get(at..).and_then(|rest| rest.first_chunk::<2>()).copied().unwrap_or_default();
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }
}

/// Checks that the options of a block without a packet are bounded.
fn check_options(block: &[u8]) -> Result<(), DamageReason> {
    if block.len() > MAX_OPTIONS {
        return Err(DamageReason::TooManyOptions { maximum: MAX_OPTIONS });
    }
    Ok(())
}

/// Returns the value of the first option with this code.
fn option<'a>(options: &'a [PcapNGOption<'_>], code: OptionCode) -> Option<&'a [u8]> {
    options.iter().find(|option| option.code == code)?.as_bytes().ok()
}
