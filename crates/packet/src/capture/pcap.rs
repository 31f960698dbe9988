//! Files of the classic format pcap (draft-ietf-opsawg-pcap).

use std::io::Read;

use pcap_parser::nom::{Err, IResult, Needed};
use pcap_parser::pcap::{
    LegacyPcapBlock, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header,
};
use pcap_parser::{PcapError, PcapHeader};

use super::buffer::{Buffer, MAX_BLOCK};
use super::error::CaptureError;
use super::interface::CapturedInterface;
use super::record::Record;
use super::time_scale::TimeScale;
use crate::LinkLayer;

const FILE_HEADER: usize = 24;
/// Bits of the link type. The others have the length of the frame check sequence.
const LINK_TYPE: u32 = 0x03ff_ffff;

type Parse = for<'a> fn(&'a [u8]) -> IResult<&'a [u8], LegacyPcapBlock<'a>, PcapError<&'a [u8]>>;

/// State of a pcap file: its only interface.
#[derive(Debug)]
pub(super) struct Pcap {
    interface: CapturedInterface,
    parse: Parse,
    record_header: usize,
    /// Nanoseconds of a unit of the second time field.
    unit: u64,
}

impl Pcap {
    /// Reads the file header.
    pub(super) fn read<R: Read>(buffer: &mut Buffer<R>) -> Result<Self, CaptureError> {
        let count = buffer.fill(FILE_HEADER, 0)?;
        let header = match parse_pcap_header(buffer.bytes()) {
            Ok((_, header)) => header,
            Err(Err::Incomplete(_)) if count >= 4 => return Err(CaptureError::TruncatedHeader),
            Err(_) => return Err(CaptureError::not_a_capture(buffer.bytes())),
        };
        buffer.take(FILE_HEADER);
        Ok(Pcap::new(&header))
    }

    fn new(header: &PcapHeader) -> Self {
        let link = LinkLayer::from_number(header.network.0 as u32 & LINK_TYPE);
        let (parse, record_header): (Parse, usize) = if header.is_modified_format() {
            (parse_pcap_frame_modified, 24)
        } else if header.is_bigendian() {
            (parse_pcap_frame_be, 16)
        } else {
            (parse_pcap_frame, 16)
        };
        let (time_scale, unit) = if header.is_nanosecond_precision() {
            (TimeScale::NANOSECONDS, 1)
        } else {
            (TimeScale::MICROSECONDS, 1_000)
        };
        let interface = CapturedInterface::new(link, header.snaplen, time_scale);
        Pcap { interface, parse, record_header, unit }
    }

    pub(super) fn interface(&self) -> &CapturedInterface {
        &self.interface
    }

    /// Reads the next record; `None` at the end of the file.
    pub(super) fn next<R: Read>(
        &mut self,
        buffer: &mut Buffer<R>,
        packet: u64,
    ) -> Result<Option<Record>, CaptureError> {
        loop {
            let bytes = buffer.bytes();
            let missing = match (self.parse)(bytes) {
                Ok((_, block)) => return Ok(Some(self.record(&block))),
                Err(Err::Incomplete(Needed::Size(missing))) => missing.get(),
                Err(_) => 1,
            };
            let length = bytes.len().saturating_add(missing);
            if length > MAX_BLOCK {
                return Err(CaptureError::TooLong { packet, length: length as u64, maximum: MAX_BLOCK as u64 });
            }
            match buffer.fill(length, packet)? {
                0 => return Ok(None),
                available if available < length => return Err(CaptureError::Truncated { packet }),
                _ => {}
            }
        }
    }

    fn record(&self, block: &LegacyPcapBlock<'_>) -> Record {
        Record {
            length: self.record_header + block.data.len(),
            frame_at: self.record_header,
            captured: block.data.len(),
            original_length: block.origlen,
            at: u64::from(block.ts_sec) * 1_000_000_000 + u64::from(block.ts_usec) * self.unit,
            interface: 0,
            link: self.interface.link,
        }
    }
}
