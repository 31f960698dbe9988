//! Table of text that fits a small terminal: less important columns are dropped until the lines fit.

/// A column of a table.
pub struct Column {
    pub head: &'static str,
    /// True for a column of numbers.
    pub is_right: bool,
    /// Columns with a smaller rank are dropped first; [`Column::KEPT`] are never dropped.
    pub rank: u8,
}

impl Column {
    /// Rank of a column that is never dropped.
    pub const KEPT: u8 = u8::MAX;

    /// Creates a column of texts.
    pub fn text(head: &'static str, rank: u8) -> Self {
        Column { head, is_right: false, rank }
    }

    /// Creates a column of numbers.
    pub fn number(head: &'static str, rank: u8) -> Self {
        Column { head, is_right: true, rank }
    }
}

/// Returns the lines of a table that is at most `width` columns wide, if its kept columns are. A column without texts is
/// dropped. Nothing without rows.
pub fn table(columns: &[Column], rows: &[Vec<String>], width: usize) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| rows.iter().map(|row| length(&row[at])).max().unwrap_or(0).max(length(column.head)))
        .collect();
    let has_text = |at: &usize| rows.iter().any(|row| !row[*at].is_empty());
    let mut kept: Vec<usize> = (0..columns.len()).filter(has_text).collect();
    loop {
        let total: usize = kept.iter().map(|at| widths[*at] + 2).sum();
        let droppable = kept.iter().copied().filter(|at| columns[*at].rank != Column::KEPT);
        match droppable.min_by_key(|at| columns[*at].rank) {
            Some(least) if total > width + 2 => kept.retain(|at| *at != least),
            _ => break,
        }
    }
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells = kept.iter().map(|at| {
            let (text, width) = (cell(*at), widths[*at]);
            if columns[*at].is_right { format!("{text:>width$}") } else { format!("{text:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let head = line(&|at| columns[at].head.to_owned());
    rows.iter().fold(head, |text, row| text + &line(&|at| row[at].clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_terminals_drop_columns_by_rank() {
        let columns = [Column::text("host", Column::KEPT), Column::number("slots", 2), Column::text("remark", 1)];
        let rows = vec![
            vec!["aztec".to_owned(), "12".to_owned(), "shares oc3".to_owned()],
            vec!["mario".to_owned(), "4".to_owned(), String::new()],
        ];
        assert_eq!(table(&columns, &rows, 80), "host   slots  remark\naztec     12  shares oc3\nmario      4\n");
        assert_eq!(table(&columns, &rows, 15), "host   slots\naztec     12\nmario      4\n");
        assert_eq!(table(&columns, &rows, 3), "host\naztec\nmario\n");
        assert_eq!(table(&columns, &[], 80), "");
        let bare = vec![vec!["aztec".to_owned(), "1".to_owned(), String::new()]];
        assert_eq!(table(&columns, &bare, 80), "host   slots\naztec      1\n");
    }
}
