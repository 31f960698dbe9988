//! Chunks of a variable: their B-tree and their filters (HDF5 specification, III.A.1 and IV.A.2.l).

use std::io::Read;

use flate2::read::ZlibDecoder;

use super::super::error::NetcdfError;
use super::super::source::{ByteSource, Cursor};
use super::message::Filter;

const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;

/// Maximum size of a chunk, bytes.
const MAX_CHUNK: u64 = 1 << 30;
/// Maximum depth of the B-tree.
const MAX_DEPTH: u8 = 8;
/// Nodes of the B-tree that are not chunks, at most.
const MAX_INNER_NODES: u64 = 1 << 20;

/// A variable in chunks.
#[derive(Debug, Clone, PartialEq)]
pub(in super::super) struct Chunked {
    index: u64,
    /// Lengths of a chunk, elements.
    chunk: Vec<u64>,
    shape: Vec<u64>,
    element_size: u64,
    /// Filters in the order of the writer.
    filters: Vec<Filter>,
    /// Size of a chunk without filters, bytes.
    chunk_size: u64,
}

impl Chunked {
    /// Checks the layout. An error is a part that lfn does not read.
    pub(super) fn new(
        index: u64,
        mut chunk: Vec<u32>,
        shape: &[u64],
        element_size: u32,
        filters: Vec<Filter>,
    ) -> Result<Self, String> {
        let size = chunk.pop();
        if size != Some(element_size) || element_size == 0 || chunk.len() != shape.len() || chunk.contains(&0) {
            return Err("chunks that do not fit to their variable".to_owned());
        }
        let known = [DEFLATE, SHUFFLE, FLETCHER32];
        if let Some(filter) = filters.iter().find(|filter| !known.contains(&filter.id)) {
            return Err(format!("the HDF5 filter {}", filter.id));
        }
        let chunk: Vec<u64> = chunk.into_iter().map(u64::from).collect();
        let chunk_size = chunk.iter().fold(u64::from(element_size), |size, length| size.saturating_mul(*length));
        if chunk_size > MAX_CHUNK {
            return Err(format!("chunks of {chunk_size} bytes"));
        }
        Ok(Chunked { index, chunk, shape: shape.to_vec(), element_size: element_size.into(), filters, chunk_size })
    }

    /// Reads all elements into `data`, which has the size of the variable. Chunks that were never written stay as they are.
    pub(in super::super) fn read(&self, source: &dyn ByteSource, data: &mut [u8]) -> Result<(), NetcdfError> {
        let damaged = || NetcdfError::Damaged("the index of the chunks");
        let counts = self.shape.iter().zip(&self.chunk).map(|(length, chunk)| length.div_ceil(*chunk));
        let chunks = counts.fold(1_u64, u64::saturating_mul);
        let (mut found, mut visited) = (0, 0);
        let mut nodes = vec![(self.index, MAX_DEPTH)];
        while let Some((address, above)) = nodes.pop() {
            visited += 1;
            let mut node = Cursor::new(source, "the index of the chunks", address);
            let (signature, [kind, level]) = (node.array()?, node.array()?);
            if signature != *b"TREE" || kind != 1 || level >= above || visited > MAX_INNER_NODES {
                return Err(damaged());
            }
            let entries = node.u16()?;
            node.skip(16)?;
            for _ in 0..entries {
                let (stored, mask) = (node.u32()?, node.u32()?);
                let offsets = self.shape.iter().map(|_| node.u64()).collect::<Result<Vec<_>, _>>()?;
                // The dimension of the bytes of an element.
                node.skip(8)?;
                let child = node.u64()?;
                if level > 0 {
                    nodes.push((child, level));
                    continue;
                }
                found += 1;
                if found > chunks {
                    return Err(damaged());
                }
                let chunk = self.chunk(source, child, stored, mask)?;
                self.copy(&chunk, &offsets, data).ok_or_else(damaged)?;
            }
        }
        if found < chunks {
            return Err(NetcdfError::NeverWritten);
        }
        Ok(())
    }

    /// Reads a chunk, and reverts its filters.
    fn chunk(&self, source: &dyn ByteSource, address: u64, stored: u32, mask: u32) -> Result<Vec<u8>, NetcdfError> {
        let damaged = || NetcdfError::Damaged("a chunk");
        // The cursor checks the length against the file before it allocates.
        let mut bytes = Cursor::new(source, "a chunk", address).bytes(stored as usize)?;
        for (number, filter) in self.filters.iter().enumerate().rev() {
            if mask & (1 << number) != 0 {
                continue;
            }
            bytes = match filter.id {
                DEFLATE => {
                    let mut plain = Vec::new();
                    // A checksum may follow the elements.
                    let limit = self.chunk_size + 8;
                    ZlibDecoder::new(bytes.as_slice()).take(limit).read_to_end(&mut plain).map_err(|_| damaged())?;
                    plain
                }
                SHUFFLE => {
                    let size = filter.values.first().map_or(self.element_size, |size| u64::from(*size));
                    unshuffle(&bytes, size as usize).ok_or_else(damaged)?
                }
                _ => {
                    // The transport protects the bytes; the checksum of the file is not verified.
                    let length = bytes.len().checked_sub(4).ok_or_else(damaged)?;
                    bytes.truncate(length);
                    bytes
                }
            };
        }
        if bytes.len() as u64 == self.chunk_size { Ok(bytes) } else { Err(damaged()) }
    }

    /// Copies the part of a chunk within the variable. Returns `None` if the chunk is at no place of the variable.
    fn copy(&self, chunk: &[u8], offsets: &[u64], data: &mut [u8]) -> Option<()> {
        let fits = |at: usize| offsets[at] < self.shape[at] && offsets[at].is_multiple_of(self.chunk[at]);
        if !(0..offsets.len()).all(fits) {
            return None;
        }
        let rank = offsets.len();
        let last = rank.checked_sub(1)?;
        let lengths: Vec<u64> = (0..rank).map(|at| self.chunk[at].min(self.shape[at] - offsets[at])).collect();
        let row = (lengths[last] * self.element_size) as usize;
        let mut at = vec![0_u64; last];
        loop {
            let (mut from, mut to) = (0_u64, 0_u64);
            for (dimension, offset) in offsets.iter().enumerate() {
                let position = at.get(dimension).copied().unwrap_or(0);
                from = from * self.chunk[dimension] + position;
                to = to * self.shape[dimension] + offset + position;
            }
            let from = usize::try_from(from * self.element_size).ok()?;
            let to = usize::try_from(to * self.element_size).ok()?;
            data.get_mut(to..to + row)?.copy_from_slice(chunk.get(from..from + row)?);
            // The next row, as an odometer.
            let Some(dimension) = (0..last).rev().find(|dimension| at[*dimension] + 1 < lengths[*dimension]) else {
                return Some(());
            };
            at[dimension] += 1;
            at[dimension + 1..].fill(0);
        }
    }
}

/// Reverts the filter that stores the first bytes of all elements first.
fn unshuffle(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let count = bytes.len().checked_div(size)?;
    let mut plain = bytes.to_vec();
    for (number, element) in plain.chunks_exact_mut(size).enumerate() {
        for (at, byte) in element.iter_mut().enumerate() {
            *byte = bytes[at * count + number];
        }
    }
    Some(plain)
}
