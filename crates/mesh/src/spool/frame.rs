//! Frames of a segment: four bytes of little-endian length, eight bytes of BLAKE3, and the JSON of an entry.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::error::{MAX_FRAME, SpoolError};

/// Bytes before the JSON.
const FRAME_HEAD: usize = 12;

/// One entry of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// The entry; `None` if its bytes are damaged.
    pub json: Option<Vec<u8>>,
    /// End of the frame in the file, bytes.
    pub end: u64,
}

/// Returns the frame of an entry; `None` if the entry is too long.
pub(super) fn encode(json: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(json.len()).ok().filter(|_| json.len() <= MAX_FRAME)?;
    let mut bytes = Vec::with_capacity(FRAME_HEAD + json.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&checksum(json));
    bytes.extend_from_slice(json);
    Some(bytes)
}

fn checksum(json: &[u8]) -> [u8; 8] {
    let mut short = [0; 8];
    short.copy_from_slice(&blake3::hash(json).as_bytes()[..8]);
    short
}

/// Reports whether a complete frame begins anywhere but at the start.
pub(super) fn has_frame_after_start(bytes: &[u8]) -> bool {
    (1..bytes.len()).any(|start| is_frame(&bytes[start..]))
}

fn is_frame(bytes: &[u8]) -> bool {
    let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD>() else { return false };
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    (1..=MAX_FRAME).contains(&length) && rest.get(..length).is_some_and(|json| checksum(json) == head[4..])
}

/// Reads the frames of a segment in order.
#[derive(Debug)]
pub(super) struct Reader {
    path: PathBuf,
    file: BufReader<io::Take<File>>,
    offset: u64,
}

impl Reader {
    /// Opens a segment for its first `length` bytes.
    pub(super) fn open(path: &Path, length: u64) -> Result<Self, SpoolError> {
        let file = File::open(path).map_err(|source| SpoolError::Io { path: path.to_owned(), source })?;
        Ok(Reader { path: path.to_owned(), file: BufReader::new(file.take(length)), offset: 0 })
    }

    /// Returns the end of the last frame in the file, bytes.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next frame; `None` at the end. A frame that is too long, or goes beyond the end, is an error.
    pub(super) fn next_frame(&mut self) -> Result<Option<Frame>, SpoolError> {
        let mut head = [0; FRAME_HEAD];
        match self.file.read(&mut head[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(source) => return Err(SpoolError::Io { path: self.path.clone(), source }),
        }
        self.fill(&mut head[1..])?;
        let (length, expected) = head.split_at(4);
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
        if length > MAX_FRAME {
            return Err(self.damaged());
        }
        let mut json = vec![0; length];
        self.fill(&mut json)?;
        let is_whole = checksum(&json) == *expected;
        self.offset += (FRAME_HEAD + length) as u64;
        Ok(Some(Frame { json: is_whole.then_some(json), end: self.offset }))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SpoolError> {
        self.file.read_exact(bytes).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(),
            _ => SpoolError::Io { path: self.path.clone(), source },
        })
    }

    fn damaged(&self) -> SpoolError {
        SpoolError::Damaged { path: self.path.clone(), offset: self.offset }
    }
}
