//! Errors of NetCDF files.

use std::io;

/// Reason why a NetCDF file, or a variable of a NetCDF file, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NetcdfError {
    /// The first bytes are those of no NetCDF format.
    #[error("not a NetCDF file")]
    NotNetcdf,
    #[error("the file ends at byte {length}, within {part}")]
    Truncated { part: &'static str, length: u64 },
    /// The file breaks the format.
    #[error("damaged NetCDF file: {0}")]
    Damaged(&'static str),
    #[error("{what}: {found}; the maximum is {max}")]
    TooMany { what: &'static str, found: u64, max: u64 },
    /// The file is valid, but uses a part of the format that lfn does not read.
    #[error("lfn does not read {0}")]
    Unsupported(String),
    #[error("the variable, or a part of it, was never written")]
    NeverWritten,
    #[error("no variable {name}; the file has {known}")]
    NoSuchVariable { name: String, known: String },
    #[error("{name} is packed: it has the attribute {attribute}")]
    Packed { name: String, attribute: &'static str },
    #[error("{name}: the file has the {key} {found}, the coupling file has {expected}")]
    Differs { name: String, key: &'static str, found: String, expected: String },
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl NetcdfError {
    /// Returns an action that fixes the cause.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            NetcdfError::Truncated { .. } => {
                "write the file under another name, close the file, then rename it".to_owned()
            }
            NetcdfError::NotNetcdf => "write NetCDF, classic or NetCDF-4".to_owned(),
            NetcdfError::Unsupported(_) => {
                "write the classic format: format=\"NETCDF3_64BIT_DATA\" in netCDF4 for Python, or nccopy -k cdf5 IN OUT"
                    .to_owned()
            }
            NetcdfError::NoSuchVariable { name, .. } => {
                format!("name the variable in the file {name}, as in the coupling file")
            }
            NetcdfError::Packed { attribute, .. } => format!("write the unpacked values, without {attribute}"),
            NetcdfError::Differs { name, .. } => {
                format!("change [variable.{name}] at both sites, or convert the field in the model")
            }
            NetcdfError::NeverWritten => "write all elements of the variable, and close the file".to_owned(),
            NetcdfError::Damaged(_) | NetcdfError::TooMany { .. } | NetcdfError::Io(_) => return None,
        })
    }
}
