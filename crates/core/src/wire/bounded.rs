//! Words of a peer that are kept: no more of them than anybody reads, whatever fits in a message.

use serde::{Deserialize, Deserializer};

/// Most characters.
const MOST: usize = 4096;

/// Reads words, and drops what there is too much of them.
pub(crate) fn words<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let words = String::deserialize(from)?;
    let end = words.char_indices().nth(MOST).map(|(end, _)| end);
    Ok(match end {
        Some(end) => words[..end].to_owned(),
        None => words,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        let read = |words: &str| super::words(serde_json::Value::from(words)).unwrap();
        for short in ["", "w", &"ü".repeat(MOST)] {
            assert_eq!(read(short), short);
        }
        assert_eq!(read(&"ü".repeat(MOST + 1)), "ü".repeat(MOST));
    }
}
