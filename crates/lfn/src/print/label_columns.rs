//! Page of text for the user: labels on the left, wrapped text on the right.

use std::fmt::Display;

use super::terminal::columns;

/// Width of the label column.
const LABEL: usize = 14;

/// Lines with a label and a wrapped text.
#[derive(Default)]
pub struct Page(String);

impl Page {
    /// Returns the finished page.
    pub fn text(self) -> String {
        self.0
    }

    /// Adds a labelled text, wrapped into further lines if it is too long.
    pub fn row(&mut self, label: &str, text: impl Display) {
        let mut label = label;
        for line in wrap(&text.to_string(), columns() - LABEL) {
            self.0 += format!("{label:<LABEL$}{line}").trim_end();
            self.0.push('\n');
            label = "";
        }
    }

    /// Adds an empty line.
    pub fn gap(&mut self) {
        self.0.push('\n');
    }

    /// Adds a title with one item per paragraph; nothing without items.
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

    /// Adds commands from the first column on, not wrapped: a here-document must end in the first column.
    pub fn commands(&mut self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            self.0 += &format!("{line}\n");
        }
    }

    /// Adds commands under a title. They are not wrapped, so that they can be pasted.
    pub fn lines(&mut self, title: &str, lines: impl Iterator<Item = String>) {
        self.0 += &format!("{title}\n");
        for line in lines {
            self.0 += &format!("  {line}\n");
        }
    }
}

/// Breaks at spaces so that no line is longer than `width` characters, except for a longer word.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
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
