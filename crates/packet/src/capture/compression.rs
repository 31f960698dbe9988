//! Compressed files, by their first bytes.

/// Format of a compressed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Format of gzip (RFC 1952).
    Gzip,
    /// Format of zstd (RFC 8878).
    Zstandard,
    Xz,
}

impl Compression {
    /// Bytes that [`of`](Self::of) needs.
    pub const MAGIC_LENGTH: usize = 6;

    /// Recognizes the format by the first bytes of a file. An uncompressed file gives `None`.
    pub fn of(first: &[u8]) -> Option<Compression> {
        const FORMATS: [(&[u8], Compression); 3] = [
            (&[0x1f, 0x8b], Compression::Gzip),
            (&[0x28, 0xb5, 0x2f, 0xfd], Compression::Zstandard),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], Compression::Xz),
        ];
        // A zstd file can begin with a skippable frame, as those of pzstd do.
        if let [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] = first {
            return Some(Compression::Zstandard);
        }
        FORMATS.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, format)| *format)
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Compression::Gzip => "gzip",
            Compression::Zstandard => "zstd",
            Compression::Xz => "xz",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognized_by_their_first_bytes() {
        assert_eq!(Compression::of(&[0x1f, 0x8b, 8, 0, 0, 0]), Some(Compression::Gzip));
        assert_eq!(Compression::of(&[0x28, 0xb5, 0x2f, 0xfd, 4, 0]), Some(Compression::Zstandard));
        assert_eq!(Compression::of(&[0x5a, 0x2a, 0x4d, 0x18, 4, 0]), Some(Compression::Zstandard));
        assert_eq!(Compression::of(b"\xfd7zXZ\0"), Some(Compression::Xz));
        for other in [&[][..], &[0x1f], &[0xfd, b'7'], &[0xd4, 0xc3, 0xb2, 0xa1], &[0x0a, 0x0d, 0x0d, 0x0a]] {
            assert_eq!(Compression::of(other), None);
        }
    }
}
