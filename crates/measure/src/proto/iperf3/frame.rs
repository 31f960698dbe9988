//! JSON on the control connection: four bytes of length, most significant first, then that many bytes of JSON.

use serde_json::Value;

/// Maximum length of parameters that a server reads, as in stock servers since 3.18.
pub const MAX_PARAMETERS: usize = 8 * 1024;

/// Maximum length of results that a server reads: 256 streams take about 50 KiB.
pub const MAX_RESULTS: usize = 256 * 1024;

/// Maximum length of results that a client reads. They may contain the server's own output, with a line or an object
/// for each stream and interval.
pub const MAX_SERVER_OUTPUT: usize = 16 * 1024 * 1024;

/// Bytes before the JSON.
pub const HEADER: usize = 4;

/// Error: bytes that are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Iperf3FrameError {
    /// The announced length is zero or above the limit.
    #[error("JSON of {length} bytes is not allowed here: the length must be from 1 to {limit}")]
    Length { length: usize, limit: usize },
    /// The content is not a JSON object.
    #[error("not a valid JSON object: {0}")]
    Json(String),
}

/// Returns the length in a header, if it is within `limit`.
pub fn length(header: [u8; HEADER], limit: usize) -> Result<usize, Iperf3FrameError> {
    let length = u32::from_be_bytes(header) as usize;
    if length == 0 || length > limit {
        return Err(Iperf3FrameError::Length { length, limit });
    }
    Ok(length)
}

/// Decodes the object after a header. Some versions also count the zero at the end of a C string.
pub fn decode(bytes: &[u8]) -> Result<Value, Iperf3FrameError> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    match serde_json::from_slice(bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Iperf3FrameError::Json("the value is not an object".into())),
        Err(error) => Err(Iperf3FrameError::Json(error.to_string())),
    }
}

/// Encodes an object as a frame.
pub fn encode(value: &Value, limit: usize) -> Result<Vec<u8>, Iperf3FrameError> {
    let json = value.to_string();
    if json.len() > limit {
        return Err(Iperf3FrameError::Length { length: json.len(), limit });
    }
    let mut bytes = Vec::with_capacity(HEADER + json.len());
    // The length is at most the limit, which is far below 4 GiB.
    bytes.extend_from_slice(&(json.len() as u32).to_be_bytes());
    bytes.extend_from_slice(json.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frame_with_a_false_length_is_rejected() {
        let value = json!({"tcp": true, "time": 10});
        let bytes = encode(&value, MAX_PARAMETERS).unwrap();
        let (header, rest) = bytes.split_first_chunk::<HEADER>().unwrap();
        assert_eq!(length(*header, MAX_PARAMETERS), Ok(rest.len()));
        assert_eq!(decode(rest).unwrap(), value);
        assert_eq!(decode(&[rest, b"\0"].concat()).unwrap(), value);
        for announced in [0u32, 8193, u32::MAX] {
            assert!(length(announced.to_be_bytes(), MAX_PARAMETERS).is_err(), "{announced}");
        }
        assert!(encode(&json!({"title": "x".repeat(9000)}), MAX_PARAMETERS).is_err());
    }

    #[test]
    fn non_objects_are_rejected() {
        for text in ["", "[]", "7", "{", "{\"a\":}", "\u{0}", "{}{}"] {
            assert!(matches!(decode(text.as_bytes()), Err(Iperf3FrameError::Json(_))), "{text:?}");
        }
        // serde_json stops at 128 levels, so this needs no stack.
        assert!(decode("[".repeat(100_000).as_bytes()).is_err());
    }
}
