//! Reading of a NetCDF file of any format.

use std::collections::BTreeMap;

use super::classic;
use super::error::NetcdfError;
use super::hdf5;
use super::source::ByteSource;
use super::stored_type::StoredType;
use super::variable::{Data, StoredVariable};
use crate::coupling::ElementType;

/// Maximum number of names in an error.
const MAX_LISTED: usize = 10;

/// A NetCDF file with its variables.
pub struct NetcdfFile<'a> {
    source: &'a dyn ByteSource,
    variables: BTreeMap<String, StoredVariable>,
}

impl<'a> NetcdfFile<'a> {
    /// Reads the header of a file.
    pub fn open(source: &'a dyn ByteSource) -> Result<Self, NetcdfError> {
        let mut magic = [0; 8];
        let available = source.length().min(8) as usize;
        source.read_at(0, &mut magic[..available])?;
        let variables = match magic {
            [b'C', b'D', b'F', version @ (1 | 2 | 5), ..] => classic::read_header(source, version)?,
            hdf5::SIGNATURE => hdf5::read_variables(source)?,
            _ if available == 0 => return Err(NetcdfError::Truncated { part: "the header", length: 0 }),
            _ => return Err(NetcdfError::NotNetcdf),
        };
        Ok(NetcdfFile { source, variables })
    }

    /// Returns the variables by their name.
    pub fn variables(&self) -> &BTreeMap<String, StoredVariable> {
        &self.variables
    }

    /// Returns a variable. The error lists those of the file.
    pub fn variable(&self, name: &str) -> Result<&StoredVariable, NetcdfError> {
        self.variables.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.variables.keys().take(MAX_LISTED).map(String::as_str).collect();
            let more = if self.variables.len() > MAX_LISTED { ", …" } else { "" };
            let known = if names.is_empty() { "no variables".to_owned() } else { names.join(", ") + more };
            NetcdfError::NoSuchVariable { name: name.to_owned(), known }
        })
    }

    /// Reads a field that has the properties of the coupling file. Returns its elements in C order, little-endian.
    pub fn field(&self, name: &str, element: ElementType, shape: &[u64], units: &str) -> Result<Vec<u8>, NetcdfError> {
        let variable = self.variable(name)?;
        variable.check(name, element, shape, units)?;
        self.read(variable)
    }

    /// Reads the elements of a variable in C order, little-endian.
    fn read(&self, variable: &StoredVariable) -> Result<Vec<u8>, NetcdfError> {
        let StoredType::Field(element) = variable.element else {
            return Err(NetcdfError::Unsupported(format!("fields of {}", variable.element.name())));
        };
        let points = variable.shape.iter().try_fold(1_u64, |points, length| points.checked_mul(*length));
        let bytes = points.and_then(|points| points.checked_mul(element.size() as u64));
        let bytes = bytes.ok_or(NetcdfError::Damaged("the size of a variable"))?;
        let mut data = match &variable.data {
            Data::Contiguous { offset } => {
                let truncated = NetcdfError::Truncated { part: "the data", length: self.source.length() };
                let end = offset.checked_add(bytes);
                let length = end.filter(|end| *end <= self.source.length()).and_then(|_| usize::try_from(bytes).ok());
                let mut data = vec![0; length.ok_or(truncated)?];
                self.source.read_at(*offset, &mut data)?;
                data
            }
            Data::Compact(bytes) => bytes.clone(),
            Data::Chunked(chunked) => {
                // The caller compared the shape with the coupling file, which bounds the memory.
                let length = usize::try_from(bytes).map_err(|_| NetcdfError::Damaged("the size of a variable"))?;
                let mut data = vec![0; length];
                chunked.read(self.source, &mut data)?;
                data
            }
            Data::NeverWritten => return Err(NetcdfError::NeverWritten),
            Data::Unreadable(reason) => return Err(NetcdfError::Unsupported(reason.clone())),
        };
        if data.len() as u64 != bytes {
            return Err(NetcdfError::Damaged("the size of a variable"));
        }
        if variable.is_big_endian {
            swap_elements(&mut data, element);
        }
        Ok(data)
    }
}

/// Reverses the bytes of each element.
pub(super) fn swap_elements(data: &mut [u8], element: ElementType) {
    match element.size() {
        4 => data.as_chunks_mut::<4>().0.iter_mut().for_each(|bytes| *bytes = u32::from_le_bytes(*bytes).to_be_bytes()),
        _ => data.as_chunks_mut::<8>().0.iter_mut().for_each(|bytes| *bytes = u64::from_le_bytes(*bytes).to_be_bytes()),
    }
}
