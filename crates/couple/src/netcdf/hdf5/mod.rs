//! NetCDF-4 files: HDF5 ("HDF5 File Format Specification Version 3.0"), as far as the NetCDF library writes it by default.
//!
//! lfn reads the variables of the root group: contiguous, compact, or in chunks with a B-tree of version 1, and the filters
//! deflate, shuffle and fletcher32. Other files cause an error that names the part.

mod attribute;
mod chunks;
mod group;
mod heap;
mod message;
mod object;

use std::collections::BTreeMap;

pub(super) use chunks::Chunked;

use self::message::Layout;
use self::object::ObjectHeader;
use super::error::NetcdfError;
use super::source::{ByteSource, Cursor};
use super::variable::{Data, StoredVariable};

/// First bytes of an HDF5 file. lfn reads files that begin with them.
pub(super) const SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// Prefix of a variable with the name of a dimension that it does not describe.
const NOT_A_COORDINATE: &str = "_nc4_non_coord_";

/// Text of the attribute `NAME` of an object that is only a dimension.
const ONLY_A_DIMENSION: &str = "This is a netCDF dimension but not a netCDF variable";

/// Reads the variables of the root group.
pub(super) fn read_variables(source: &dyn ByteSource) -> Result<BTreeMap<String, StoredVariable>, NetcdfError> {
    let root = ObjectHeader::read(source, root_address(source)?)?;
    let mut variables = BTreeMap::new();
    for (name, address) in group::links(source, &root)? {
        let header = ObjectHeader::read(source, address)?;
        if let Some(variable) = variable(source, &header)? {
            let name = name.strip_prefix(NOT_A_COORDINATE).unwrap_or(&name).to_owned();
            variables.insert(name, variable);
        }
    }
    Ok(variables)
}

/// Returns the address of the root group.
fn root_address(source: &dyn ByteSource) -> Result<u64, NetcdfError> {
    let mut cursor = Cursor::new(source, "the superblock", 8);
    let [version] = cursor.array()?;
    let (sizes, base, root) = match version {
        0 => (13, 24, 64),
        1 => (13, 28, 68),
        2 | 3 => (9, 12, 36),
        _ => return Err(NetcdfError::Unsupported(format!("HDF5 files with version {version} of the superblock"))),
    };
    let sizes: [u8; 2] = Cursor::new(source, "the superblock", sizes).array()?;
    if sizes != [8, 8] || Cursor::new(source, "the superblock", base).u64()? != 0 {
        return Err(NetcdfError::Unsupported("HDF5 files with a user block, or without 64-bit addresses".to_owned()));
    }
    Cursor::new(source, "the superblock", root).u64()
}

/// Returns the variable of an object; none if the object is a group, a type or only a dimension.
fn variable(source: &dyn ByteSource, header: &ObjectHeader) -> Result<Option<StoredVariable>, NetcdfError> {
    let parts = (header.find(message::DATASPACE), header.find(message::DATATYPE), header.find(message::LAYOUT));
    let (Some(space), Some(kind), Some(layout)) = parts else { return Ok(None) };
    let shape = message::dataspace(space)?;
    let kind = message::datatype(kind)?;
    let (mut units, mut packed_by, mut is_dimension) = (None, None, false);
    for attribute in attribute::attributes(source, header)? {
        packed_by = packed_by.or(StoredVariable::packing(&attribute.name));
        match attribute.name.as_str() {
            "units" => units = attribute.text(source),
            "NAME" => is_dimension = attribute.text(source).is_some_and(|text| text.starts_with(ONLY_A_DIMENSION)),
            _ => {}
        }
    }
    if is_dimension {
        return Ok(None);
    }
    let data = match message::layout(layout)? {
        Layout::Contiguous { offset } => Data::Contiguous { offset },
        Layout::Compact(bytes) => Data::Compact(bytes),
        Layout::Chunked { index, chunk } => {
            let filters = header.find(message::FILTERS).map(message::filters).transpose()?.unwrap_or_default();
            match Chunked::new(index, chunk, &shape, kind.size, filters) {
                Ok(chunked) => Data::Chunked(chunked),
                Err(reason) => Data::Unreadable(reason),
            }
        }
        Layout::NeverWritten => Data::NeverWritten,
        Layout::Unreadable(reason) => Data::Unreadable(reason.to_owned()),
    };
    let (element, is_big_endian) = (kind.element, kind.is_big_endian);
    Ok(Some(StoredVariable { element, shape, units, packed_by, is_big_endian, data }))
}
