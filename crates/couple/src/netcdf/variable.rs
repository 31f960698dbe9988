//! A variable of a NetCDF file, as its header describes it.

use super::error::NetcdfError;
use super::hdf5::Chunked;
use super::stored_type::StoredType;
use crate::coupling::ElementType;

/// A variable of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredVariable {
    pub element: StoredType,
    /// Lengths of the dimensions, the slowest one first.
    pub shape: Vec<u64>,
    /// Attribute `units`; `None` if the variable has none.
    pub units: Option<String>,
    /// Attribute that changes the meaning of the values: `scale_factor` or `add_offset`.
    pub packed_by: Option<&'static str>,
    pub(super) is_big_endian: bool,
    pub(super) data: Data,
}

/// Place of the elements in the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    /// Consecutive bytes in the file.
    Contiguous {
        offset: u64,
    },
    /// Bytes in the header.
    Compact(Vec<u8>),
    /// Chunks with an index.
    Chunked(Chunked),
    NeverWritten,
    /// The header describes no data that lfn reads. The text names the reason.
    Unreadable(String),
}

impl StoredVariable {
    /// Returns the name of an attribute that packs the values.
    pub(super) fn packing(attribute: &str) -> Option<&'static str> {
        ["scale_factor", "add_offset"].into_iter().find(|packing| *packing == attribute)
    }

    /// Compares the variable with the coupling file. A leading dimension of length 1, as of the time, is not compared. Absent
    /// units are not compared.
    pub fn check(&self, name: &str, element: ElementType, shape: &[u64], units: &str) -> Result<(), NetcdfError> {
        let differs = |key, found: String, expected: String| {
            Err(NetcdfError::Differs { name: name.to_owned(), key, found, expected })
        };
        if let Some(attribute) = self.packed_by {
            return Err(NetcdfError::Packed { name: name.to_owned(), attribute });
        }
        if self.element != StoredType::Field(element) {
            return differs("type", self.element.name().to_owned(), element.name().to_owned());
        }
        let without_time = self.shape.strip_prefix(&[1]).unwrap_or(&self.shape);
        if self.shape != shape && without_time != shape {
            return differs("shape", format!("{:?}", self.shape), format!("{shape:?}"));
        }
        match &self.units {
            Some(found) if found.trim() != units.trim() => {
                differs("units", format!("\"{}\"", found.escape_default()), format!("\"{units}\""))
            }
            _ => Ok(()),
        }
    }
}
