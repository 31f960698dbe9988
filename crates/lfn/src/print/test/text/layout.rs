//! Labels, line breaks and numbers that stand in columns.

use std::time::Duration;

use lfn_core::units::Bytes;

use crate::print::terminal::columns;

/// Columns of the labels.
const LABEL: usize = 12;

fn label(name: &str) -> String {
    format!("{name:<LABEL$}")
}

/// A labelled line, broken between words where it would be too long.
pub(super) fn wrapped(name: &str, text: &str) -> String {
    wrapped_at(columns(), name, text)
}

fn wrapped_at(columns: usize, name: &str, text: &str) -> String {
    let mut page = label(name);
    let mut column = LABEL;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column + width > columns && column > LABEL {
            page = format!("{}\n{}", page.trim_end(), label(""));
            column = LABEL;
        }
        page += &format!("{word} ");
        column += width + 1;
    }
    format!("{}\n", page.trim_end())
}

/// In SI alone, so that a column can be compared.
pub(super) fn decimal(bytes: u64) -> String {
    // An odd number is never printed as a multiple of 1024.
    let text = Bytes(bytes | 1).to_string();
    if bytes < 1000 { format!("{bytes} B") } else { text }
}

/// To a tenth of a second, or as it is below one.
pub(super) fn round(time: Duration) -> Duration {
    if time < Duration::from_secs(1) { time } else { Duration::from_millis((time.as_millis() as u64 + 50) / 100 * 100) }
}
