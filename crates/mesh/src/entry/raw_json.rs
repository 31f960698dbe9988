//! JSON that is kept as text. A tree of values takes up to a hundred times the memory of its text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// One JSON value as text, without white space between its parts, so that the text has one line.
#[derive(Debug, Clone)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// Returns the value as JSON; `None` if the value has no form in JSON.
    pub fn of(value: &impl Serialize) -> Option<Self> {
        to_raw_value(value).ok().map(RawJson)
    }

    /// Reads JSON; `None` if the text is not one JSON value.
    pub fn parse(text: String) -> Option<Self> {
        RawValue::from_string(text).ok().map(RawJson::compact)
    }

    /// Returns the JSON in one line.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Returns how deep lists and objects are nested; 0 for a number, a text or a constant.
    pub fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0_usize, 0);
        each_byte(self.text(), |byte, is_in_text| match byte {
            b'[' | b'{' if !is_in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !is_in_text => depth = depth.saturating_sub(1),
            _ => {}
        });
        deepest
    }

    /// Removes the white space between the parts of the value.
    fn compact(raw: Box<RawValue>) -> Self {
        let is_space = |byte: u8, is_in_text: bool| byte.is_ascii_whitespace() && !is_in_text;
        let mut spaces = 0;
        each_byte(raw.get(), |byte, is_in_text| spaces += usize::from(is_space(byte, is_in_text)));
        if spaces == 0 {
            return RawJson(raw);
        }
        let mut bytes = Vec::with_capacity(raw.get().len() - spaces);
        each_byte(raw.get(), |byte, is_in_text| {
            if !is_space(byte, is_in_text) {
                bytes.push(byte);
            }
        });
        let compact = String::from_utf8(bytes).ok().and_then(|text| RawValue::from_string(text).ok());
        RawJson(compact.unwrap_or(raw))
    }
}

/// Calls `visit` with each byte of valid JSON, and whether the byte is inside of a text.
fn each_byte(json: &str, mut visit: impl FnMut(u8, bool)) {
    let (mut is_in_text, mut is_escaped) = (false, false);
    for byte in json.bytes() {
        visit(byte, is_in_text);
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_in_text,
            b'"' => is_in_text = !is_in_text,
            _ => {}
        }
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(RawJson::compact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_outside_of_texts_is_removed() {
        let json = RawJson::parse("{ \"a b\" :\n[1,\t\" \\\" [\"] }".into()).unwrap();
        assert_eq!(json.text(), "{\"a b\":[1,\" \\\" [\"]}");
        assert_eq!((json.depth(), RawJson::of(&7).unwrap().depth()), (2, 0));
        assert_eq!(RawJson::parse("{".into()), None);
        let read: RawJson = serde_json::from_str("[1, 2]").unwrap();
        assert_eq!(Some(read), RawJson::of(&[1, 2]));
    }
}
