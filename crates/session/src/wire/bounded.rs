//! Shortens long texts from a peer.

use serde::{Deserialize, Deserializer};

/// Maximum characters of a text from a peer.
const MAX_CHARS: usize = 4096;

/// Deserializes a text, and truncates it to [`MAX_CHARS`] characters.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let end = text.char_indices().nth(MAX_CHARS).map(|(end, _)| end);
    Ok(match end {
        Some(end) => text[..end].to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_truncated_between_characters() {
        let read = |text: &str| super::text(serde_json::Value::from(text)).unwrap();
        for short in ["", "w", &"ü".repeat(MAX_CHARS)] {
            assert_eq!(read(short), short);
        }
        assert_eq!(read(&"ü".repeat(MAX_CHARS + 1)), "ü".repeat(MAX_CHARS));
    }
}
