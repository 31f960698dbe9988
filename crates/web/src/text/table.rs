//! Tables of text with aligned columns.

/// Spaces between two columns.
const GAP: usize = 2;

/// A table with aligned columns.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with the names of its columns.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Table { rows: vec![names.into_iter().collect()] }
    }

    /// Appends a row with a text for each column.
    pub fn push(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }

    /// Returns the lines, without spaces at their ends.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = width + GAP));
            text.push_str(cells.collect::<String>().trim_end());
            text.push('\n');
        }
        text
    }
}
