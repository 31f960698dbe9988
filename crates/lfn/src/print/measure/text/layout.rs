//! Labels, line breaks and table columns.

use std::time::Duration;

use crate::print::terminal::columns;

/// Width of the label column.
const LABEL: usize = 12;

fn label(name: &str) -> String {
    format!("{name:<LABEL$}")
}

/// Returns a labelled text, wrapped between words.
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

/// Wraps text between words at this number of columns, except for the lines of hints, which are copied.
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

/// Rounds a time to a tenth of a second if it is at least one second.
pub(super) fn round(time: Duration) -> Duration {
    if time < Duration::from_secs(1) { time } else { Duration::from_millis((time.as_millis() as u64 + 50) / 100 * 100) }
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
