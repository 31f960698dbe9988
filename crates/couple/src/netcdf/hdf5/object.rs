//! Object headers: the messages that describe a group or a variable (HDF5 specification, IV.A).

use super::super::error::NetcdfError;
use super::super::source::{ByteSource, Cursor};

/// Type of the message that continues a header elsewhere.
const CONTINUATION: u16 = 0x10;
/// Maximum number of messages of a header.
const MAX_MESSAGES: usize = 4096;
/// Maximum size of a header, bytes.
const MAX_HEADER: u64 = 1024 * 1024;
/// Flag of a message whose contents are elsewhere.
const SHARED: u8 = 2;

/// A message of a header.
pub(super) struct Message {
    kind: u16,
    is_shared: bool,
    pub bytes: Vec<u8>,
}

/// The messages of an object.
pub(super) struct ObjectHeader(Vec<Message>);

/// Part of a header that is read.
struct Block {
    offset: u64,
    length: u64,
}

impl ObjectHeader {
    /// Reads the header at an address.
    pub(super) fn read(source: &dyn ByteSource, address: u64) -> Result<Self, NetcdfError> {
        let mut cursor = Cursor::new(source, "an object header", address);
        let mut header = ObjectHeader(Vec::new());
        if cursor.array()? == *b"OHDR" {
            header.read_new(source, cursor)?;
        } else {
            header.read_old(source, Cursor::new(source, "an object header", address))?;
        }
        Ok(header)
    }

    /// Returns the contents of the first message of a type. Shared messages are not found.
    pub(super) fn find(&self, kind: u8) -> Option<&[u8]> {
        self.all(kind).next()
    }

    /// Returns the contents of all messages of a type.
    pub(super) fn all(&self, kind: u8) -> impl Iterator<Item = &[u8]> {
        let found = self.0.iter().filter(move |message| message.kind == u16::from(kind) && !message.is_shared);
        found.map(|message| message.bytes.as_slice())
    }

    /// Reads version 2, after the signature.
    fn read_new(&mut self, source: &dyn ByteSource, mut cursor: Cursor<'_>) -> Result<(), NetcdfError> {
        let [_version, flags] = cursor.array()?;
        // Times of access and changes.
        cursor.skip(if flags & 0x20 == 0 { 0 } else { 16 })?;
        // Limits of the storage of attributes.
        cursor.skip(if flags & 0x10 == 0 { 0 } else { 4 })?;
        let size = cursor.number(1 << (flags & 3))?;
        let mut blocks = vec![Block { offset: cursor.offset(), length: size }];
        let mut total = 0;
        while let Some(block) = blocks.pop() {
            total = bounded(total, block.length)?;
            let mut cursor = Cursor::new(source, "an object header", block.offset);
            let end = block.offset.saturating_add(block.length);
            let head = if flags & 4 == 0 { 4 } else { 6 };
            while cursor.offset().saturating_add(head) <= end {
                let [kind] = cursor.array()?;
                let (size, [flags]) = (cursor.u16()?, cursor.array()?);
                cursor.skip(head - 4)?;
                if cursor.offset().saturating_add(size.into()) > end {
                    // A gap at the end of the block.
                    break;
                }
                let bytes = cursor.bytes(size.into())?;
                if let Some(next) = self.add(kind.into(), flags, bytes)? {
                    // Signature and checksum.
                    let length = next.length.checked_sub(8).ok_or(NetcdfError::Damaged("an object header"))?;
                    blocks.push(Block { offset: next.offset.saturating_add(4), length });
                }
            }
        }
        Ok(())
    }

    /// Reads version 1 of the header.
    fn read_old(&mut self, source: &dyn ByteSource, mut cursor: Cursor<'_>) -> Result<(), NetcdfError> {
        let [version, _reserved] = cursor.array()?;
        if version != 1 {
            return Err(NetcdfError::Damaged("an object header"));
        }
        cursor.skip(6)?;
        let size = cursor.u32()?;
        cursor.skip(4)?;
        let mut blocks = vec![Block { offset: cursor.offset(), length: size.into() }];
        let mut total = 0;
        while let Some(block) = blocks.pop() {
            total = bounded(total, block.length)?;
            let mut cursor = Cursor::new(source, "an object header", block.offset);
            let end = block.offset.saturating_add(block.length);
            while cursor.offset().saturating_add(8) <= end {
                let (kind, size, [flags]) = (cursor.u16()?, cursor.u16()?, cursor.array()?);
                cursor.skip(3)?;
                let bytes = cursor.bytes(size.into())?;
                blocks.extend(self.add(kind, flags, bytes)?);
            }
        }
        Ok(())
    }

    /// Adds a message. Returns the block that the message names.
    fn add(&mut self, kind: u16, flags: u8, bytes: Vec<u8>) -> Result<Option<Block>, NetcdfError> {
        if self.0.len() >= MAX_MESSAGES {
            let found = MAX_MESSAGES as u64 + 1;
            return Err(NetcdfError::TooMany { what: "messages of an object", found, max: MAX_MESSAGES as u64 });
        }
        let mut next = None;
        if kind == CONTINUATION {
            let mut cursor = Cursor::new(&bytes, "an object header", 0);
            next = Some(Block { offset: cursor.u64()?, length: cursor.u64()? });
        }
        self.0.push(Message { kind, is_shared: flags & SHARED != 0, bytes });
        Ok(next)
    }
}

fn bounded(total: u64, length: u64) -> Result<u64, NetcdfError> {
    let total = total.saturating_add(length.max(1));
    if total > MAX_HEADER {
        return Err(NetcdfError::TooMany { what: "bytes of an object header", found: total, max: MAX_HEADER });
    }
    Ok(total)
}
