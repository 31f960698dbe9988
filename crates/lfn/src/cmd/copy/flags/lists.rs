//! Files with names or patterns, one per line or separated by NUL, in rsync's format.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use lfn_session::wire::copy::entry::Name;

use crate::exit::{Failure, without_error_number};

/// Maximum size of a list, bytes. Its contents are kept and sorted in memory.
const MAX_LIST: u64 = 64 << 20;

/// Reads the file that a flag names; `-` is standard input.
pub fn read(flag: &str, file: &OsStr) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let mut take = |from: &mut dyn Read| from.take(MAX_LIST + 1).read_to_end(&mut content);
    let read = if file == "-" {
        take(&mut io::stdin())
    } else {
        File::open(Path::new(file)).and_then(|mut file| take(&mut file))
    };
    read.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "check the permissions of the file, or give the list on standard input: -"
            }
            _ => {
                "check the spelling: FILE is on this host and has one name or pattern per line; - reads standard input"
            }
        };
        Failure::usage(format!("--{flag} {}: {}", file.display(), without_error_number(&error.to_string()))).hint(hint)
    })?;
    if content.len() as u64 > MAX_LIST {
        let hint = "use --include and --exclude, or split the list";
        return Err(Failure::usage(format!("--{flag} {}: longer than 64 MiB", file.display())).hint(hint));
    }
    Ok(content)
}

/// Iterates over the lines, numbered from 1. Skips empty lines and, without `nul`, comments: lines that begin with `#`
/// or `;`.
pub fn lines(content: &[u8], nul: bool) -> impl Iterator<Item = (usize, &[u8])> {
    let end = if nul { b'\0' } else { b'\n' };
    let lines = content.split(move |byte| *byte == end).enumerate().map(|(number, line)| (number + 1, line));
    lines
        .map(move |(number, line)| match line {
            [line @ .., b'\r'] if !nul => (number, line),
            line => (number, line),
        })
        .filter(move |(_, line)| !line.is_empty() && (nul || !matches!(line[0], b'#' | b';')))
}

/// Reads a list of names below the source.
pub fn read_names(file: &OsStr, nul: bool) -> Result<Vec<Name>, Failure> {
    let content = read("files-from", file)?;
    let hint = "write names relative to SOURCE, without ..";
    let name = |(number, line): (usize, &[u8])| {
        Name::new(normalize(line)).map_err(|e| Failure::usage(format!("{}:{number}: {e}", file.display())).hint(hint))
    };
    lines(&content, nul).map(name).collect()
}

/// Removes slashes at both ends, empty components and `.` components.
fn normalize(line: &[u8]) -> Vec<u8> {
    let components: Vec<_> = line.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if components.is_empty() { b".".to_vec() } else { components.join(&b'/') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_in_rsync() {
        let all = |text: &'static str, nul| -> Vec<_> {
            lines(text.as_bytes(), nul).map(|(number, line)| (number, std::str::from_utf8(line).unwrap())).collect()
        };
        assert_eq!(all("a\n\n#b\n;c\r\nd e\r\n f", false), [(1, "a"), (5, "d e"), (6, " f")]);
        assert_eq!(all("a\0\0#b\0c\nd\0", true), [(1, "a"), (3, "#b"), (4, "c\nd")]);
    }

    #[test]
    fn names_are_normalized() {
        for (line, name) in [("/a//b/./c/", "a/b/c"), ("./a", "a"), (".", "."), ("/", "."), ("a/../b", "a/../b")] {
            assert_eq!(normalize(line.as_bytes()), name.as_bytes(), "{line}");
        }
        assert!(Name::new(normalize(b"a/../b")).is_err());
    }
}
