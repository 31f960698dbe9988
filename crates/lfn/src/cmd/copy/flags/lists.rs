//! Files of names and of patterns: one a line, or between NULs, as rsync reads them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use lfn_core::transfer::entry::Name;

use crate::exit::Failure;

/// Longest file; what is in it is held and sorted in memory.
const LONGEST: u64 = 64 << 20;

/// What is in a file of names or patterns that a flag gave; `-` is standard input.
pub fn read(flag: &str, file: &OsStr) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let mut take = |from: &mut dyn Read| from.take(LONGEST + 1).read_to_end(&mut content);
    let read = match file == "-" {
        true => take(&mut io::stdin()),
        false => File::open(Path::new(file)).and_then(|mut file| take(&mut file)),
    };
    read.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => "see who may read it, or give the list on standard input: -",
            _ => "see how it is spelt: a file on this host, with one name or pattern a line; - is standard input",
        };
        Failure::usage(format!("--{flag} {}: {error}", file.display())).hint(hint)
    })?;
    if content.len() as u64 > LONGEST {
        let hint = "give the directory, with --include and --exclude, or several lists";
        return Err(Failure::usage(format!("--{flag} {}: longer than 64 MiB", file.display())).hint(hint));
    }
    Ok(content)
}

/// Its lines with their numbers from 1. Empty lines are left out, and without `nul` comments too: lines that begin with `#`
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

/// The names in it, below the one source.
pub fn names(file: &OsStr, nul: bool) -> Result<Vec<Name>, Failure> {
    let content = read("files-from", file)?;
    let hint = "names are relative to the source, and stay below it";
    let name = |(number, line): (usize, &[u8])| {
        Name::new(plain(line)).map_err(|e| Failure::usage(format!("{}:{number}: {e}", file.display())).hint(hint))
    };
    lines(&content, nul).map(name).collect()
}

/// Without what changes nothing: slashes at the ends, empty components and those of one dot.
fn plain(line: &[u8]) -> Vec<u8> {
    let components: Vec<_> = line.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if components.is_empty() { b".".to_vec() } else { components.join(&b'/') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_what_rsync_takes_for_lines() {
        let all = |text: &'static str, nul| -> Vec<_> {
            lines(text.as_bytes(), nul).map(|(number, line)| (number, std::str::from_utf8(line).unwrap())).collect()
        };
        assert_eq!(all("a\n\n#b\n;c\r\nd e\r\n f", false), [(1, "a"), (5, "d e"), (6, " f")]);
        assert_eq!(all("a\0\0#b\0c\nd\0", true), [(1, "a"), (3, "#b"), (4, "c\nd")]);
    }

    #[test]
    fn names_are_made_plain() {
        for (line, name) in [("/a//b/./c/", "a/b/c"), ("./a", "a"), (".", "."), ("/", "."), ("a/../b", "a/../b")] {
            assert_eq!(plain(line.as_bytes()), name.as_bytes(), "{line}");
        }
        assert!(Name::new(plain(b"a/../b")).is_err());
    }
}
