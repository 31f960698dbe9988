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

/// Text broken between words at so many columns, except what is to be copied: the lines of hints.
pub(super) fn paragraphs(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let mut page = String::new();
    for line in text.lines() {
        let mut column = 0;
        for word in line.split(' ') {
            let width = word.chars().count();
            if column > 0 && column + 1 + width > columns && !line.starts_with("hint: ") {
                page.push('\n');
                column = 0;
            } else if column > 0 {
                page.push(' ');
                column += 1;
            }
            page += word;
            column += width;
        }
        page.push('\n');
    }
    page
}

/// The columns of the table, each with how wide it is.
const TABLE: [usize; 6] = [15, 12, 7, 10, 10, 10];

/// A line of the table; a terminal too narrow for all of them has first no rwnd, then no cwnd, then no count of segments.
pub(super) fn table_line(cells: [&str; 6], columns: usize) -> String {
    let dropped: &[usize] = match columns {
        69.. => &[],
        58.. => &[4],
        47.. => &[3, 4],
        _ => &[2, 3, 4],
    };
    let kept = (0..cells.len()).filter(|index| !dropped.contains(index));
    let kept: Vec<String> = kept.map(|index| format!("{:>1$}", cells[index], TABLE[index])).collect();
    format!("{}\n", kept.join(" "))
}

/// In SI alone, so that a column can be compared.
pub(in crate::print::test) fn decimal(bytes: u64) -> String {
    // An odd number is never printed as a multiple of 1024.
    let text = Bytes(bytes | 1).to_string();
    if bytes < 1000 { format!("{bytes} B") } else { text }
}

/// To a tenth of a second, or as it is below one.
pub(super) fn round(time: Duration) -> Duration {
    if time < Duration::from_secs(1) { time } else { Duration::from_millis((time.as_millis() as u64 + 50) / 100 * 100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_to_the_width_and_hints_stay_whole() {
        let text =
            "goodput 1 Gb/s: a cause. It shows in this figure and in that one.\nhint: a command that is to be copied\n";
        assert_eq!(paragraphs(text, None), text);
        let broken = paragraphs(text, Some(24));
        assert_eq!(
            broken,
            "goodput 1 Gb/s: a cause.\nIt shows in this figure\nand in that one.\nhint: a command that is to be copied\n"
        );
        assert!(wrapped_at(40, "label", "some words that go on and on and on").lines().all(|line| line.len() <= 40));
    }

    #[test]
    fn a_narrow_table_has_fewer_columns() {
        let cells = ["0.0-1.0", "129 Mb/s", "3", "9.1 MB", "4.5 MB", "541 ms"];
        for (columns, parts) in [(100, 6), (69, 6), (68, 5), (57, 4), (46, 3), (40, 3)] {
            let line = table_line(cells, columns);
            assert!(line.trim_end().chars().count() <= columns, "{line}");
            assert_eq!(line.split("  ").filter(|part| !part.trim().is_empty()).count(), parts, "{line}");
            assert!(line.contains("129 Mb/s") && line.contains("541 ms"));
        }
    }
}
