//! Printers, one for each output format.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, StdoutLock, Write};

pub mod copy;
pub mod couple;
pub mod doctor;
pub mod emulate;
pub mod findings;
pub mod html;
pub mod label_columns;
pub mod mesh;
pub mod output;
pub mod page_text;
pub mod pictures;
pub mod plan;
pub mod progress;
pub mod report_file;
pub mod sanitize;
pub mod settings;
pub mod show;
pub mod stamp;
pub mod sweep;
pub mod table;
pub mod terminal;
pub mod test;
pub mod trace;

pub use lfn_base::units::{counted, grouped};

use self::page_text::RecordedStdout;
use self::sanitize::SafeWriter;
use self::settings::{has_colours, is_quiet};

/// Returns standard output for text.
pub fn out() -> SafeWriter<RecordedStdout> {
    SafeWriter::text(RecordedStdout(stdout()))
}

/// Returns standard output for CSV.
pub fn csv() -> SafeWriter<StdoutLock<'static>> {
    SafeWriter::csv(stdout())
}

/// Returns standard output for JSON.
pub fn json() -> SafeWriter<StdoutLock<'static>> {
    SafeWriter::json(stdout())
}

/// Returns standard output for a generated script or page, whose text comes only from lfn.
pub fn raw_text() -> StdoutLock<'static> {
    stdout()
}

#[expect(clippy::disallowed_methods, reason = "the one place that hands it out")]
fn stdout() -> StdoutLock<'static> {
    io::stdout().lock()
}

/// Prints a message on stderr, unless `--quiet` is set. A closed stderr does not change the exit code.
pub fn message(text: impl Display) {
    if !is_quiet() && !page_text::is_muted() {
        write_text(text, Label::Notice);
    }
}

/// Prints an error on stderr, with `--quiet` too.
pub fn error(text: impl Display) {
    write_text(text, Label::Error);
}

/// Meaning of a text on stderr, which decides the colour of its label.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Error,
    Notice,
}

const RED: &str = "\x1b[1;31m";
const BOLD: &str = "\x1b[1m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";
const NO_COLOUR: &str = "\x1b[0m";

/// Writes the text to stderr. On a terminal the label before each text is coloured.
fn write_text(text: impl Display, label: Label) {
    let mut plain = Vec::new();
    let text = text.to_string();
    let _ = write!(SafeWriter::text(&mut plain), "{}", for_locale(&without_error_numbers(&text)));
    if has_colours(terminal::stderr_is_terminal()) {
        let labels = [("hint:", CYAN), ("lfn:", RED)];
        let known = if label == Label::Error { &labels[..] } else { &labels[..1] };
        plain = with_coloured_labels(&String::from_utf8_lossy(&plain), known).into_bytes();
    }
    write_stderr(&plain);
}

/// Replaces the characters of figures and hints that a locale without UTF-8 cannot show, also within names.
fn for_locale(text: &str) -> Cow<'_, str> {
    if terminal::use_unicode() { text.into() } else { ascii(text).into() }
}

/// Returns figures and hints in ASCII.
fn ascii(text: &str) -> String {
    let replacements = [("µ", "u"), ("±", "+-"), ("…", "..."), ("×", "x"), ("°", " deg"), ("─", "-"), ("−", "-")];
    replacements.iter().fold(text.to_owned(), |text, (one, ascii)| text.replace(one, ascii))
}

/// Prints a result for a person on standard output. On a terminal, the labels of the limit and the remedy are coloured.
pub fn result(text: &str) -> io::Result<()> {
    const LABELS: [(&str, &str); 6] = [
        ("goodput", BOLD),
        ("now", BOLD),
        ("too small on this host", BOLD),
        ("settings of", BOLD),
        ("also:", YELLOW),
        ("hint:", CYAN),
    ];
    let text = &for_locale(text);
    if page_text::is_muted() || !has_colours(terminal::stdout_is_terminal()) {
        return out().write_all(text.as_bytes());
    }
    let mut plain = Vec::new();
    SafeWriter::text(&mut plain).write_all(text.as_bytes())?;
    page_text::record(&plain);
    stdout().write_all(with_coloured_labels(&String::from_utf8_lossy(&plain), &LABELS).as_bytes())
}

/// Removes the error numbers that Rust appends to the texts of the operating system: `(os error 13)`.
pub fn without_error_numbers(text: &str) -> Cow<'_, str> {
    const BEGINS: &str = " (os error ";
    if !text.contains(BEGINS) {
        return text.into();
    }
    let mut parts = text.split(BEGINS);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')').filter(|(number, _)| number.chars().all(|c| c.is_ascii_digit())) {
            Some((_, rest)) => kept.push_str(rest),
            None => kept.extend([BEGINS, part]),
        }
    }
    kept.into()
}

/// Colours the labels at the start of each line, but not those of a column, which more than one space follows. The text
/// has no escape sequences of its own.
fn with_coloured_labels(text: &str, labels: &[(&str, &str)]) -> String {
    let is_label = |line: &str, name| line.strip_prefix(name).is_some_and(|rest| !rest.starts_with("  "));
    let colour = |line: &str| match labels.iter().find(|(name, _)| is_label(line, name)) {
        Some((name, colour)) => format!("{colour}{name}{NO_COLOUR}{}", &line[name.len()..]),
        None => line.to_owned(),
    };
    text.split_inclusive('\n').map(colour).collect()
}

/// Prints a message in JSON on stderr, with `--quiet` too.
pub fn message_json(text: impl Display) {
    let mut plain = Vec::new();
    let _ = write!(SafeWriter::json(&mut plain), "{text}");
    write_stderr(&plain);
}

/// Draws on stderr if it is a terminal: the escape sequences and figures of lfn, without text from peers or files.
pub fn draw_stderr(text: impl Display) {
    write_stderr(text.to_string().as_bytes());
}

/// Draws on standard output if it is a terminal, like [`draw_stderr`].
pub fn draw_stdout(text: impl Display) {
    let _ = write!(stdout(), "{text}").and_then(|()| stdout().flush());
}

/// Writes the text at once, so that it keeps its order with other output.
#[expect(clippy::disallowed_methods, reason = "the one place that writes there")]
fn write_stderr(text: &[u8]) {
    let _ = io::stderr().lock().write_all(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_at_line_starts_are_coloured() {
        let labels = [("lfn:", RED), ("hint:", CYAN)];
        let coloured = with_coloured_labels("lfn: no lfn: here\nhint: run it\n", &labels);
        assert_eq!(coloured, format!("{RED}lfn:{NO_COLOUR} no lfn: here\n{CYAN}hint:{NO_COLOUR} run it\n"));
        assert_eq!(with_coloured_labels("lfn: a notice\n", &labels[1..]), "lfn: a notice\n");
        assert_eq!(with_coloured_labels("hint:   in a column\n", &labels), "hint:   in a column\n");
    }

    #[test]
    fn figures_have_an_ascii_form() {
        assert_eq!(ascii("±20 / 50 µs, 2 × 3, lfn://…, 5°"), "+-20 / 50 us, 2 x 3, lfn://..., 5 deg");
    }

    #[test]
    fn error_numbers_are_removed() {
        for (text, expected) in [
            ("a: Permission denied (os error 13)", "a: Permission denied"),
            ("x (os error 2) (here), y (os error 5)", "x (here), y"),
            ("no (os error x) and (os error 1", "no (os error x) and (os error 1"),
        ] {
            assert_eq!(without_error_numbers(text), expected);
        }
    }
}
