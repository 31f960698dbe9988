//! Attributes of a variable (HDF5 specification, IV.A.2.m).

use super::super::error::NetcdfError;
use super::super::source::{ByteSource, Cursor};
use super::heap::{FractalHeap, global_object, indexed_objects};
use super::message::{self, ATTRIBUTE, ATTRIBUTE_INFO, DatatypeClass, UNDEFINED};
use super::object::ObjectHeader;

/// An attribute with the bytes of its value.
pub(super) struct Attribute {
    pub name: String,
    class: DatatypeClass,
    value: Vec<u8>,
}

/// Returns the attributes in the header and in the heap of an object.
pub(super) fn attributes(source: &dyn ByteSource, object: &ObjectHeader) -> Result<Vec<Attribute>, NetcdfError> {
    let mut attributes = Vec::new();
    for message in object.all(ATTRIBUTE) {
        attributes.extend(attribute(message)?);
    }
    if let Some(info) = object.find(ATTRIBUTE_INFO) {
        let info = info.to_vec();
        let mut cursor = Cursor::new(&info, "the attributes", 0);
        let [_version, flags] = cursor.array()?;
        cursor.skip(if flags & 1 == 0 { 0 } else { 2 })?;
        let (heap, index) = (cursor.u64()?, cursor.u64()?);
        if heap != UNDEFINED && index != UNDEFINED {
            let heap = FractalHeap::read(source, heap)?;
            for message in indexed_objects(source, &heap, index)? {
                attributes.extend(attribute(&message)?);
            }
        }
    }
    Ok(attributes)
}

/// Reads an attribute; none if its type is stored elsewhere.
fn attribute(bytes: &[u8]) -> Result<Option<Attribute>, NetcdfError> {
    let length = bytes.len() as u64;
    let bytes = bytes.to_vec();
    let mut cursor = Cursor::new(&bytes, "an attribute", 0);
    let [version, flags] = cursor.array()?;
    let sizes = [cursor.u16()?, cursor.u16()?, cursor.u16()?];
    if version > 1 && flags & 3 != 0 {
        return Ok(None);
    }
    // Character set of the name.
    cursor.skip(if version == 3 { 1 } else { 0 })?;
    let mut part = |size: u16| {
        let bytes = cursor.bytes(size.into())?;
        cursor.skip(if version == 1 { u64::from(size.next_multiple_of(8) - size) } else { 0 })?;
        Ok::<_, NetcdfError>(bytes)
    };
    let (name, kind, _space) = (part(sizes[0])?, part(sizes[1])?, part(sizes[2])?);
    let value = cursor.bytes((length - cursor.offset()) as usize)?;
    let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
    let kind = message::datatype(&kind)?;
    let size = if kind.class == DatatypeClass::Text { kind.size as usize } else { value.len() };
    let value = value.get(..size).unwrap_or_default().to_vec();
    Ok(Some(Attribute { name, class: kind.class, value }))
}

impl Attribute {
    /// Returns the text; none for other values and for a damaged heap.
    pub(super) fn text(&self, source: &dyn ByteSource) -> Option<String> {
        let bytes = match self.class {
            DatatypeClass::Text => self.value.clone(),
            DatatypeClass::HeapText => {
                let mut cursor = Cursor::new(&self.value, "an attribute", 0);
                let length = cursor.u32().ok()?;
                let (collection, number) = (cursor.u64().ok()?, cursor.u32().ok()?);
                let mut text = global_object(source, collection, number).ok()?;
                text.truncate(length as usize);
                text
            }
            DatatypeClass::Other => return None,
        };
        let text = String::from_utf8_lossy(&bytes);
        Some(text.trim_end_matches('\0').to_owned())
    }
}
