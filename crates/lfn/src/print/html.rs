//! A report as one HTML page, with its pictures and its JSON document, and without anything from the network.

use lfn_api::pictures::Album;
use lfn_plot::{DEFAULT_SIZE, Size};
use serde::Serialize;

use super::page_text;

/// Look of the page. Pictures have their own white background.
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1e1e1e;background:#fff}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;padding:.8rem;border-radius:4px}\
table{border-collapse:collapse}th,td{padding:.25rem .8rem;border-bottom:1px solid #ddd;text-align:right}th:first-child,td:first-child{text-align:left}\
svg{max-width:100%;height:auto}figure{margin:1rem 0}summary{cursor:pointer}";

/// Size of the pictures.
const PICTURE_SIZE: Size = DEFAULT_SIZE;

/// A page with the result of one command.
#[derive(Clone, Debug, Default)]
pub struct HtmlPage {
    pub title: String,
    /// The result as the command prints it.
    pub summary: String,
    pub tables: Vec<HtmlTable>,
    pub album: Album,
    /// The document of the result.
    pub json: String,
}

/// A table. The first column is aligned to the left. A column without texts is not shown.
#[derive(Clone, Debug, Default)]
pub struct HtmlTable {
    pub name: String,
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

impl HtmlPage {
    /// Creates the page of a document: the printed text and the charts. The title is the name of the command.
    pub fn of(document: &impl Serialize, album: Album) -> Self {
        let value = serde_json::to_value(document).unwrap_or_default();
        let schema = value["schema"].as_str().unwrap_or("lfn");
        let name = schema.split('/').next().unwrap_or_default().replace('.', " ");
        let has_failed = name == "lfn error" || !value["error"].is_null();
        HtmlPage {
            title: if has_failed { "Failed".to_owned() } else { name },
            summary: page_text::take(),
            album,
            json: serde_json::to_string_pretty(document).unwrap_or_default(),
            ..HtmlPage::default()
        }
    }

    /// Returns the page as HTML.
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        if !self.summary.is_empty() {
            html += &format!("<pre>{}</pre>\n", escaped(self.summary.trim_end()));
        }
        self.tables.iter().for_each(|table| table.add_to(&mut html));
        for (_, picture) in self.album.pictures() {
            html += &format!("<figure>\n{}\n</figure>\n", picture.draw(PICTURE_SIZE).svg());
        }
        // A page with nothing else shows the document at once.
        let is_bare = self.summary.is_empty() && self.tables.is_empty() && self.album.charts.is_empty();
        let open = if is_bare { " open" } else { "" };
        html += &format!(
            "<details{open}>\n<summary>JSON document</summary>\n<pre>{}</pre>\n</details>\n</body>\n</html>\n",
            escaped(&self.json)
        );
        html
    }
}

impl HtmlTable {
    fn add_to(&self, html: &mut String) {
        let has_text = |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(|text| !text.is_empty()));
        let shown: Vec<bool> = (0..self.head.len()).map(has_text).collect();
        let line = |tag: &str, cells: &mut dyn Iterator<Item = &str>| -> String {
            let shown = cells.zip(&shown).filter(|(_, is_shown)| **is_shown);
            let cells: String = shown.map(|(text, _)| format!("<{tag}>{}</{tag}>", escaped(text))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        *html += &format!("<h2>{}</h2>\n<table>\n", escaped(&self.name));
        *html += &line("th", &mut self.head.iter().copied());
        for row in &self.rows {
            *html += &line("td", &mut row.iter().map(String::as_str));
        }
        *html += "</table>\n";
    }
}

/// Returns the text with the characters that HTML reserves replaced. Control characters other than the end of a line become
/// replacement characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(character),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_stay_texts() {
        let hostile = "</pre><script>alert('x')</script>\u{1b}[2J".to_owned();
        let page = HtmlPage {
            title: hostile.clone(),
            summary: hostile.clone(),
            tables: vec![HtmlTable {
                name: hostile.clone(),
                head: vec!["a", "b"],
                rows: vec![vec![hostile.clone(), String::new()]],
            }],
            album: Album::default(),
            json: hostile,
        };
        let html = page.html();
        assert!(!html.contains("<script") && !html.contains('\u{1b}'), "{html}");
        assert_eq!(html.matches("&lt;script&gt;").count(), 6, "{html}");
        assert!(html.contains("<tr><th>a</th></tr>"), "a column without texts is not shown");
    }
}
