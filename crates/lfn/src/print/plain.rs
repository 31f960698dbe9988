//! Output in which nothing moves the reader's terminal but line ends of our own.
//!
//! Names and messages come from peers, files and arguments, and any of them may hold escape sequences, or characters
//! that turn the direction of the text around. So whatever this command prints passes here (`clippy.toml` forbids the
//! bare streams), rather than each name being looked at where it is read: a stored result keeps what was said. Not
//! here: how a name is cut or broken into lines.

use std::borrow::Cow;
use std::io::{self, Write};

/// What stands in the place of a character that is not printed.
const INSTEAD: char = '?';

/// Passes text on, with another character for each that is not plain.
pub struct Plain<W> {
    to: W,
    form: Form,
}

/// What the text is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    /// Its lines end with CR LF (RFC 4180 section 2).
    Csv,
    /// Outside ASCII they can stand in its strings alone.
    Json,
}

impl<W: Write> Plain<W> {
    /// For text: what is not plain becomes a question mark.
    pub fn text(to: W) -> Self {
        Plain { to, form: Form::Text }
    }

    /// The same for CSV.
    pub fn csv(to: W) -> Self {
        Plain { to, form: Form::Csv }
    }

    /// For JSON: what is not plain becomes `\u` and its number (RFC 8259 section 7).
    pub fn json(to: W) -> Self {
        Plain { to, form: Form::Json }
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        let mut parts = text.split_inclusive(is_moving).peekable();
        while let Some(part) = parts.next() {
            let last = part.chars().next_back().filter(|&c| is_moving(c));
            let before = &part[..part.len() - last.map_or(0, char::len_utf8)];
            self.to.write_all(before.as_bytes())?;
            match last {
                Some('\r') if self.form == Form::Csv && parts.peek().is_some_and(|next| next.starts_with('\n')) => {
                    self.to.write_all(b"\r")?;
                }
                Some(c) if self.form == Form::Json => {
                    c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(self.to, "\\u{unit:04x}"))?;
                }
                Some(_) => write!(self.to, "{INSTEAD}")?,
                None => {}
            }
        }
        Ok(())
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for chunk in bytes.utf8_chunks() {
            self.put(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                write!(self.to, "{INSTEAD}")?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The same in one line: of a peer's message not even a line end is kept.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let ends = |c: char| c == '\n' || is_moving(c);
    if !text.contains(ends) {
        return text.into();
    }
    text.chars()
        .map(|c| {
            if c.is_whitespace() {
                ' '
            } else if ends(c) {
                INSTEAD
            } else {
                c
            }
        })
        .collect()
}

/// Whether a terminal may do something else with it than show it: a control character (but for a line end), or one of
/// Unicode that sets the direction of the text, ends a line or is not seen (its categories Cc, Cf, Zl and Zp).
fn is_moving(c: char) -> bool {
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
    fn nothing_that_moves_a_terminal_is_left_of_text() {
        let text = printed(|to| write!(Plain::text(to), "{EVIL}").unwrap());
        assert_eq!(text, "?]0;x?ä?2J??gnp????\n");
        assert_eq!(printed(|to| Plain::csv(to).write_all(b"a\r\nb\rc\r\n").unwrap()), "a\r\nb?c\r\n");
        assert_eq!(printed(|to| Plain::text(to).write_all(b"a\xffb\n").unwrap()), "a?b\n");
        assert_eq!(one_line(EVIL), "?]0;x?ä?2J ?gnp?? ? ");
    }

    #[test]
    fn json_keeps_what_was_said() {
        let text = printed(|to| serde_json::to_writer_pretty(Plain::json(to), &[EVIL]).unwrap());
        assert!(!text.contains(is_moving), "{text:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [EVIL]);
    }
}
