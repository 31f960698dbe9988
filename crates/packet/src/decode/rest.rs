//! Bytes that are not decoded yet.

/// Captured rest of a frame, and its length on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rest<'a> {
    pub(super) bytes: &'a [u8],
    /// Bytes on the wire, with those that the capture does not have.
    pub(super) wire: usize,
}

impl<'a> Rest<'a> {
    /// Returns the rest after a header; `None` if the capture ends within the header.
    #[inline]
    pub(super) fn skip(self, header: usize) -> Option<Rest<'a>> {
        Some(Rest { bytes: self.bytes.get(header..)?, wire: self.wire.saturating_sub(header) })
    }

    /// Sets the length on the wire that a header states, and drops captured bytes after it, such as padding.
    #[inline]
    pub(super) fn limit(self, wire: usize) -> Rest<'a> {
        Rest { bytes: &self.bytes[..self.bytes.len().min(wire)], wire }
    }

    #[inline]
    pub(super) fn u8(self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    #[inline]
    pub(super) fn u16(self, at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    #[inline]
    pub(super) fn u32(self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// Returns the first bytes.
    #[inline]
    pub(super) fn head<const N: usize>(self) -> Option<&'a [u8; N]> {
        self.bytes.first_chunk()
    }
}
