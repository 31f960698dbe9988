//! One printer per output format.

use std::fmt::Display;
use std::io::{self, StdoutLock, Write};

pub mod copy;
pub mod emulate;
pub mod page;
pub mod plain;
pub mod plan;
pub mod show;
pub mod stamp;
pub mod terminal;
pub mod test;

use self::plain::Plain;

/// Standard output, for text.
pub fn out() -> Plain<StdoutLock<'static>> {
    Plain::text(stdout())
}

/// Standard output, for CSV.
pub fn csv() -> Plain<StdoutLock<'static>> {
    Plain::csv(stdout())
}

/// Standard output, for JSON.
pub fn json() -> Plain<StdoutLock<'static>> {
    Plain::json(stdout())
}

#[expect(clippy::disallowed_methods, reason = "the one place that hands it out")]
fn stdout() -> StdoutLock<'static> {
    io::stdout().lock()
}

/// Says something to the user, on stderr. Whoever closed it does not want to hear: that changes no exit status.
pub fn talk(text: impl Display) {
    let mut plain = Vec::new();
    let _ = write!(Plain::text(&mut plain), "{text}");
    hand_over(&plain);
}

/// The same, of JSON.
pub fn talk_json(text: impl Display) {
    let mut plain = Vec::new();
    let _ = write!(Plain::json(&mut plain), "{text}");
    hand_over(&plain);
}

/// Draws on stderr, where it is a terminal: escape sequences of our own, and figures, but nobody else's text.
pub fn draw_over(text: impl Display) {
    hand_over(text.to_string().as_bytes());
}

/// At once, so that what others say stands before it or behind it.
#[expect(clippy::disallowed_methods, reason = "the one place that writes there")]
fn hand_over(text: &[u8]) {
    let _ = io::stderr().lock().write_all(text);
}
