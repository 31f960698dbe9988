//! What is known of the terminal results are printed to.

#![expect(clippy::disallowed_methods, reason = "looks at them, and writes nothing")]

use std::env;
use std::io::{self, IsTerminal};

/// Columns of a terminal nobody has widened, and of a file.
const WIDTH: usize = 80;
/// Rows of such a terminal.
const HEIGHT: usize = 24;
/// Narrower than this nothing can be read.
const NARROWEST: usize = 20;
/// Longer lines are hard to follow.
const WIDEST: usize = 100;

/// How wide lines of text may be: as the terminal is, within reason; where it is none, as COLUMNS asks, or 80, so that a
/// file does not depend on where it was made.
pub fn columns() -> usize {
    breaks_at().unwrap_or(WIDTH)
}

/// The same for lines that are left whole where nobody said how wide they may be.
pub fn breaks_at() -> Option<usize> {
    if io::stdout().is_terminal() { Some(within_reason(size().0)) } else { asked_for() }
}

/// The same for lines that are said on stderr.
pub fn talk_breaks_at() -> usize {
    let told = if talks_to_one() { talk_columns().map(within_reason) } else { asked_for() };
    told.unwrap_or(WIDTH)
}

/// What COLUMNS says (POSIX XBD 8.3), for whoever reads elsewhere than at a terminal of ours.
fn asked_for() -> Option<usize> {
    env::var("COLUMNS").ok()?.trim().parse().ok().filter(|&columns| columns > 0).map(within_reason)
}

fn within_reason(columns: usize) -> usize {
    columns.clamp(NARROWEST, WIDEST)
}

/// Columns and rows of the terminal.
pub fn size() -> (usize, usize) {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let told = size.map_or((0, 0), |size| (usize::from(size.ws_col), usize::from(size.ws_row)));
    (if told.0 == 0 { WIDTH } else { told.0 }, if told.1 == 0 { HEIGHT } else { told.1 })
}

/// Whether lines can be drawn over: it is a terminal, and one that can move its cursor.
pub fn can_redraw() -> bool {
    io::stdout().is_terminal() && env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb")
}

/// Whether what is said on stderr is read at a terminal.
pub fn talks_to_one() -> bool {
    io::stderr().is_terminal()
}

/// Its columns, if it tells.
pub fn talk_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|&columns| columns > 0)
}

/// Whether colours are wanted (no-color.org).
pub fn colours() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether the terminal shows more than ASCII: what POSIX asks of the locale, in its order.
pub fn unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| env::var(name).ok());
    let first = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default().to_ascii_lowercase();
    first.contains("utf-8") || first.contains("utf8")
}
