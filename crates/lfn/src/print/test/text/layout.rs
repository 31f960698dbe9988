//! Labels, line breaks and table columns.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};

use crate::print::terminal::columns;

/// Width of the label column.
const LABEL: usize = 12;

fn label(name: &str) -> String {
    format!("{name:<LABEL$}")
}

/// Returns a labelled text, wrapped between words.
pub(in crate::print::test) fn wrapped(name: &str, text: &str) -> String {
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

/// Wraps text between words at this number of columns, except for the lines of hints, which are copied.
pub(in crate::print::test) fn paragraphs(text: &str, columns: Option<usize>) -> String {
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

/// Table with preferred and minimum column widths, and the columns that a narrow terminal drops, in this order.
pub(super) struct Grid<const N: usize> {
    pub(super) wide: [usize; N],
    pub(super) min: [usize; N],
    pub(super) dropped: &'static [usize],
}

impl<const N: usize> Grid<N> {
    /// Returns one line of the table.
    pub(super) fn line(&self, cells: [&str; N], columns: usize) -> String {
        let (widths, columns_shown) = self.fitting(columns);
        let columns_shown: Vec<String> =
            columns_shown.into_iter().map(|index| format!("{:>1$}", cells[index], widths[index])).collect();
        format!("{}\n", columns_shown.join(" "))
    }

    fn fitting(&self, columns: usize) -> (&[usize; N], Vec<usize>) {
        let mut columns_shown: Vec<usize> = (0..N).collect();
        let needs = |widths: &[usize; N], columns_shown: &[usize]| {
            columns_shown.iter().map(|&index| widths[index] + 1).sum::<usize>().saturating_sub(1)
        };
        if needs(&self.wide, &columns_shown) <= columns {
            return (&self.wide, columns_shown);
        }
        for dropped in self.dropped {
            if needs(&self.min, &columns_shown) <= columns {
                break;
            }
            columns_shown.retain(|index| index != dropped);
        }
        (&self.min, columns_shown)
    }
}

/// Formats a rate for a column: one decimal place, two from 1 Gb/s, so that the points are below each other.
pub(super) fn rate_cell(rate: BitRate) -> String {
    fixed(rate.as_f64(), &[(1e9, "Gb/s", 2), (1e6, "Mb/s", 1), (1e3, "kb/s", 1), (1.0, "b/s", 0)])
}

/// Formats bytes for a column.
pub(super) fn bytes_cell(bytes: Bytes) -> String {
    fixed(bytes.0 as f64, &[(1e9, "GB", 2), (1e6, "MB", 1), (1e3, "kB", 1), (1.0, "B", 0)])
}

/// Formats a time for a column.
pub(super) fn time_cell(time: Duration) -> String {
    fixed(time.as_secs_f64(), &[(10.0, "s", 1), (1e-3, "ms", 1), (1e-6, "µs", 0)])
}

/// Formats a value in the first unit that is not larger, with its decimal places. The last unit has all smaller values.
fn fixed(value: f64, units: &[(f64, &str, usize)]) -> String {
    let unit = units.iter().find(|(size, ..)| value >= *size).or(units.last());
    // 10 s is the size from which seconds are used.
    let &(size, name, places) = unit.unwrap_or(&(1.0, "", 0));
    let size = if name == "s" { 1.0 } else { size };
    format!("{:.places$} {name}", value / size)
}

/// Rounds a time to a tenth of a second if it is at least one second.
pub(super) fn round(time: Duration) -> Duration {
    if time < Duration::from_secs(1) { time } else { Duration::from_millis((time.as_millis() as u64 + 50) / 100 * 100) }
}

/// Returns a count of segments with its noun.
pub(super) fn segments(count: u64) -> String {
    if count == 1 { "1 segment".into() } else { format!("{count} segments") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_the_width_and_hints_are_not_wrapped() {
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
    fn cells_of_a_column_have_equal_decimal_places() {
        let rates = [191_000_000, 191_340_000, 8_700_000, 999].map(|rate| rate_cell(BitRate(rate)));
        assert_eq!(rates, ["191.0 Mb/s", "191.3 Mb/s", "8.7 Mb/s", "999 b/s"]);
        assert_eq!(
            [80_000, 541_234, 12_000_000].map(|us| time_cell(Duration::from_micros(us))),
            ["80.0 ms", "541.2 ms", "12.0 s"]
        );
        assert_eq!([240_000, 4_500_000].map(|bytes| bytes_cell(Bytes(bytes))), ["240.0 kB", "4.5 MB"]);
    }

    /// Cells of five letters.
    const GRID: Grid<4> = Grid { wide: [9, 9, 9, 9], min: [5, 5, 5, 5], dropped: &[2, 1] };

    #[test]
    fn a_narrow_table_is_tighter_and_then_drops_columns() {
        for (columns, shown) in
            [(40, "abcd"), (39, "abcd"), (38, "abcd"), (23, "abcd"), (22, "abd"), (16, "ad"), (1, "ad")]
        {
            let line = GRID.line(["aaaaa", "bbbbb", "ccccc", "ddddd"], columns);
            assert!(line.trim_end().chars().count() <= columns.max(11), "{columns}: {line}");
            let mut letters: Vec<char> = line.chars().filter(|letter| letter.is_alphabetic()).collect();
            letters.dedup();
            assert_eq!(letters.into_iter().collect::<String>(), shown, "{columns}: {line}");
            assert_eq!(line.starts_with(' '), columns >= 39, "{columns}: {line}");
        }
    }
}
