//! Reads and writes manifests in the format of `b3sum` and `b3sum --check`: one line per file.
//!
//! A line is `HEX  NAME`. If the name contains a backslash or a newline, these are written as `\\` and `\n`, and the
//! line begins with a backslash (b3sum's `what_does_check_do.md`). b3sum before 1.5.5 rejects the escape `\r`, and
//! every version accepts a carriage return itself, except at the end of a line, where later versions remove it. So only
//! a carriage return at the end of a name is written as `\r`. The reader also accepts other `\r`, lines that end in
//! CRLF, and the format of `b3sum --tag`.
//!
//! b3sum cannot check names that are not UTF-8. It writes U+FFFD for bytes that it cannot encode, rejects every name
//! that contains U+FFFD, and rejects a complete manifest that is not UTF-8. To let `lfn verify` check a name of any
//! bytes, this module writes these bytes (and U+FFFD itself) as `\x` and two digits each, in a line that begins with a
//! backslash. b3sum reports that it does not understand the line, and checks the other lines.

use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::Digest;

/// Maximum bytes of a line without its end: the longest path with every byte escaped, and the digest.
pub const MAX_LINE: usize = 4 * MAX_PATH + 128;

/// Maximum length of a name: PATH_MAX.
pub const MAX_PATH: usize = 4096;

/// Character that b3sum writes for bytes that are not UTF-8.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Hex digits of a digest.
const HEX_DIGITS: usize = 64;

/// One file of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestLine {
    pub digest: Digest,
    /// The name in the manifest: absolute, or relative to the checked directory.
    pub name: ByteString,
}

/// A line of a manifest that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {error}")]
pub struct ManifestError {
    /// Line number, from 1.
    pub line: u64,
    pub error: LineError,
}

/// Reason why a line is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("empty")]
    Empty,
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    #[error("'{0}' is not 'DIGEST  NAME'")]
    Form(ByteString),
    /// Another hash method, a wrong length, or capital letters.
    #[error("'{0}' is no digest: expected 64 digits of 0-9 and a-f")]
    Digest(ByteString),
    /// An unknown escape in a line that begins with a backslash.
    #[error("'{0}' is no escape: expected one of \\\\, \\n, \\r and \\xHH")]
    Escape(ByteString),
    #[error("name '{0}': empty, with NUL, or longer than {MAX_PATH} bytes")]
    Name(ByteString),
    /// b3sum could not encode the name.
    #[error("name '{0}' contains U+FFFD, which replaces bytes that were lost")]
    ReplacementCharacter(ByteString),
}

impl ManifestLine {
    /// Returns the line with its newline.
    pub fn encode(&self) -> Vec<u8> {
        let name = self.name.as_bytes();
        let escaped = escape(name);
        let mut line = Vec::with_capacity(HEX_DIGITS + escaped.len() + 4);
        // An escape is longer than its character.
        if escaped.len() > name.len() {
            line.push(b'\\');
        }
        line.extend(self.digest.to_string().bytes());
        line.extend(b"  ");
        line.extend(escaped);
        line.push(b'\n');
        line
    }

    /// Parses a line, with or without its line end.
    pub fn decode(line: &[u8]) -> Result<Self, LineError> {
        let line = trim_line_end(line);
        if line.len() > MAX_LINE {
            return Err(LineError::TooLong);
        }
        let (escaped, body) = match line {
            [] => return Err(LineError::Empty),
            [b'\\', body @ ..] => (true, body),
            body => (false, body),
        };
        let (hex, name) = split_line(body).ok_or_else(|| LineError::Form(truncate(line)))?;
        let digest = std::str::from_utf8(hex).ok().and_then(|hex| hex.parse().ok());
        let digest = digest.ok_or_else(|| LineError::Digest(truncate(hex)))?;
        if std::str::from_utf8(name).is_ok_and(|name| name.contains(REPLACEMENT)) {
            return Err(LineError::ReplacementCharacter(truncate(name)));
        }
        let name = if escaped { unescape(name)? } else { name.to_vec() };
        if name.is_empty() || name.len() > MAX_PATH || name.contains(&0) {
            return Err(LineError::Name(truncate(&name)));
        }
        Ok(ManifestLine { digest, name: ByteString(name) })
    }
}

/// Parses a manifest line by line. A bad line is reported and does not stop the reader.
#[derive(Debug, Default)]
pub struct ManifestReader {
    number: u64,
}

impl ManifestReader {
    /// Parses the next line.
    pub fn next(&mut self, line: &[u8]) -> Result<ManifestLine, ManifestError> {
        self.number += 1;
        ManifestLine::decode(line).map_err(|error| ManifestError { line: self.number, error })
    }
}

fn escape(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    let (name, ends_in_return) = match name.strip_suffix(b"\r") {
        Some(name) => (name, true),
        None => (name, false),
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => escaped.extend(b"\\\\"),
                '\n' => escaped.extend(b"\\n"),
                REPLACEMENT => escape_bytes(&mut escaped, REPLACEMENT.encode_utf8(&mut [0; 3]).as_bytes()),
                c => escaped.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape_bytes(&mut escaped, chunk.invalid());
    }
    if ends_in_return {
        escaped.extend(b"\\r");
    }
    escaped
}

fn escape_bytes(line: &mut Vec<u8>, bytes: &[u8]) {
    bytes.iter().for_each(|byte| line.extend(format!("\\x{byte:02x}").bytes()));
}

/// Splits a line of either format into digest and name. Only the name may contain the separator, so the plain format is
/// split from the left and the tagged format from the right.
fn split_line(body: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(tagged) = body.strip_prefix(b"BLAKE3 (") {
        let middle = tagged.len().checked_sub(HEX_DIGITS)?;
        let (name, hex) = tagged.split_at(middle);
        return Some((hex, name.strip_suffix(b") = ")?));
    }
    let at = body.windows(2).position(|two| two == b"  ")?;
    Some((&body[..at], &body[at + 2..]))
}

fn unescape(name: &[u8]) -> Result<Vec<u8>, LineError> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [byte, behind @ ..] = rest {
        let (byte, length) = match (byte, behind) {
            (b'\\', [b'\\', ..]) => (b'\\', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'x', high, low, ..]) => match data_encoding::HEXLOWER.decode(&[*high, *low]).as_deref() {
                Ok([byte]) => (*byte, 4),
                _ => return Err(LineError::Escape(ByteString::from(&rest[..4]))),
            },
            (b'\\', _) => return Err(LineError::Escape(ByteString::from(&rest[..rest.len().min(2)]))),
            (byte, _) => (*byte, 1),
        };
        plain.push(byte);
        rest = &rest[length..];
    }
    Ok(plain)
}

/// Shortens a text for an error message.
fn truncate(bytes: &[u8]) -> ByteString {
    ByteString::from(&bytes[..bytes.len().min(80)])
}

/// Removes all newlines and carriage returns at the end, as b3sum does.
fn trim_line_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Digest of empty input.
    const NIL: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    fn line(name: &[u8]) -> ManifestLine {
        ManifestLine { digest: NIL.parse().unwrap(), name: name.into() }
    }

    fn fault(text: &str) -> String {
        ManifestLine::decode(text.replace("NIL", NIL).as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn lines_match_b3sum() {
        // Output of b3sum 1.2.0 for empty files with these names; for the carriage return at the end, of b3sum 1.8.
        let cases: [(&[u8], &str); 8] = [
            (b"a", "NIL  a\n"),
            (b"a b  c", "NIL  a b  c\n"),
            (b"x\nx", "\\NIL  x\\nx\n"),
            (b"x\\x", "\\NIL  x\\\\x\n"),
            (b"x\r", "\\NIL  x\\r\n"),
            (b"x\rx", "NIL  x\rx\n"),
            (b"x\r\nx", "\\NIL  x\r\\nx\n"),
            ("é\u{1b}".as_bytes(), "NIL  é\u{1b}\n"),
        ];
        for (name, text) in cases {
            let text = text.replace("NIL", NIL);
            assert_eq!(String::from_utf8(line(name).encode()).unwrap(), text);
            assert_eq!(ManifestLine::decode(text.as_bytes()), Ok(line(name)));
            assert_eq!(ManifestLine::decode(text.replace('\n', "\r\n").as_bytes()), Ok(line(name)));
        }
        // b3sum since 1.5.5.
        assert_eq!(ManifestLine::decode(format!("\\{NIL}  x\\rx\n").as_bytes()), Ok(line(b"x\rx")));
        assert_eq!(line(b"a\xff\\").encode(), format!("\\{NIL}  a\\xff\\\\\n").into_bytes());
        for tagged in [format!("BLAKE3 (a) = b  c) = {NIL}"), format!("\\BLAKE3 (a) = b  c) = {NIL}\r\n")] {
            assert_eq!(ManifestLine::decode(tagged.as_bytes()), Ok(line(b"a) = b  c")));
        }
        // A line that does not begin with a backslash has no escapes.
        assert_eq!(ManifestLine::decode(format!("{NIL}  a\\n").as_bytes()), Ok(line(b"a\\n")));
    }

    #[test]
    fn errors_name_the_cause() {
        assert_eq!(fault("\r\n"), "empty");
        assert_eq!(fault("NIL a"), format!("'{NIL} a' is not 'DIGEST  NAME'"));
        assert!(
            fault("d41d8cd98f00b204e9800998ecf8427e  a").contains("'d41d8cd98f00b204e9800998ecf8427e' is no digest")
        );
        assert!(fault(&format!("{}  a", NIL.to_uppercase())).contains("no digest"));
        assert!(fault("\\NIL  a\\t").contains("'\\\\t' is no escape"), "{}", fault("\\NIL  a\\t"));
        for bad in ["\\NIL  a\\", "\\NIL  \\x", "\\NIL  \\x1", "\\NIL  \\xgg", "\\NIL  \\xFF"] {
            assert!(fault(bad).contains("is no escape"), "{bad}");
        }
        assert!(fault("NIL  ").contains("name ''") && fault("NIL  a\0b").contains("NUL"));
        assert!(fault("\\NIL  a\\x00").contains("NUL"));
        assert!(fault("NIL  a\u{fffd}").contains("bytes that were lost"));
        assert!(fault(&format!("NIL  {}", "a".repeat(4097))).contains("longer than 4096 bytes"));
        assert!(fault(&"a".repeat(MAX_LINE + 1)).contains("longer than"));
        let mut lines = ManifestReader::default();
        assert!(lines.next(&line(b"a").encode()).is_ok());
        assert!(lines.next(b"x").unwrap_err().to_string().starts_with("line 2: 'x' is not"));
    }

    proptest! {
        #[test]
        fn names_of_any_bytes_round_trip(bytes in proptest::collection::vec(1u8.., 1..40), text in "[a\u{fffd}é\r\n\\\\]{0,9}") {
            let name = [&bytes, text.as_bytes()].concat();
            let text = line(&name).encode();
            prop_assert!(std::str::from_utf8(&text).is_ok() && text.len() <= MAX_LINE);
            prop_assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 1);
            prop_assert!(!text.ends_with(b"\r\n"));
            prop_assert_eq!(ManifestLine::decode(&text), Ok(line(&name)));
        }

        #[test]
        fn no_line_panics(bytes: Vec<u8>, escaped: bool) {
            let mut text = format!("{}{NIL}  ", if escaped { "\\" } else { "" }).into_bytes();
            let _ = ManifestLine::decode(&bytes);
            text.extend(bytes);
            if let Ok(line) = ManifestLine::decode(&text) {
                prop_assert_eq!(ManifestLine::decode(&line.encode()), Ok(line));
            }
        }
    }
}
