//! Interface of the log formats.

use super::record::Record;

/// Encoder of one log format.
pub(super) trait Encode: Send {
    /// Writes the header of the file.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Returns true if the record belongs into this file.
    fn accepts(&self, record: &Record) -> bool;

    fn record(&mut self, record: &Record, out: &mut Vec<u8>);

    /// Writes the trailer. `missed` has one count for each capture point.
    fn end(&mut self, written: u64, missed: &[u64], out: &mut Vec<u8>);
}
