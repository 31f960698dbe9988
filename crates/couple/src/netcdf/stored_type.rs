//! Types of the elements in a file.

use crate::coupling::ElementType;

/// Type of the elements in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredType {
    Field(ElementType),
    /// A type that no field has, by its name in NumPy.
    Other(&'static str),
}

impl StoredType {
    /// Returns the name of the type in NumPy.
    pub fn name(self) -> &'static str {
        match self {
            StoredType::Field(element) => element.name(),
            StoredType::Other(name) => name,
        }
    }
}
