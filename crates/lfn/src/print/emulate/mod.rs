//! Output of an emulation: before the run (profiles, dry run), during the run (live line, status) and after the run
//! (accuracy report).

pub mod accuracy;
pub mod dry_run;
pub mod live;
pub mod profiles;
pub mod status;

use super::terminal;

/// Returns the text for the locale: without UTF-8, in ASCII.
fn for_locale(text: String) -> String {
    if terminal::use_unicode() { text } else { ascii(&text) }
}

/// Replaces the only other character that figures have.
fn ascii(text: &str) -> String {
    text.replace('µ', "u")
}

#[cfg(test)]
mod tests {
    #[test]
    fn figures_have_an_ascii_form() {
        assert_eq!(super::ascii("20 / 50 µs"), "20 / 50 us");
    }
}
