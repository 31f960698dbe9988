//! Properties of the terminal.

#![expect(clippy::disallowed_methods, reason = "looks at them, and writes nothing")]

use std::env;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

/// Columns of a terminal with an unknown width, and of a file.
const DEFAULT_WIDTH: usize = 80;
/// Rows of a terminal with an unknown height.
const DEFAULT_HEIGHT: usize = 24;
/// Minimum width of a line, in columns.
const MIN_WIDTH: usize = 20;
/// Maximum width of a line, in columns; longer lines are hard to read.
const MAX_WIDTH: usize = 100;

/// Returns the width of text lines in columns: the terminal's width within limits; without a terminal `COLUMNS`, or 80,
/// so that a file is the same on each machine.
pub fn columns() -> usize {
    wrap_columns().unwrap_or(DEFAULT_WIDTH)
}

/// Returns the width of lines that are not wrapped by default: the terminal's width or `COLUMNS`, else none.
pub fn wrap_columns() -> Option<usize> {
    if io::stdout().is_terminal() { Some(clamp_width(stdout_size().0)) } else { requested_columns() }
}

/// Returns the width of lines on stderr, in columns.
pub fn stderr_columns() -> usize {
    if stderr_is_terminal() { clamp_width(stderr_size().0) } else { requested_columns().unwrap_or(DEFAULT_WIDTH) }
}

/// Returns the value of `COLUMNS` (POSIX XBD 8.3), for output without a terminal.
fn requested_columns() -> Option<usize> {
    env::var("COLUMNS").ok()?.trim().parse().ok().filter(|&columns| columns > 0).map(clamp_width)
}

fn clamp_width(columns: usize) -> usize {
    columns.clamp(MIN_WIDTH, MAX_WIDTH)
}

/// Returns the columns and rows of the terminal of stdout.
pub fn stdout_size() -> (usize, usize) {
    size(io::stdout())
}

/// Returns the columns and rows of the terminal of stderr.
pub fn stderr_size() -> (usize, usize) {
    size(io::stderr())
}

fn size(terminal: impl AsFd) -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(terminal);
    let reported = size.map_or((0, 0), |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
    (
        if reported.0 == 0 { DEFAULT_WIDTH } else { reported.0 },
        if reported.1 == 0 { DEFAULT_HEIGHT } else { reported.1 },
    )
}

/// Returns true if lines can be drawn over: stdout is a terminal that can move its cursor.
pub fn can_redraw() -> bool {
    io::stdout().is_terminal() && can_move_cursor()
}

/// Returns true if lines on stderr can be drawn over.
pub fn can_redraw_stderr() -> bool {
    stderr_is_terminal() && can_move_cursor()
}

fn can_move_cursor() -> bool {
    env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb")
}

/// Reports whether standard output is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Returns true if stderr is a terminal.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Returns true if text on stdout has colours.
pub fn use_colours() -> bool {
    super::settings::has_colours(io::stdout().is_terminal())
}

/// Returns true if the locale has UTF-8 (POSIX order of the variables).
pub fn use_unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| env::var(name).ok());
    let first = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default().to_ascii_lowercase();
    first.contains("utf-8") || first.contains("utf8")
}
