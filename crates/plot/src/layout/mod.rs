//! Layout of a picture: the areas of its parts, and the texts, of which no two overlap.

mod axes;
mod bands;
mod header;
mod labels;
mod legend;
mod lines;
mod map;
mod marks;
mod page;
mod panel;

use crate::model::Picture;
#[cfg(test)]
use crate::scene::Item;
use crate::scene::{Drawing, Rect, Size};
use page::Page;

/// Width and height of a picture with one panel, in pixels.
pub const DEFAULT_SIZE: Size = Size { width: 840, height: 520 };
/// Limits of both dimensions of a picture with one panel.
pub const MIN_SIZE: Size = Size { width: 320, height: 240 };
pub const MAX_SIZE: Size = Size { width: 2000, height: 2000 };
/// Maximum number of panels. A PNG of more panels would need too much memory.
pub const MAX_PANELS: usize = 12;
/// Minimum height of a picture with one panel, in font sizes.
const MIN_LINES: f64 = 24.0;
/// Maximum number of panels one below the other. More panels are in two columns.
const MAX_ROWS: usize = 4;

impl Picture {
    /// Draws the picture. `size` is that of a picture with one panel; a picture with several panels is higher, and one with
    /// more than four is twice as wide.
    pub fn draw(&self, size: Size) -> Drawing {
        let width = f64::from(size.width.clamp(MIN_SIZE.width, MAX_SIZE.width));
        let height = f64::from(size.height.clamp(MIN_SIZE.height, MAX_SIZE.height));
        let font = font_size(width, height);
        let panels = &self.panels[..self.panels.len().min(MAX_PANELS)];
        let columns = if panels.len() > MAX_ROWS { 2 } else { 1 };
        let mut page = Page::new(width * columns as f64, font);
        let top = header::draw(&mut page, self, height);
        let mut bottom = top;
        for row in panels.chunks(columns) {
            // Several panels have names, for which they are a little higher.
            let name = if panels.len() > 1 { page::LINE * font } else { 0.0 };
            let row_bottom = bottom + name + height - top;
            for (column, panel) in row.iter().enumerate() {
                let left = width * column as f64;
                let area = Rect { left, top: bottom, right: left + width, bottom: row_bottom };
                panel::draw(&mut page, panel, area, name);
            }
            bottom = row_bottom;
        }
        let size = Size { width: page.width as u32, height: bottom.max(height).ceil() as u32 };
        let description = self.in_words();
        Drawing { size, title: self.title.clone(), description, items: page.into_items() }
    }

    /// Returns the texts of the picture for readers that cannot see it.
    fn in_words(&self) -> String {
        let warning = self.warning.as_ref().map(|warning| format!("NOT ACCURATE: {warning}."));
        let lines = self.lines.iter().map(|line| format!("{line}."));
        let parts = lines.chain(warning).chain([self.description.clone()]);
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the size of the usual font. Small pictures have a smaller one, so that the plot keeps its room.
fn font_size(width: f64, height: f64) -> f64 {
    let default = f64::from(DEFAULT_SIZE.width) * f64::from(DEFAULT_SIZE.height);
    let relative = (width * height / default).sqrt();
    (page::DEFAULT_FONT * relative.powf(0.6)).min(height / MIN_LINES).clamp(10.0, 30.0)
}

/// Returns the area of the whole item list, for tests.
#[cfg(test)]
pub(crate) fn shapes(drawing: &Drawing) -> &[Item] {
    &drawing.items
}
