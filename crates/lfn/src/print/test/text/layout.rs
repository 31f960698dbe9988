//! Labels, line breaks and numbers that stand in columns.

use std::time::Duration;

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

/// A table: how wide its columns are where there is room, how wide they have to be, and which a terminal too narrow for
/// all of them goes without, in that order.
pub(super) struct Grid<const N: usize> {
    pub(super) wide: [usize; N],
    pub(super) least: [usize; N],
    pub(super) spared: &'static [usize],
}

impl<const N: usize> Grid<N> {
    /// A line of it.
    pub(super) fn line(&self, cells: [&str; N], columns: usize) -> String {
        let (widths, kept) = self.fitting(columns);
        let kept: Vec<String> = kept.into_iter().map(|index| format!("{:>1$}", cells[index], widths[index])).collect();
        format!("{}\n", kept.join(" "))
    }

    fn fitting(&self, columns: usize) -> (&[usize; N], Vec<usize>) {
        let mut kept: Vec<usize> = (0..N).collect();
        let needs = |widths: &[usize; N], kept: &[usize]| {
            kept.iter().map(|&index| widths[index] + 1).sum::<usize>().saturating_sub(1)
        };
        if needs(&self.wide, &kept) <= columns {
            return (&self.wide, kept);
        }
        for spared in self.spared {
            if needs(&self.least, &kept) <= columns {
                break;
            }
            kept.retain(|index| index != spared);
        }
        (&self.least, kept)
    }
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

    /// Of five letters each, and of so many columns.
    const GRID: Grid<4> = Grid { wide: [9, 9, 9, 9], least: [5, 5, 5, 5], spared: &[2, 1] };

    #[test]
    fn a_narrow_table_is_tighter_and_then_has_fewer_columns() {
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
