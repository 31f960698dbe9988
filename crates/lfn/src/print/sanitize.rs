//! Output without control characters, except for the line ends of lfn itself.
//!
//! Names and messages come from peers, files and arguments. They may hold escape sequences, or characters that change
//! the direction of the text. All output of the command passes through [`SafeWriter`] (`clippy.toml` forbids the bare
//! streams), so names need no check where they are read. A stored result keeps the original text. This module does not
//! shorten text or break lines.

use std::borrow::Cow;
use std::io::{self, Write};

/// Character that replaces an unsafe one.
const REPLACEMENT: char = '?';

/// Writer that replaces unsafe characters.
pub struct SafeWriter<W> {
    to: W,
    form: TextFormat,
}

/// Format of the written text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextFormat {
    Text,
    /// CSV has lines that end with CR LF (RFC 4180 section 2).
    Csv,
    /// JSON has characters outside ASCII only in its strings.
    Json,
}

impl<W: Write> SafeWriter<W> {
    /// Creates a writer for text: an unsafe character becomes a question mark.
    pub fn text(to: W) -> Self {
        SafeWriter { to, form: TextFormat::Text }
    }

    /// Creates a writer for CSV: an unsafe character becomes a question mark.
    pub fn csv(to: W) -> Self {
        SafeWriter { to, form: TextFormat::Csv }
    }

    /// Creates a writer for JSON: an unsafe character becomes `\u` and its code (RFC 8259 section 7).
    pub fn json(to: W) -> Self {
        SafeWriter { to, form: TextFormat::Json }
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        let mut parts = text.split_inclusive(is_unsafe).peekable();
        while let Some(part) = parts.next() {
            let last = part.chars().next_back().filter(|&c| is_unsafe(c));
            let before = &part[..part.len() - last.map_or(0, char::len_utf8)];
            self.to.write_all(before.as_bytes())?;
            match last {
                Some('\r')
                    if self.form == TextFormat::Csv && parts.peek().is_some_and(|next| next.starts_with('\n')) =>
                {
                    self.to.write_all(b"\r")?;
                }
                Some(c) if self.form == TextFormat::Json => {
                    c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(self.to, "\\u{unit:04x}"))?;
                }
                Some(_) => write!(self.to, "{REPLACEMENT}")?,
                None => {}
            }
        }
        Ok(())
    }
}

impl<W: Write> Write for SafeWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for chunk in bytes.utf8_chunks() {
            self.put(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                write!(self.to, "{REPLACEMENT}")?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Returns the text in one line, without unsafe characters and line ends.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let ends = |c: char| c == '\n' || is_unsafe(c);
    if !text.contains(ends) {
        return text.into();
    }
    text.chars()
        .map(|c| {
            if c.is_whitespace() {
                ' '
            } else if ends(c) {
                REPLACEMENT
            } else {
                c
            }
        })
        .collect()
}

/// Returns true for a character that may have an effect on a terminal: a control character except for the line feed, or
/// a Unicode character that sets the text direction, ends a line or is invisible (categories Cc, Cf, Zl and Zp).
fn is_unsafe(c: char) -> bool {
    let format = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}'..='\u{e007f}');
    c != '\n' && (c.is_control() || format)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "\u{1b}]0;x\u{7}ä\u{9b}2J\r\u{202e}gnp\u{2066}\u{e0041}\t\u{7f}\n";

    fn printed(plain: impl Fn(&mut Vec<u8>)) -> String {
        let mut bytes = Vec::new();
        plain(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_has_no_unsafe_characters() {
        let text = printed(|to| write!(SafeWriter::text(to), "{EVIL}").unwrap());
        assert_eq!(text, "?]0;x?ä?2J??gnp????\n");
        assert_eq!(printed(|to| SafeWriter::csv(to).write_all(b"a\r\nb\rc\r\n").unwrap()), "a\r\nb?c\r\n");
        assert_eq!(printed(|to| SafeWriter::text(to).write_all(b"a\xffb\n").unwrap()), "a?b\n");
        assert_eq!(one_line(EVIL), "?]0;x?ä?2J ?gnp?? ? ");
    }

    #[test]
    fn json_keeps_the_original_text() {
        let text = printed(|to| serde_json::to_writer_pretty(SafeWriter::json(to), &[EVIL]).unwrap());
        assert!(!text.contains(is_unsafe), "{text:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [EVIL]);
    }
}
