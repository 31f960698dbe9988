//! Links of a group: in its header, in a heap with an index, or in a symbol table (HDF5 specification, III.C and IV.A.2.g).

use super::super::error::NetcdfError;
use super::super::source::{ByteSource, Cursor};
use super::heap::{FractalHeap, indexed_objects};
use super::message::{LINK, LINK_INFO, SYMBOL_TABLE, UNDEFINED};
use super::object::ObjectHeader;

/// Maximum number of objects in the root group. `NC_MAX_VARS` of the NetCDF library.
const MAX_LINKS: usize = 8192;
/// Maximum length of a name, bytes.
const MAX_NAME: u64 = 1024;
/// Maximum depth of the B-tree of a symbol table.
const MAX_DEPTH: u8 = 8;

/// Returns the names and addresses of the objects in a group. Symbolic and external links are skipped.
pub(super) fn links(source: &dyn ByteSource, group: &ObjectHeader) -> Result<Vec<(String, u64)>, NetcdfError> {
    let mut links = Vec::new();
    for message in group.all(LINK) {
        links.extend(link(message)?);
    }
    if let Some(info) = group.find(LINK_INFO) {
        let info = info.to_vec();
        let mut cursor = Cursor::new(&info, "the links", 0);
        let [_version, flags] = cursor.array()?;
        cursor.skip(if flags & 1 == 0 { 0 } else { 8 })?;
        let (heap, index) = (cursor.u64()?, cursor.u64()?);
        if heap != UNDEFINED && index != UNDEFINED {
            let heap = FractalHeap::read(source, heap)?;
            for message in indexed_objects(source, &heap, index)? {
                links.extend(link(&message)?);
            }
        }
    }
    if let Some(table) = group.find(SYMBOL_TABLE) {
        symbol_table(source, table, &mut links)?;
    }
    if links.len() > MAX_LINKS {
        let found = links.len() as u64;
        return Err(NetcdfError::TooMany { what: "objects", found, max: MAX_LINKS as u64 });
    }
    Ok(links)
}

/// Reads a link message.
fn link(bytes: &[u8]) -> Result<Option<(String, u64)>, NetcdfError> {
    let bytes = bytes.to_vec();
    let mut cursor = Cursor::new(&bytes, "a link", 0);
    let [_version, flags] = cursor.array()?;
    let kind = if flags & 8 == 0 { 0 } else { cursor.number(1)? };
    // Creation order and character set.
    cursor.skip(if flags & 4 == 0 { 0 } else { 8 })?;
    cursor.skip(if flags & 16 == 0 { 0 } else { 1 })?;
    let length = cursor.number(1 << (flags & 3))?;
    if length > MAX_NAME {
        return Err(NetcdfError::TooMany { what: "characters of a name", found: length, max: MAX_NAME });
    }
    let name = String::from_utf8_lossy(&cursor.bytes(length as usize)?).into_owned();
    Ok(if kind == 0 { Some((name, cursor.u64()?)) } else { None })
}

/// Reads the symbol table of an old group.
fn symbol_table(source: &dyn ByteSource, table: &[u8], links: &mut Vec<(String, u64)>) -> Result<(), NetcdfError> {
    let table = table.to_vec();
    let mut cursor = Cursor::new(&table, "a symbol table", 0);
    let (tree, heap) = (cursor.u64()?, cursor.u64()?);
    let mut heap = Cursor::new(source, "a local heap", heap);
    if heap.array()? != *b"HEAP" {
        return Err(NetcdfError::Damaged("a local heap"));
    }
    heap.skip(4 + 16)?;
    let names = heap.u64()?;
    let mut nodes = vec![(tree, MAX_DEPTH)];
    let mut visited = 0;
    while let Some((address, above)) = nodes.pop() {
        visited += 1;
        if visited > MAX_LINKS || links.len() > MAX_LINKS {
            return Err(NetcdfError::Damaged("a symbol table"));
        }
        let mut node = Cursor::new(source, "a symbol table", address);
        match node.array()? {
            [b'T', b'R', b'E', b'E'] => {
                let [kind, level] = node.array()?;
                let entries = node.u16()?;
                if kind != 0 || level >= above {
                    return Err(NetcdfError::Damaged("a symbol table"));
                }
                node.skip(16)?;
                for _ in 0..entries {
                    node.skip(8)?;
                    nodes.push((node.u64()?, level));
                }
            }
            [b'S', b'N', b'O', b'D'] => {
                node.skip(2)?;
                for _ in 0..node.u16()? {
                    let (name, header) = (node.u64()?, node.u64()?);
                    node.skip(24)?;
                    links.push((name_at(source, names.saturating_add(name))?, header));
                }
            }
            _ => return Err(NetcdfError::Damaged("a symbol table")),
        }
    }
    Ok(())
}

/// Reads a name up to its zero byte.
fn name_at(source: &dyn ByteSource, address: u64) -> Result<String, NetcdfError> {
    let available = source.length().saturating_sub(address).min(MAX_NAME);
    let bytes = Cursor::new(source, "a name", address).bytes(available as usize)?;
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}
