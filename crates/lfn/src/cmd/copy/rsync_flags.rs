//! Hints for rsync's flags that `lfn copy` does not have. Flags with the same name and meaning exist in both.

/// Returns the equivalent of an rsync flag, as a hint.
pub fn equivalent_of(flag: &str) -> Option<&'static str> {
    Some(match flag {
        "-r" | "--recursive" | "-d" | "--dirs" => "omit it: directories are always copied with their contents",
        "-z" | "--compress" | "--compress-level" | "--zc" | "--zl" => {
            "omit it: lfn does not compress; compress the files before the copy if the path is slow"
        }
        "-P" => "use --progress; interrupted copies always resume",
        "--partial" | "--partial-dir" | "--append" | "--append-verify" => {
            "omit it: interrupted copies always resume when you run the same command again"
        }
        "--inplace" => "omit it: a file is replaced only when the new file is complete",
        "-e" | "--rsh" => "use --ssh COMMAND, for example --ssh 'ssh -p 2222'",
        "--rsync-path" => "use --remote-lfn PATH",
        "--bwlimit" => "use --rate RATE in bits per second, for example --rate 80mbit for 10 MB/s",
        "-t" | "--times" => "omit it: modification times are always preserved",
        "-g" | "--group" => "use --owners (-o), which preserves user and group",
        "-D" | "--devices" | "--specials" => "omit it: devices, FIFOs and sockets are never copied",
        "-E" | "--executability" => "use --perms (-p)",
        "-L" | "--copy-links" | "-k" | "--copy-dirlinks" => {
            "give each link as a SOURCE: a SOURCE that is a link is followed, others are skipped or copied with --links"
        }
        "-R" | "--relative" => "use --files-from FILE with names relative to SOURCE",
        "-W" | "--whole-file" => "omit it: files are always sent whole, except for parts that an earlier copy has left",
        "-I" | "--ignore-times" => "use --force --checksum",
        "--size-only" | "--modify-window" => "use --checksum to compare files of equal size by content",
        "--ignore-existing" => {
            "omit it: existing files that differ are not replaced without --force, --update or --delete"
        }
        "--existing" | "--ignore-non-existing" => "use --files-from FILE with the names of the existing files",
        "-b" | "--backup" | "--backup-dir" | "--suffix" => "copy into a new directory: lfn keeps no backups",
        "--remove-source-files" => "verify the copy with lfn verify, then delete the source yourself",
        "--del" | "--delete-before" | "--delete-during" | "--delete-delay" | "--delete-after" => {
            "use --delete: it deletes after the copy of each directory"
        }
        "--delete-excluded" => "use --delete: excluded files are never deleted",
        "-x" | "--one-file-system" => "exclude the mount points: --exclude /DIRECTORY/",
        "--numeric-ids" | "--chown" | "--usermap" | "--groupmap" => {
            "omit it: owners are preserved by name if both ends know the name, else by number (--owners)"
        }
        "--chmod" => "use --perms (-p) to preserve permissions",
        "-f" | "--filter" | "-F" | "-C" | "--cvs-exclude" => "use --include PATTERN and --exclude PATTERN",
        "--max-size" | "--min-size" => "use --files-from FILE with the names of find -size",
        "-i" | "--itemize-changes" | "--out-format" | "--log-format" => {
            "use --verbose (-v), or --output ndjson for each event"
        }
        "--stats" | "--info" | "--debug" => "use --json: it has all figures",
        "--human-readable" | "-8" => "omit it: sizes are always printed with units",
        "--log-file" => "use --output ndjson >FILE",
        "--timeout" | "--contimeout" => "use --retry-for DURATION",
        "--port" | "--password-file" => {
            "use a ticket, which contains the port and the secret: lfn hosts add NAME TICKET"
        }
        "--block-length" | "-B" => "use --block-size BYTES",
        "--checksum-choice" | "--cc" => "use --verify HASH",
        "--list-only" => "use --dry-run (-n)",
        "-4" | "-6" | "--ipv4" | "--ipv6" => "use the address itself instead of the host name",
        "--address" => "omit it: the kernel chooses the address of this host",
        "--safe-links" | "--munge-links" | "--keep-dirlinks" | "-K" => {
            "omit it: links at the destination are not followed"
        }
        "--mkpath" => "create the parent directories of the destination first",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::*;

    #[test]
    fn own_flags_have_no_rsync_hint() {
        let command = super::super::CopyArgs::augment_args(Command::new("copy"));
        for argument in command.get_arguments() {
            let long = argument.get_long().map(|long| format!("--{long}"));
            let short = argument.get_short().map(|short| format!("-{short}"));
            for flag in long.into_iter().chain(short) {
                assert_eq!(equivalent_of(&flag), None, "{flag}");
            }
        }
    }

    /// A flag that a hint names exists, so that the hint works when pasted.
    #[test]
    fn hints_name_existing_flags() {
        let command = super::super::CopyArgs::augment_args(Command::new("copy"));
        let mut own: Vec<String> =
            command.get_arguments().filter_map(|a| Some(format!("--{}", a.get_long()?))).collect();
        // A flag of every command.
        own.push("--verbose".to_owned());
        let typed = ["-r", "-z", "-P", "-e", "-t", "-g", "-E", "-L", "-R", "-W", "-I", "-b", "-x", "-f", "-i", "-B"];
        let long = ["--bwlimit", "--rsync-path", "--partial", "--delete-after", "--stats", "--timeout", "--max-size"];
        for flag in typed.into_iter().chain(long) {
            let hint = equivalent_of(flag).unwrap_or_else(|| panic!("{flag}"));
            let words = hint.split([' ', ';', ',', '(', ')', ':']).filter(|word| word.starts_with("--"));
            for word in words {
                assert!(own.iter().any(|own| own == word), "{flag}: {word}");
            }
        }
    }
}
