//! Quoting for a POSIX shell, so that a hint with the words of the user works when pasted.

use std::ffi::OsStr;

/// Returns the word as a shell reads it: unchanged if no character is special, else in single quotes.
pub fn quote(word: impl AsRef<OsStr>) -> String {
    let text = word.as_ref().to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+^".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns the words as one command line.
pub fn join<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_quoted() {
        let rows = [
            ("rate=50mbit", "rate=50mbit"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$HOME", "'$HOME'"),
            ("~", "'~'"),
            ("loss=1%", "loss=1%"),
        ];
        for (word, quoted) in rows {
            assert_eq!(quote(word), quoted);
        }
        assert_eq!(join(["sh", "-c", "ping far; ls"]), "sh -c 'ping far; ls'");
    }
}
