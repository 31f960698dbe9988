//! JSON on the control connection: four bytes of length, most significant first, then that many bytes of JSON.

use serde_json::Value;

/// Longest parameters a server reads, as stock servers since 3.18 have it.
pub const PARAMETERS_LIMIT: usize = 8 * 1024;

/// Longest results a server reads: 256 streams take some 50 KiB.
pub const RESULTS_LIMIT: usize = 256 * 1024;

/// Longest results a client reads. The server's own output may be among them, a line or an object for each stream and
/// interval.
pub const OUTPUT_LIMIT: usize = 16 * 1024 * 1024;

/// Bytes before the JSON.
pub const HEADER: usize = 4;

/// Why bytes are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Nothing, or more than is allowed here, was announced.
    #[error("JSON of {length} bytes, from 1 to {limit} are possible here")]
    Length {
        /// What was announced.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// What came is no JSON object.
    #[error("not understood as JSON: {0}")]
    Json(String),
}

/// The length a header announces, if it is within `limit`.
pub fn length(header: [u8; HEADER], limit: usize) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(header) as usize;
    if length == 0 || length > limit {
        return Err(FrameError::Length { length, limit });
    }
    Ok(length)
}

/// The object in the bytes after a header. Some versions count the zero that ends a string in C.
pub fn decode(bytes: &[u8]) -> Result<Value, FrameError> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    match serde_json::from_slice(bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(FrameError::Json("a value that is no object".into())),
        Err(error) => Err(FrameError::Json(error.to_string())),
    }
}

/// A frame of this object.
pub fn encode(value: &Value, limit: usize) -> Result<Vec<u8>, FrameError> {
    let json = value.to_string();
    if json.len() > limit {
        return Err(FrameError::Length { length: json.len(), limit });
    }
    let mut bytes = Vec::with_capacity(HEADER + json.len());
    // At most the limit, which is far below 4 GiB.
    bytes.extend_from_slice(&(json.len() as u32).to_be_bytes());
    bytes.extend_from_slice(json.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_frame_comes_back_and_lies_about_its_length_do_not() {
        let value = json!({"tcp": true, "time": 10});
        let bytes = encode(&value, PARAMETERS_LIMIT).unwrap();
        let (header, rest) = bytes.split_first_chunk::<HEADER>().unwrap();
        assert_eq!(length(*header, PARAMETERS_LIMIT), Ok(rest.len()));
        assert_eq!(decode(rest).unwrap(), value);
        assert_eq!(decode(&[rest, b"\0"].concat()).unwrap(), value);
        for announced in [0u32, 8193, u32::MAX] {
            assert!(length(announced.to_be_bytes(), PARAMETERS_LIMIT).is_err(), "{announced}");
        }
        assert!(encode(&json!({"title": "x".repeat(9000)}), PARAMETERS_LIMIT).is_err());
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["", "[]", "7", "{", "{\"a\":}", "\u{0}", "{}{}"] {
            assert!(matches!(decode(text.as_bytes()), Err(FrameError::Json(_))), "{text:?}");
        }
        // serde_json stops at 128 levels, so this costs no stack.
        assert!(decode("[".repeat(100_000).as_bytes()).is_err());
    }
}
