//! Bytes that are nearly always text: names, link targets, attributes of files.
//!
//! A kernel's names are bytes, not characters; JSON holds characters only. So they are a JSON string where they are
//! UTF-8 without control characters, and `{"base64": "…"}` otherwise; that also keeps the JSON within twice the bytes,
//! which a string of control characters (six for one) would not. A reader takes either form for any bytes.

use std::fmt;

use data_encoding::BASE64;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};

/// Bytes that are nearly always text.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Raw(pub Vec<u8>);

impl Raw {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// At least as many bytes as its JSON takes, quotes and braces included.
    pub fn json_bound(&self) -> usize {
        2 * self.0.len() + 16
    }

    fn plain(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok().filter(|text| !text.bytes().any(|b| b < b' '))
    }
}

impl From<&[u8]> for Raw {
    fn from(bytes: &[u8]) -> Self {
        Raw(bytes.to_vec())
    }
}

impl From<&str> for Raw {
    fn from(text: &str) -> Self {
        Raw(text.into())
    }
}

/// For people: what is no text as `\x` and two digits, control characters and backslashes escaped.
impl fmt::Display for Raw {
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

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = self.plain() {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("base64", &BASE64.encode(&self.0))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

/// Either form.
struct Form;

impl<'de> Visitor<'de> for Form {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or {\"base64\": …}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw(text.into()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Raw, E> {
        Ok(Raw(text.into_bytes()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let Some((key, value)) = map.next_entry::<String, String>()? else {
            return Err(A::Error::missing_field("base64"));
        };
        if key != "base64" || map.next_key::<String>()?.is_some() {
            return Err(A::Error::custom("bytes want 'base64' and nothing else"));
        }
        BASE64.decode(value.as_bytes()).map(Raw).map_err(|error| A::Error::custom(format_args!("base64: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_survive_within_the_bound(bytes: Vec<u8>, text in "\\PC{0,20}[\n\"\\\\]{0,9}") {
            for raw in [Raw(bytes), Raw(text.into_bytes())] {
                let json = serde_json::to_string(&raw).unwrap();
                prop_assert!(json.len() <= raw.json_bound(), "{} of {}", json.len(), raw.json_bound());
                prop_assert_eq!(serde_json::from_str::<Raw>(&json).unwrap(), raw);
            }
        }
    }

    #[test]
    fn text_stays_readable_and_bytes_stay_bytes() {
        let json = |bytes: &[u8]| serde_json::to_string(&Raw::from(bytes)).unwrap();
        assert_eq!(json("é/\"".as_bytes()), r#""é/\"""#);
        assert_eq!(json(b"a\xff"), r#"{"base64":"Yf8="}"#);
        assert_eq!(json(b"\x01"), r#"{"base64":"AQ=="}"#);
        assert_eq!(serde_json::from_str::<Raw>(r#""a\nb""#).unwrap(), Raw::from("a\nb"));
        for bad in ["1", "null", "{}", r#"{"base64":"Y"}"#, r#"{"hex":"61"}"#, r#"{"base64":"","a":"b"}"#] {
            assert!(serde_json::from_str::<Raw>(bad).is_err(), "{bad}");
        }
        assert_eq!(Raw(b"a\n\xff".iter().chain("é\\".as_bytes()).copied().collect()).to_string(), r"a\n\xffé\\");
    }
}
