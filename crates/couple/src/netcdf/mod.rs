//! NetCDF files with the fields of a coupling, as the models of [`crate::coupling`] read and write them.
//!
//! [`FieldFile`] writes the classic format: CDF-2, or CDF-5 for 64-bit integers and for fields of 2 GiB and more. [`NetcdfFile`]
//! reads the classic formats CDF-1, CDF-2 and CDF-5, and the part of NetCDF-4 (HDF5) that the NetCDF library writes by default.
//! Bytes of a file never cause a panic, and every length is bounded before it allocates.

mod classic;
mod error;
mod file;
mod hdf5;
mod source;
mod stored_type;
#[cfg(test)]
mod tests;
mod variable;
mod write;

pub use error::NetcdfError;
pub use file::NetcdfFile;
pub use source::ByteSource;
pub use stored_type::StoredType;
pub use variable::StoredVariable;
pub use write::FieldFile;
