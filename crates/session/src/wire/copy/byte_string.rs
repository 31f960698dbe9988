//! Byte strings that are usually text: names, link targets, file attributes.
//!
//! Kernel names are bytes, while JSON holds characters. A byte string is a JSON string if it is UTF-8 without control
//! characters, and `{"base64": "…"}` otherwise. The JSON is then at most about twice the bytes; a JSON string of
//! control characters would be six times as long. The reader accepts both forms for any bytes.

use std::fmt;

use data_encoding::BASE64;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};

/// A byte string that is usually text.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteString(pub Vec<u8>);

impl ByteString {
    /// Returns the bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns an upper bound of the JSON bytes, including quotes and braces.
    pub fn max_json_bytes(&self) -> usize {
        2 * self.0.len() + 16
    }

    fn as_plain_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok().filter(|text| !text.bytes().any(|b| b < b' '))
    }
}

impl From<&[u8]> for ByteString {
    fn from(bytes: &[u8]) -> Self {
        ByteString(bytes.to_vec())
    }
}

impl From<&str> for ByteString {
    fn from(text: &str) -> Self {
        ByteString(text.into())
    }
}

/// For readers: control characters and backslashes are escaped, and bytes that are not UTF-8 are `\x` and two digits.
impl fmt::Display for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    c if c.is_control() => write!(f, "{}", c.escape_default())?,
                    c => write!(f, "{c}")?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for ByteString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = self.as_plain_text() {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("base64", &BASE64.encode(&self.0))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for ByteString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteStringVisitor)
    }
}

/// Reads both JSON forms.
struct ByteStringVisitor;

impl<'de> Visitor<'de> for ByteStringVisitor {
    type Value = ByteString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or {\"base64\": …}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ByteString, E> {
        Ok(ByteString(text.into()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<ByteString, E> {
        Ok(ByteString(text.into_bytes()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ByteString, A::Error> {
        let Some((key, value)) = map.next_entry::<String, String>()? else {
            return Err(A::Error::missing_field("base64"));
        };
        if key != "base64" || map.next_key::<String>()?.is_some() {
            return Err(A::Error::custom("a byte string needs the key 'base64' and no other"));
        }
        BASE64
            .decode(value.as_bytes())
            .map(ByteString)
            .map_err(|error| A::Error::custom(format_args!("base64: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_round_trip_within_size_bound(bytes: Vec<u8>, text in "\\PC{0,20}[\n\"\\\\]{0,9}") {
            for raw in [ByteString(bytes), ByteString(text.into_bytes())] {
                let json = serde_json::to_string(&raw).unwrap();
                prop_assert!(json.len() <= raw.max_json_bytes(), "{} of {}", json.len(), raw.max_json_bytes());
                prop_assert_eq!(serde_json::from_str::<ByteString>(&json).unwrap(), raw);
            }
        }
    }

    #[test]
    fn text_stays_text_and_bytes_become_base64() {
        let json = |bytes: &[u8]| serde_json::to_string(&ByteString::from(bytes)).unwrap();
        assert_eq!(json("é/\"".as_bytes()), r#""é/\"""#);
        assert_eq!(json(b"a\xff"), r#"{"base64":"Yf8="}"#);
        assert_eq!(json(b"\x01"), r#"{"base64":"AQ=="}"#);
        assert_eq!(serde_json::from_str::<ByteString>(r#""a\nb""#).unwrap(), ByteString::from("a\nb"));
        for bad in ["1", "null", "{}", r#"{"base64":"Y"}"#, r#"{"hex":"61"}"#, r#"{"base64":"","a":"b"}"#] {
            assert!(serde_json::from_str::<ByteString>(bad).is_err(), "{bad}");
        }
        assert_eq!(ByteString(b"a\n\xff".iter().chain("é\\".as_bytes()).copied().collect()).to_string(), r"a\n\xffé\\");
    }
}
