//! Header of the classic formats CDF-1, CDF-2 and CDF-5 ("NetCDF Classic Format Specification", UCAR).

use std::collections::BTreeMap;

use super::error::NetcdfError;
use super::source::{ByteSource, Cursor};
use super::stored_type::StoredType;
use super::variable::{Data, StoredVariable};
use crate::coupling::ElementType;

/// Tags of the lists in a header.
pub(super) const DIMENSIONS: u32 = 0x0A;
pub(super) const VARIABLES: u32 = 0x0B;
pub(super) const ATTRIBUTES: u32 = 0x0C;

/// Types of values (`nc_type`).
pub(super) const NC_CHAR: u32 = 2;
pub(super) const NC_INT: u32 = 4;
pub(super) const NC_FLOAT: u32 = 5;
pub(super) const NC_DOUBLE: u32 = 6;
pub(super) const NC_INT64: u32 = 10;

/// Maximum number of dimensions, attributes or variables in a list. `NC_MAX_VARS` of the NetCDF library.
const MAX_LIST: u64 = 8192;
/// Maximum number of dimensions of a variable. `NC_MAX_VAR_DIMS` of the NetCDF library is 1024; a field has at most 8.
const MAX_VARIABLE_DIMENSIONS: u64 = 32;
/// Maximum length of a name. `NC_MAX_NAME` of the NetCDF library.
const MAX_NAME: u64 = 256;
/// Maximum length of the attribute `units`.
const MAX_UNITS: u64 = 1024;

/// Reads the header, with the variables by their name.
pub(super) fn read_header(
    source: &dyn ByteSource,
    version: u8,
) -> Result<BTreeMap<String, StoredVariable>, NetcdfError> {
    let mut header = Header { cursor: Cursor::new(source, "the header", 4), version };
    let records = match header.count()? {
        // The writer did not know the number of records.
        count if count == header.streaming() => {
            return Err(NetcdfError::Unsupported("files with an unknown number of records".to_owned()));
        }
        count => count,
    };
    let mut dimensions = Vec::new();
    for _ in 0..header.list(DIMENSIONS, "dimensions")? {
        header.name()?;
        dimensions.push(header.count()?);
    }
    for _ in 0..header.list(ATTRIBUTES, "attributes")? {
        header.attribute()?;
    }
    let mut entries = Vec::new();
    for _ in 0..header.list(VARIABLES, "variables")? {
        entries.push(header.variable(&dimensions)?);
    }
    let strides: Vec<u64> = entries.iter().filter(|entry| entry.is_record).map(|entry| entry.padded).collect();
    // Records of one variable only are not padded.
    let stride = match strides.as_slice() {
        [_] => entries.iter().find(|entry| entry.is_record).map_or(0, |entry| entry.size),
        _ => strides.iter().fold(0_u64, |sum, stride| sum.saturating_add(*stride)),
    };
    let finished = entries.into_iter().map(|entry| (entry.name.clone(), entry.finish(records, stride)));
    Ok(finished.collect())
}

/// A variable of the header. The number of records is not part of its shape yet.
struct Entry {
    name: String,
    variable: StoredVariable,
    is_record: bool,
    /// Size of the variable, or of one record, bytes.
    size: u64,
    /// `size` as a multiple of 4.
    padded: u64,
}

impl Entry {
    fn finish(self, records: u64, stride: u64) -> StoredVariable {
        let mut variable = self.variable;
        if self.is_record {
            variable.shape.insert(0, records);
            if records > 1 && stride != self.size {
                variable.data = Data::Unreadable("several records of a variable with an unlimited dimension".into());
            }
        }
        variable
    }
}

struct Header<'a> {
    cursor: Cursor<'a>,
    version: u8,
}

impl Header<'_> {
    fn word(&mut self) -> Result<u32, NetcdfError> {
        Ok(u32::from_be_bytes(self.cursor.array()?))
    }

    /// Reads a number: 64 bits in CDF-5, 32 bits in the older formats.
    fn count(&mut self) -> Result<u64, NetcdfError> {
        Ok(if self.version == 5 { u64::from_be_bytes(self.cursor.array()?) } else { self.word()?.into() })
    }

    fn streaming(&self) -> u64 {
        if self.version == 5 { u64::MAX } else { u32::MAX.into() }
    }

    /// Reads the start of a list, and returns its length.
    fn list(&mut self, tag: u32, what: &'static str) -> Result<u64, NetcdfError> {
        let (found, count) = (self.word()?, self.count()?);
        match found {
            found if found == tag && count <= MAX_LIST => Ok(count),
            found if found == tag => Err(NetcdfError::TooMany { what, found: count, max: MAX_LIST }),
            0 if count == 0 => Ok(0),
            _ => Err(NetcdfError::Damaged("a list of the header")),
        }
    }

    fn name(&mut self) -> Result<String, NetcdfError> {
        let length = self.count()?;
        if length > MAX_NAME {
            return Err(NetcdfError::TooMany { what: "characters of a name", found: length, max: MAX_NAME });
        }
        self.text(length)
    }

    fn text(&mut self, length: u64) -> Result<String, NetcdfError> {
        let bytes = self.cursor.bytes(length as usize)?;
        self.cursor.skip(padding(length))?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }

    /// Reads an attribute. Returns its name, and the value if it is the text of `units`.
    fn attribute(&mut self) -> Result<(String, Option<String>), NetcdfError> {
        let name = self.name()?;
        let (kind, count) = (self.word()?, self.count()?);
        if name == "units" && kind == NC_CHAR && count <= MAX_UNITS {
            let units = self.text(count)?;
            return Ok((name, Some(units)));
        }
        let size = value_size(kind)?.checked_mul(count).ok_or(NetcdfError::Damaged("the size of an attribute"))?;
        self.cursor.skip(size)?;
        self.cursor.skip(padding(size))?;
        Ok((name, None))
    }

    fn variable(&mut self, dimensions: &[u64]) -> Result<Entry, NetcdfError> {
        let name = self.name()?;
        let count = self.count()?;
        if count > MAX_VARIABLE_DIMENSIONS {
            let what = "dimensions of a variable";
            return Err(NetcdfError::TooMany { what, found: count, max: MAX_VARIABLE_DIMENSIONS });
        }
        let mut shape = Vec::new();
        for _ in 0..count {
            let number = usize::try_from(self.count()?).ok();
            let length = number.and_then(|number| dimensions.get(number));
            shape.push(*length.ok_or(NetcdfError::Damaged("the dimension of a variable"))?);
        }
        let (mut units, mut packed_by) = (None, None);
        for _ in 0..self.list(ATTRIBUTES, "attributes")? {
            let (name, text) = self.attribute()?;
            packed_by = packed_by.or(StoredVariable::packing(&name));
            units = units.or(text);
        }
        let kind = self.word()?;
        // The size is redundant, and wrong for large variables.
        self.count()?;
        let offset = if self.version == 1 { self.word()?.into() } else { u64::from_be_bytes(self.cursor.array()?) };
        // Only the first dimension may be unlimited; its length is written as 0.
        let is_record = shape.first() == Some(&0);
        if is_record {
            shape.remove(0);
        }
        let size = shape.iter().try_fold(value_size(kind)?, |size, length| size.checked_mul(*length));
        let size = size.ok_or(NetcdfError::Damaged("the size of a variable"))?;
        let padded = size.saturating_add(padding(size));
        let element = stored_type(kind);
        let data = Data::Contiguous { offset };
        let variable = StoredVariable { element, shape, units, packed_by, is_big_endian: true, data };
        Ok(Entry { name, variable, is_record, size, padded })
    }
}

/// Returns the number of bytes up to a multiple of 4.
pub(super) fn padding(length: u64) -> u64 {
    (4 - length % 4) % 4
}

fn value_size(kind: u32) -> Result<u64, NetcdfError> {
    Ok(match kind {
        1 | NC_CHAR | 7 => 1,
        3 | 8 => 2,
        NC_INT | NC_FLOAT | 9 => 4,
        NC_DOUBLE | NC_INT64 | 11 => 8,
        _ => return Err(NetcdfError::Damaged("the type of a value")),
    })
}

fn stored_type(kind: u32) -> StoredType {
    match kind {
        NC_INT => StoredType::Field(ElementType::Int32),
        NC_FLOAT => StoredType::Field(ElementType::Float32),
        NC_DOUBLE => StoredType::Field(ElementType::Float64),
        NC_INT64 => StoredType::Field(ElementType::Int64),
        1 => StoredType::Other("int8"),
        NC_CHAR => StoredType::Other("char"),
        3 => StoredType::Other("int16"),
        7 => StoredType::Other("uint8"),
        8 => StoredType::Other("uint16"),
        9 => StoredType::Other("uint32"),
        _ => StoredType::Other("uint64"),
    }
}
