//! Digests and names as `b3sum` writes them and `b3sum --check` reads them: one line for each file.
//!
//! A line is `HEX  NAME`; where the name has a backslash, a newline or a carriage return, these are `\\`, `\n` and `\r`
//! and the line begins with a backslash (b3sum's `what_does_check_do.md`; b3sum before 1.5.5 knows no `\r`). Read are also
//! lines ending in CRLF and the form of `b3sum --tag`.
//!
//! b3sum can check no name that is not UTF-8: it writes U+FFFD for what it cannot, refuses every name that holds one,
//! and gives up a whole manifest that is not UTF-8. So that a name of any bytes can be checked by `lfn verify`, such
//! bytes (and U+FFFD itself) are written here as `\x` and two digits each, in a line with a backslash before it: b3sum
//! says that it does not understand that line, as it would have to in any case, and checks the others.

use super::digest::Digest;
use super::raw::Raw;

/// Longest line, without its end: the longest path with every byte escaped, and the rest.
pub const MAX_LINE: usize = 4 * MAX_PATH + 128;

/// Longest name: PATH_MAX.
pub const MAX_PATH: usize = 4096;

/// What b3sum writes for bytes that are not UTF-8.
const LOST: char = char::REPLACEMENT_CHARACTER;

/// Digits of a digest.
const HEX: usize = 64;

/// One file of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Of the file's bytes.
    pub digest: Digest,
    /// As the manifest names it: relative to where it is checked, or absolute.
    pub name: Raw,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct ManifestError {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// Why a line is none of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing on it.
    #[error("empty")]
    Empty,
    /// Longer than names are.
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    /// Neither form.
    #[error("'{0}' is not 'DIGEST  NAME'")]
    Form(Raw),
    /// Another hash, another length, or capitals.
    #[error("'{0}' is no digest: 64 digits of 0-9 and a-f expected")]
    Digest(Raw),
    /// A backslash and what follows it, in a line that begins with one.
    #[error("'{0}' is no escape: one of \\\\, \\n, \\r and \\xHH expected")]
    Escape(Raw),
    /// No file has such a name.
    #[error("name '{0}': empty, with NUL, or longer than {MAX_PATH} bytes")]
    Name(Raw),
    /// What b3sum wrote where it could not write the name.
    #[error("name '{0}' holds U+FFFD, which stands for bytes that were lost")]
    Lost(Raw),
}

impl Line {
    /// The line with its newline.
    pub fn encode(&self) -> Vec<u8> {
        let name = self.name.as_bytes();
        let escaped = escape(name);
        let mut line = Vec::with_capacity(HEX + escaped.len() + 4);
        // An escape is longer than what it stands for.
        if escaped.len() > name.len() {
            line.push(b'\\');
        }
        line.extend(self.digest.to_string().bytes());
        line.extend(b"  ");
        line.extend(escaped);
        line.push(b'\n');
        line
    }

    /// Reads a line, with or without its end.
    pub fn decode(line: &[u8]) -> Result<Self, Fault> {
        let line = without_end(line);
        if line.len() > MAX_LINE {
            return Err(Fault::TooLong);
        }
        let (escaped, body) = match line {
            [] => return Err(Fault::Empty),
            [b'\\', body @ ..] => (true, body),
            body => (false, body),
        };
        let (hex, name) = split(body).ok_or_else(|| Fault::Form(beginning(line)))?;
        let digest = std::str::from_utf8(hex).ok().and_then(|hex| hex.parse().ok());
        let digest = digest.ok_or_else(|| Fault::Digest(beginning(hex)))?;
        if std::str::from_utf8(name).is_ok_and(|name| name.contains(LOST)) {
            return Err(Fault::Lost(beginning(name)));
        }
        let name = if escaped { unescape(name)? } else { name.to_vec() };
        if name.is_empty() || name.len() > MAX_PATH || name.contains(&0) {
            return Err(Fault::Name(beginning(&name)));
        }
        Ok(Line { digest, name: Raw(name) })
    }
}

/// Reads a manifest line by line; a bad line is told and does not end it.
#[derive(Debug, Default)]
pub struct Lines {
    number: u64,
}

impl Lines {
    /// Reads the next line.
    pub fn next(&mut self, line: &[u8]) -> Result<Line, ManifestError> {
        self.number += 1;
        Line::decode(line).map_err(|fault| ManifestError { line: self.number, fault })
    }
}

fn escape(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => escaped.extend(b"\\\\"),
                '\n' => escaped.extend(b"\\n"),
                '\r' => escaped.extend(b"\\r"),
                LOST => escape_bytes(&mut escaped, LOST.encode_utf8(&mut [0; 3]).as_bytes()),
                c => escaped.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape_bytes(&mut escaped, chunk.invalid());
    }
    escaped
}

fn escape_bytes(line: &mut Vec<u8>, bytes: &[u8]) {
    bytes.iter().for_each(|byte| line.extend(format!("\\x{byte:02x}").bytes()));
}

/// Digest and name of either form. A name may hold what separates them, a digest does not: from the left in the plain
/// form, from the right in the tagged one.
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    if let Some(tagged) = body.strip_prefix(b"BLAKE3 (") {
        let middle = tagged.len().checked_sub(HEX)?;
        let (name, hex) = tagged.split_at(middle);
        return Some((hex, name.strip_suffix(b") = ")?));
    }
    let at = body.windows(2).position(|two| two == b"  ")?;
    Some((&body[..at], &body[at + 2..]))
}

fn unescape(name: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let [byte, behind @ ..] = rest {
        let (byte, length) = match (byte, behind) {
            (b'\\', [b'\\', ..]) => (b'\\', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [b'x', high, low, ..]) => match data_encoding::HEXLOWER.decode(&[*high, *low]).as_deref() {
                Ok([byte]) => (*byte, 4),
                _ => return Err(Fault::Escape(Raw::from(&rest[..4]))),
            },
            (b'\\', _) => return Err(Fault::Escape(Raw::from(&rest[..rest.len().min(2)]))),
            (byte, _) => (*byte, 1),
        };
        plain.push(byte);
        rest = &rest[length..];
    }
    Ok(plain)
}

/// Enough to know it again.
fn beginning(bytes: &[u8]) -> Raw {
    Raw::from(&bytes[..bytes.len().min(80)])
}

/// Without any newlines and carriage returns at its end, as b3sum has it.
fn without_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Of nothing.
    const NIL: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    fn line(name: &[u8]) -> Line {
        Line { digest: NIL.parse().unwrap(), name: name.into() }
    }

    fn fault(text: &str) -> String {
        Line::decode(text.replace("NIL", NIL).as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn lines_are_those_of_b3sum() {
        // What b3sum 1.2.0 and, for the carriage return, 1.8 print for empty files of these names.
        let cases: [(&[u8], &str); 6] = [
            (b"a", "NIL  a\n"),
            (b"a b  c", "NIL  a b  c\n"),
            (b"x\nx", "\\NIL  x\\nx\n"),
            (b"x\\x", "\\NIL  x\\\\x\n"),
            (b"x\r", "\\NIL  x\\r\n"),
            ("é\u{1b}".as_bytes(), "NIL  é\u{1b}\n"),
        ];
        for (name, text) in cases {
            let text = text.replace("NIL", NIL);
            assert_eq!(String::from_utf8(line(name).encode()).unwrap(), text);
            assert_eq!(Line::decode(text.as_bytes()), Ok(line(name)));
            assert_eq!(Line::decode(text.replace('\n', "\r\n").as_bytes()), Ok(line(name)));
        }
        assert_eq!(line(b"a\xff\\").encode(), format!("\\{NIL}  a\\xff\\\\\n").into_bytes());
        for tagged in [format!("BLAKE3 (a) = b  c) = {NIL}"), format!("\\BLAKE3 (a) = b  c) = {NIL}\r\n")] {
            assert_eq!(Line::decode(tagged.as_bytes()), Ok(line(b"a) = b  c")));
        }
        // Without one at its beginning a line has no escapes.
        assert_eq!(Line::decode(format!("{NIL}  a\\n").as_bytes()), Ok(line(b"a\\n")));
    }

    #[test]
    fn faults_are_named() {
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
        let mut lines = Lines::default();
        assert!(lines.next(&line(b"a").encode()).is_ok());
        assert!(lines.next(b"x").unwrap_err().to_string().starts_with("line 2: 'x' is not"));
    }

    proptest! {
        #[test]
        fn names_of_any_bytes_survive(bytes in proptest::collection::vec(1u8.., 1..40), text in "[a\u{fffd}é\r\n\\\\]{0,9}") {
            let name = [&bytes, text.as_bytes()].concat();
            let text = line(&name).encode();
            prop_assert!(std::str::from_utf8(&text).is_ok() && text.len() <= MAX_LINE);
            prop_assert_eq!(text.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count(), 1);
            prop_assert_eq!(Line::decode(&text), Ok(line(&name)));
        }

        #[test]
        fn no_line_makes_it_panic(bytes: Vec<u8>, escaped: bool) {
            let mut text = format!("{}{NIL}  ", if escaped { "\\" } else { "" }).into_bytes();
            let _ = Line::decode(&bytes);
            text.extend(bytes);
            if let Ok(line) = Line::decode(&text) {
                prop_assert_eq!(Line::decode(&line.encode()), Ok(line));
            }
        }
    }
}
