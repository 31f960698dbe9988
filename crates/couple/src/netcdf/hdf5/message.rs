//! Messages of a variable: dataspace, datatype, layout and filters (HDF5 specification, IV.A.2).

use super::super::error::NetcdfError;
use super::super::source::Cursor;
use super::super::stored_type::StoredType;
use crate::coupling::ElementType;

/// Types of messages in an object header.
pub(super) const DATASPACE: u8 = 0x01;
pub(super) const LINK_INFO: u8 = 0x02;
pub(super) const DATATYPE: u8 = 0x03;
pub(super) const LINK: u8 = 0x06;
pub(super) const LAYOUT: u8 = 0x08;
pub(super) const FILTERS: u8 = 0x0B;
pub(super) const ATTRIBUTE: u8 = 0x0C;
pub(super) const SYMBOL_TABLE: u8 = 0x11;
pub(super) const ATTRIBUTE_INFO: u8 = 0x15;

/// Address of something that does not exist.
pub(super) const UNDEFINED: u64 = u64::MAX;

/// Maximum number of dimensions (`H5S_MAX_RANK`).
const MAX_RANK: u8 = 32;
/// Maximum number of filters (`H5Z_MAX_NFILTERS`).
const MAX_FILTERS: u8 = 32;

/// Reads the lengths of the dimensions; none for a single value.
pub(super) fn dataspace(bytes: &[u8]) -> Result<Vec<u64>, NetcdfError> {
    let bytes = bytes.to_vec();
    let mut cursor = Cursor::new(&bytes, "a dataspace", 0);
    let [version, rank, _flags, _kind] = cursor.array()?;
    if rank > MAX_RANK || !(1..=2).contains(&version) {
        return Err(NetcdfError::Damaged("a dataspace"));
    }
    cursor.skip(if version == 1 { 4 } else { 0 })?;
    (0..rank).map(|_| cursor.u64()).collect()
}

/// Type of the elements.
pub(super) struct Datatype {
    pub element: StoredType,
    pub is_big_endian: bool,
    pub size: u32,
    pub class: DatatypeClass,
}

/// Classes of types that attributes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatatypeClass {
    Text,
    /// Text of variable length, in a heap.
    HeapText,
    Other,
}

/// Reads the type of the elements.
pub(super) fn datatype(bytes: &[u8]) -> Result<Datatype, NetcdfError> {
    let bytes = bytes.to_vec();
    let mut cursor = Cursor::new(&bytes, "a datatype", 0);
    let [class, first, _second, _third] = cursor.array()?;
    let size = cursor.u32()?;
    let is_big_endian = first & 1 == 1;
    let is_signed = first & 8 != 0;
    let (element, class) = match (class & 0x0F, size) {
        (0, 4) if is_signed => (StoredType::Field(ElementType::Int32), DatatypeClass::Other),
        (0, 8) if is_signed => (StoredType::Field(ElementType::Int64), DatatypeClass::Other),
        (0, size) => (StoredType::Other(integer_name(size, is_signed)), DatatypeClass::Other),
        // Bit 6 is the byte order of the VAX.
        (1, 4) if first & 0x40 == 0 => (StoredType::Field(ElementType::Float32), DatatypeClass::Other),
        (1, 8) if first & 0x40 == 0 => (StoredType::Field(ElementType::Float64), DatatypeClass::Other),
        (1, 2) => (StoredType::Other("float16"), DatatypeClass::Other),
        (3, _) => (StoredType::Other("char"), DatatypeClass::Text),
        (9, 16) if first & 0x0F == 1 => (StoredType::Other("string"), DatatypeClass::HeapText),
        _ => (StoredType::Other("a compound or other type"), DatatypeClass::Other),
    };
    Ok(Datatype { element, is_big_endian, size, class })
}

fn integer_name(size: u32, is_signed: bool) -> &'static str {
    match (size, is_signed) {
        (1, true) => "int8",
        (1, false) => "uint8",
        (2, true) => "int16",
        (2, false) => "uint16",
        (4, false) => "uint32",
        (8, false) => "uint64",
        _ => "an integer of another size",
    }
}

/// Place of the elements.
pub(super) enum Layout {
    Contiguous {
        offset: u64,
    },
    Compact(Vec<u8>),
    /// Address of the B-tree; lengths of a chunk, with the size of an element as the last one.
    Chunked {
        index: u64,
        chunk: Vec<u32>,
    },
    NeverWritten,
    Unreadable(&'static str),
}

/// Reads the place of the elements.
pub(super) fn layout(bytes: &[u8]) -> Result<Layout, NetcdfError> {
    let bytes = bytes.to_vec();
    let mut cursor = Cursor::new(&bytes, "a data layout", 0);
    let [version, class] = cursor.array()?;
    if !(3..=5).contains(&version) {
        return Ok(Layout::Unreadable("an old data layout of HDF5"));
    }
    Ok(match class {
        0 => {
            let size = cursor.u16()?;
            Layout::Compact(cursor.bytes(size.into())?)
        }
        1 => match cursor.u64()? {
            UNDEFINED => Layout::NeverWritten,
            offset => Layout::Contiguous { offset },
        },
        2 if version == 3 => {
            let [rank] = cursor.array()?;
            if !(2..=MAX_RANK + 1).contains(&rank) {
                return Err(NetcdfError::Damaged("a data layout"));
            }
            match cursor.u64()? {
                UNDEFINED => Layout::NeverWritten,
                index => Layout::Chunked { index, chunk: (0..rank).map(|_| cursor.u32()).collect::<Result<_, _>>()? },
            }
        }
        2 => Layout::Unreadable("chunks with an index of HDF5 1.10"),
        _ => Layout::Unreadable("virtual datasets of HDF5"),
    })
}

/// A filter of the chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filter {
    pub id: u16,
    pub values: Vec<u32>,
}

/// Reads the filters, in the order in which a writer applies them.
pub(super) fn filters(bytes: &[u8]) -> Result<Vec<Filter>, NetcdfError> {
    let bytes = bytes.to_vec();
    let mut cursor = Cursor::new(&bytes, "the filters", 0);
    let [version, count] = cursor.array()?;
    if count > MAX_FILTERS || !(1..=2).contains(&version) {
        return Err(NetcdfError::Damaged("the filters"));
    }
    cursor.skip(if version == 1 { 6 } else { 0 })?;
    let mut filters = Vec::new();
    for _ in 0..count {
        let id = cursor.u16()?;
        let name = if version == 1 || id >= 256 { cursor.u16()? } else { 0 };
        let (_flags, number) = (cursor.u16()?, cursor.u16()?);
        let padded = if version == 1 { name.next_multiple_of(8) } else { name };
        cursor.skip(padded.into())?;
        let values = (0..number).map(|_| cursor.u32()).collect::<Result<_, _>>()?;
        cursor.skip(if version == 1 && number % 2 == 1 { 4 } else { 0 })?;
        filters.push(Filter { id, values });
    }
    Ok(filters)
}
