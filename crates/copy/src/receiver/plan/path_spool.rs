//! A list of paths that goes to disk when it grows long.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};

/// Bytes of the spool that stay in memory before the rest goes to disk.
pub(super) const SPOOL_MEMORY: usize = 1 << 20;

/// A list of paths, each with a NUL at its end. A long list goes to disk.
#[derive(Debug, Default)]
pub(super) struct PathSpool {
    memory: Vec<u8>,
    written: Option<File>,
}

impl PathSpool {
    /// Adds a path. After an error the spool is incomplete.
    pub(super) fn push(&mut self, path: &[u8], open: impl FnOnce() -> Option<File>) -> io::Result<()> {
        self.memory.extend_from_slice(path);
        self.memory.push(0);
        if self.memory.len() < SPOOL_MEMORY {
            return Ok(());
        }
        if self.written.is_none() {
            self.written = open();
        }
        if let Some(file) = &mut self.written {
            file.write_all(&self.memory)?;
            self.memory.clear();
        }
        Ok(())
    }

    /// Calls `take` for each path. A path without its end is skipped: it could name another entry.
    pub(super) fn for_each(self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        if let Some(mut file) = self.written {
            file.rewind()?;
            let mut bytes = BufReader::new(file);
            let mut path = Vec::new();
            while bytes.read_until(0, &mut path)? > 0 {
                path.strip_suffix(b"\0").into_iter().for_each(&mut take);
                path.clear();
            }
        }
        self.memory.split_inclusive(|byte| *byte == 0).filter_map(|path| path.strip_suffix(b"\0")).for_each(take);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_without_its_end_is_skipped() {
        let mut written = tempfile::tempfile().unwrap();
        written.write_all(b"d/a\0d/b\0d/to").unwrap();
        let spool = PathSpool { memory: b"e\0f/to".to_vec(), written: Some(written) };
        let mut paths = Vec::new();
        spool.for_each(|path| paths.push(path.to_vec())).unwrap();
        assert_eq!(paths, [&b"d/a"[..], b"d/b", b"e"]);
    }

    #[test]
    fn long_spool_is_read_back_completely() {
        let mut spool = PathSpool::default();
        let path = |n: usize| format!("{n:0>200}").into_bytes();
        (0..15_000).for_each(|n| spool.push(&path(n), || tempfile::tempfile().ok()).unwrap());
        assert!(spool.written.is_some());
        let mut next = 0;
        let take = |read: &[u8]| {
            assert_eq!(read, path(next));
            next += 1;
        };
        spool.for_each(take).unwrap();
        assert_eq!(next, 15_000);
    }
}
