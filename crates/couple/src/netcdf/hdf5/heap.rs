//! Heaps: the fractal heap of many links or attributes with its index, and the global heap of texts (HDF5 specification, III.A.2,
//! III.E and III.G).

use super::super::error::NetcdfError;
use super::super::source::{ByteSource, Cursor};
use super::message::UNDEFINED;

/// Maximum size of an object in a heap, bytes.
const MAX_OBJECT: u64 = 64 * 1024;
/// Maximum number of objects in an index.
const MAX_OBJECTS: u64 = 8192;
/// Maximum size of a collection of a global heap, bytes.
const MAX_COLLECTION: u64 = 16 * 1024 * 1024;

const UNREADABLE: &str = "HDF5 files with very many variables or attributes";

/// A fractal heap with its sizes.
pub(super) struct FractalHeap {
    id_length: u16,
    /// Size of an offset in the heap, bytes.
    offset_size: u8,
    /// Size of the length of an object, bytes.
    length_size: u8,
    table_width: u64,
    first_block: u64,
    max_direct_block: u64,
    root: u64,
    /// Rows of the indirect block at the root; 0 if the root is a direct block.
    rows: u16,
}

impl FractalHeap {
    /// Reads the header of a heap.
    pub(super) fn read(source: &dyn ByteSource, address: u64) -> Result<Self, NetcdfError> {
        let mut cursor = Cursor::new(source, "a fractal heap", address);
        if cursor.array()? != *b"FRHP" {
            return Err(NetcdfError::Damaged("a fractal heap"));
        }
        cursor.skip(1)?;
        let (id_length, filters) = (cursor.u16()?, cursor.u16()?);
        cursor.skip(1)?;
        let max_object = cursor.u32()?;
        // Huge and tiny objects, and statistics.
        cursor.skip(12 * 8)?;
        let table_width = cursor.u16()?.into();
        let (first_block, max_direct_block) = (cursor.u64()?, cursor.u64()?);
        let heap_bits = cursor.u16()?;
        cursor.skip(2)?;
        let (root, rows) = (cursor.u64()?, cursor.u16()?);
        if filters != 0 || root == UNDEFINED {
            return Err(NetcdfError::Unsupported(UNREADABLE.to_owned()));
        }
        if table_width == 0 || first_block == 0 || heap_bits > 64 {
            return Err(NetcdfError::Damaged("a fractal heap"));
        }
        let offset_size = heap_bits.div_ceil(8) as u8;
        // The length has as many bytes as the larger of both maxima needs, at most 4.
        let largest = max_direct_block.min(max_object.into()).max(1);
        let length_size = (largest.ilog2() / 8 + 1) as u8;
        Ok(FractalHeap { id_length, offset_size, length_size, table_width, first_block, max_direct_block, root, rows })
    }

    /// Reads the object of an id.
    fn object(&self, source: &dyn ByteSource, id: &[u8]) -> Result<Vec<u8>, NetcdfError> {
        let id = id.to_vec();
        let mut cursor = Cursor::new(&id, "a heap id", 0);
        let [kind] = cursor.array()?;
        if kind & 0x30 != 0 {
            return Err(NetcdfError::Unsupported("very long attributes of HDF5".to_owned()));
        }
        let (offset, length) = (cursor.number(self.offset_size.into())?, cursor.number(self.length_size.into())?);
        if length > MAX_OBJECT {
            return Err(NetcdfError::TooMany { what: "bytes of an object", found: length, max: MAX_OBJECT });
        }
        let address = self.address(source, offset)?;
        Cursor::new(source, "a fractal heap", address).bytes(length as usize)
    }

    /// Returns the place of an offset of the heap in the file.
    fn address(&self, source: &dyn ByteSource, offset: u64) -> Result<u64, NetcdfError> {
        if self.rows == 0 {
            return Ok(self.root.saturating_add(offset));
        }
        // Rows 0 and 1 have blocks of the first size. The size doubles with each further row.
        let (mut size, mut start, mut first) = (self.first_block, 0_u64, 0_u64);
        for row in 0..self.rows.min(64) {
            if row > 1 {
                size = size.saturating_mul(2);
            }
            let end = start.saturating_add(size.saturating_mul(self.table_width));
            if offset < end {
                if size > self.max_direct_block {
                    break;
                }
                let (block, within) = ((offset - start) / size, (offset - start) % size);
                // Signature, version, address of the heap and offset of the block.
                let entries = self.root.saturating_add(4 + 1 + 8 + u64::from(self.offset_size));
                let entry = entries.saturating_add((first + block) * 8);
                let address = Cursor::new(source, "a fractal heap", entry).u64()?;
                return Ok(address.saturating_add(within));
            }
            start = end;
            first += self.table_width;
        }
        Err(NetcdfError::Unsupported(UNREADABLE.to_owned()))
    }
}

/// Returns the objects of a heap that a B-tree of version 2 lists.
pub(super) fn indexed_objects(
    source: &dyn ByteSource,
    heap: &FractalHeap,
    address: u64,
) -> Result<Vec<Vec<u8>>, NetcdfError> {
    let mut cursor = Cursor::new(source, "an index", address);
    if cursor.array()? != *b"BTHD" {
        return Err(NetcdfError::Damaged("an index"));
    }
    let [_version, kind] = cursor.array()?;
    let (node_size, record_size, depth) = (cursor.u32()?, cursor.u16()?, cursor.u16()?);
    cursor.skip(2)?;
    let (root, count) = (cursor.u64()?, cursor.u16()?);
    // The id of the heap is after the hash of a link, and before that of an attribute.
    let id_at: u16 = match kind {
        5 => 4,
        8 => 0,
        _ => return Err(NetcdfError::Damaged("an index")),
    };
    if record_size < id_at.saturating_add(heap.id_length) || node_size < 16 {
        return Err(NetcdfError::Damaged("an index"));
    }
    let mut ids = Vec::new();
    let mut read_records = |cursor: &mut Cursor<'_>, count: u64| -> Result<(), NetcdfError> {
        for _ in 0..count {
            if ids.len() as u64 >= MAX_OBJECTS {
                return Err(NetcdfError::TooMany { what: "objects", found: MAX_OBJECTS + 1, max: MAX_OBJECTS });
            }
            let record = cursor.bytes(record_size.into())?;
            ids.push(record[id_at.into()..(id_at + heap.id_length).into()].to_vec());
        }
        Ok(())
    };
    let node = |address: u64, signature: [u8; 4]| -> Result<Cursor<'_>, NetcdfError> {
        let mut cursor = Cursor::new(source, "an index", address);
        if cursor.array()? != signature {
            return Err(NetcdfError::Damaged("an index"));
        }
        cursor.skip(2)?;
        Ok(cursor)
    };
    match depth {
        _ if root == UNDEFINED => {}
        0 => read_records(&mut node(root, *b"BTLF")?, count.into())?,
        1 => {
            let mut inner = node(root, *b"BTIN")?;
            read_records(&mut inner, count.into())?;
            // The number of records has as many bytes as that of a full leaf needs.
            let full = (u64::from(node_size) - 10) / u64::from(record_size);
            let size = full.max(1).ilog2() / 8 + 1;
            for _ in 0..=count {
                let (leaf, records) = (inner.u64()?, inner.number(size as usize)?);
                read_records(&mut node(leaf, *b"BTLF")?, records)?;
            }
        }
        _ => return Err(NetcdfError::Unsupported(UNREADABLE.to_owned())),
    }
    ids.iter().map(|id| heap.object(source, id)).collect()
}

/// Reads an object of a global heap.
pub(super) fn global_object(source: &dyn ByteSource, collection: u64, number: u32) -> Result<Vec<u8>, NetcdfError> {
    let mut cursor = Cursor::new(source, "a global heap", collection);
    if cursor.array()? != *b"GCOL" {
        return Err(NetcdfError::Damaged("a global heap"));
    }
    cursor.skip(4)?;
    let size = cursor.u64()?.min(MAX_COLLECTION);
    let end = collection.saturating_add(size);
    while cursor.offset().saturating_add(16) <= end {
        let found = cursor.u16()?;
        cursor.skip(6)?;
        let length = cursor.u64()?;
        if found == 0 {
            break;
        }
        if u32::from(found) == number && length <= MAX_OBJECT {
            return cursor.bytes(length as usize);
        }
        cursor.skip(length.checked_next_multiple_of(8).ok_or(NetcdfError::Damaged("a global heap"))?)?;
    }
    Err(NetcdfError::Damaged("a global heap"))
}
