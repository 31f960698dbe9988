//! A page of text for people: labels on the left, what they stand for on the right, as wide as lines may be.

use std::fmt::Display;

use super::terminal::columns;

/// Columns of the labels.
const LABEL: usize = 14;

/// Lines of a label and a text, wrapped.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// What was put on it.
    pub fn text(self) -> String {
        self.0
    }

    /// A line, and further ones under it where it is too long.
    pub fn row(&mut self, label: &str, text: impl Display) {
        let mut label = label;
        for line in wrap(&text.to_string(), columns() - LABEL) {
            self.0 += format!("{label:<LABEL$}{line}").trim_end();
            self.0.push('\n');
            label = "";
        }
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.0.push('\n');
    }

    /// Under a title, each item on lines of its own; nothing if there are none.
    pub fn list(&mut self, title: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.0 += &format!("{title}\n");
        for item in items {
            for (at, line) in wrap(item, columns() - 4).into_iter().enumerate() {
                self.0 += &format!("{}{line}\n", if at == 0 { "  " } else { "    " });
            }
        }
        self.gap();
    }

    /// Commands to paste: never wrapped.
    pub fn lines(&mut self, title: &str, lines: impl Iterator<Item = String>) {
        self.0 += &format!("{title}\n");
        for line in lines {
            self.0 += &format!("  {line}\n");
        }
    }
}

/// Breaks at spaces so that no line passes `width` characters, save for a word that is longer.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += length;
        }
    }
    lines
}
