//! Flags of other programs, with a hint about the way that lfn has. Flags with the same name and meaning exist in both.

/// Flags of other programs that have one hint.
struct ForeignFlags {
    /// Commands of lfn that give the hint; empty for every command.
    commands: &'static [&'static str],
    flags: &'static [&'static str],
    hint: &'static str,
}

/// Returns the hint for a flag of another program that was typed after a command such as `token add`.
pub fn hint(command: &str, typed: &str) -> Option<&'static str> {
    let applies = |row: &&ForeignFlags| row.commands.is_empty() || row.commands.contains(&command);
    TABLE.iter().filter(applies).find(|row| row.flags.contains(&typed)).map(|row| row.hint)
}

/// Returns the flag of lfn with the same meaning and value, if the hint names one.
pub fn replacement(command: &str, typed: &str) -> Option<&'static str> {
    hint(command, typed)?.strip_prefix("use ")?.split([' ', ',', ';']).next().filter(|flag| flag.starts_with("--"))
}

const fn row(commands: &'static [&'static str], flags: &'static [&'static str], hint: &'static str) -> ForeignFlags {
    ForeignFlags { commands, flags, hint }
}

const TABLE: &[ForeignFlags] = &[
    // Formats and files that other programs select with flags of their own.
    row(&[], &["--ndjson"], "use --output ndjson"),
    row(&[], &["--csv"], "use --output csv"),
    row(&[], &["--nettest"], "use --output nettest"),
    row(&[], &["--save"], "use --report FILE.json"),
    // iperf3
    row(&["test"], &["-c", "--client"], "give the host without -c: lfn test HOST, or lfn test --iperf3 HOST"),
    row(&["test"], &["-s", "--server"], "run the server on the other host: lfn serve, or lfn serve --iperf3"),
    row(&["test"], &["-p", "--port"], "the ticket contains the port; for an iperf3 server use --iperf3 HOST:PORT"),
    row(&["test"], &["--bitrate", "--bandwidth", "--fq-rate"], "use --pacing 50mbit"),
    row(&["test"], &["--len"], "use --length 128KiB"),
    row(&["test"], &["--parallel"], "use --streams 4"),
    row(&["test"], &["--blockcount"], "use --count 1000"),
    row(&["test"], &["--set-mss"], "use --mss 1400"),
    row(&["test"], &["-S", "--tos"], "use --dscp AF11; the DSCP is the upper six bits of the TOS octet"),
    row(&["test"], &["-Z", "--zerocopy"], "use --near-no-copy; with -R use --far-no-copy"),
    row(&["test"], &["--skip-rx-copy"], "use --far-no-copy; with -R use --near-no-copy"),
    row(&["test"], &["-f", "--format"], "rates are printed in a suitable unit; --json has bit/s"),
    row(&["test"], &["-A", "--affinity"], "use taskset -c 2 lfn test HOST"),
    row(&["test"], &["-F", "--file"], "use lfn copy FILE HOST:FILE"),
    row(&["test"], &["-4", "-6", "--version4", "--version6"], "the address in the ticket decides, or --bind ADDRESS"),
    row(&["test"], &["--json-stream"], "use --output ndjson"),
    row(&["test"], &["--logfile"], "use --report FILE.json, or lfn test HOST >FILE"),
    row(
        &["test"],
        &["--get-server-output"],
        "the result always has both ends; for an iperf3 server use --iperf3-server-output",
    ),
    row(&["test"], &["--bidirectional", "-d", "--dualtest"], "use --bidir"),
    // rsync
    row(
        &["copy"],
        &["-r", "--recursive", "-d", "--dirs"],
        "omit it: directories are always copied with their contents",
    ),
    row(
        &["copy"],
        &["-z", "--compress", "--compress-level", "--zc", "--zl"],
        "omit it: lfn does not compress; compress the files before the copy if the path is slow",
    ),
    row(&["copy"], &["-P"], "use --progress; interrupted copies always resume"),
    row(
        &["copy"],
        &["--partial", "--partial-dir", "--append", "--append-verify"],
        "omit it: interrupted copies always resume when you run the same command again",
    ),
    row(&["copy"], &["--inplace"], "omit it: a file is replaced only when the new file is complete"),
    row(&["copy"], &["-e", "--rsh"], "use --ssh COMMAND, for example --ssh 'ssh -p 2222'"),
    row(&["copy"], &["--rsync-path"], "use --remote-lfn PATH"),
    row(&["copy"], &["--bwlimit"], "use --rate RATE in bits per second, for example --rate 80mbit for 10 MB/s"),
    row(&["copy"], &["-t", "--times"], "omit it: modification times are always preserved"),
    row(&["copy"], &["-g", "--group"], "use --owners (-o), which preserves user and group"),
    row(&["copy"], &["-D", "--devices", "--specials"], "omit it: devices, FIFOs and sockets are never copied"),
    row(&["copy"], &["-E", "--executability"], "use --perms (-p)"),
    row(
        &["copy"],
        &["-L", "--copy-links", "-k", "--copy-dirlinks"],
        "give each link as a SOURCE: a SOURCE that is a link is followed, others are skipped or copied with --links",
    ),
    row(&["copy"], &["-R", "--relative"], "use --files-from FILE with names relative to SOURCE"),
    row(
        &["copy"],
        &["-W", "--whole-file"],
        "omit it: files are always sent whole, except for parts that an earlier copy has left",
    ),
    row(&["copy"], &["-I", "--ignore-times"], "use --force --checksum"),
    row(&["copy"], &["--size-only", "--modify-window"], "use --checksum to compare files of equal size by content"),
    row(
        &["copy"],
        &["--ignore-existing"],
        "omit it: existing files that differ are not replaced without --force, --update or --delete",
    ),
    row(
        &["copy"],
        &["--existing", "--ignore-non-existing"],
        "use --files-from FILE with the names of the existing files",
    ),
    row(&["copy"], &["-b", "--backup", "--backup-dir", "--suffix"], "copy into a new directory: lfn keeps no backups"),
    row(&["copy"], &["--remove-source-files"], "verify the copy with lfn verify, then delete the source yourself"),
    row(
        &["copy"],
        &["--del", "--delete-before", "--delete-during", "--delete-delay", "--delete-after"],
        "use --delete: it deletes after the copy of each directory",
    ),
    row(&["copy"], &["--delete-excluded"], "use --delete: excluded files are never deleted"),
    row(&["copy"], &["-x", "--one-file-system"], "exclude the mount points: --exclude /DIRECTORY/"),
    row(
        &["copy"],
        &["--numeric-ids", "--chown", "--usermap", "--groupmap"],
        "omit it: owners are preserved by name if both ends know the name, else by number (--owners)",
    ),
    row(&["copy"], &["--chmod"], "use --perms (-p) to preserve permissions"),
    row(&["copy"], &["-f", "--filter", "-F", "-C", "--cvs-exclude"], "use --include PATTERN and --exclude PATTERN"),
    row(&["copy"], &["--max-size", "--min-size"], "use --files-from FILE with the names of find -size"),
    row(
        &["copy"],
        &["-i", "--itemize-changes", "--out-format", "--log-format"],
        "use --verbose (-v), or --output ndjson for each event",
    ),
    row(&["copy"], &["--stats", "--info", "--debug"], "use --json: it has all figures"),
    row(&["copy"], &["--human-readable", "-8"], "omit it: sizes are always printed with units"),
    row(&["copy"], &["--log-file"], "use --output ndjson >FILE"),
    row(&["copy"], &["--timeout", "--contimeout"], "use --retry-for DURATION"),
    row(
        &["copy"],
        &["--port", "--password-file"],
        "use a ticket, which contains the port and the secret: lfn hosts add NAME TICKET",
    ),
    row(&["copy"], &["--block-length", "-B"], "use --block-size BYTES"),
    row(&["copy"], &["--checksum-choice", "--cc"], "use --verify HASH"),
    row(&["copy"], &["--list-only"], "use --dry-run (-n)"),
    row(&["copy"], &["-4", "-6", "--ipv4", "--ipv6"], "use the address itself instead of the host name"),
    row(&["copy"], &["--address"], "omit it: the kernel chooses the address of this host"),
    row(
        &["copy"],
        &["--safe-links", "--munge-links", "--keep-dirlinks", "-K"],
        "omit it: links at the destination are not followed",
    ),
    row(&["copy"], &["--mkpath"], "create the parent directories of the destination first"),
    // Common names in other programs.
    row(&["emulate"], &["--up", "--upload", "--uplink", "--up-rate"], "use --forward-rate for the direction to far"),
    row(
        &["emulate"],
        &["--down", "--download", "--downlink", "--down-rate"],
        "use --return-rate for the direction to near",
    ),
    row(
        &["emulate", "plan"],
        &["--bandwidth", "--bw", "--speed", "--capacity", "--throughput", "--bitrate"],
        "use --rate, such as --rate 135mbit",
    ),
    row(&["emulate"], &["--latency"], "use --delay, such as --delay 270ms"),
    row(&["emulate"], &["--ping", "--lag", "--round-trip"], "use --rtt, such as --rtt 539ms"),
    row(&["plan"], &["--latency", "--ping", "--lag", "--round-trip"], "use --rtt, such as --rtt 539ms"),
    row(&["plan"], &["--delay"], "use --rtt, such as --rtt 539ms"),
    row(&["emulate", "plan"], &["--packet-loss", "--drop", "--plr"], "use --loss, such as --loss 0.1%"),
    row(&["emulate", "plan"], &["--limit", "--buffer", "--queue-size"], "use --queue, such as --queue 1bdp"),
    row(&["emulate"], &["--preset", "--scenario", "--network"], "use --profile; lfn emulate --list shows the profiles"),
    row(&["plan"], &["--bytes", "--file-size", "--data"], "use --size, such as --size 10GB"),
    row(&["plan"], &["--cc", "--tcp", "--algorithm"], "use --congestion, such as --congestion bbr"),
    row(&["test"], &["--cc", "--algorithm"], "use --congestion, such as --congestion bbr"),
    row(&["copy"], &["--algorithm"], "use --congestion, such as --congestion bbr"),
    row(
        &["test", "copy", "plan"],
        &["--connections", "--threads", "--parallelism", "--jobs"],
        "use --streams, such as --streams 4",
    ),
    row(&["test"], &["--duration", "--seconds", "--timeout"], "use --time, such as --time 30s"),
    row(&["test"], &["--download", "--down"], "use --reverse"),
    row(&["test"], &["--duplex", "--full-duplex"], "use --bidir"),
    row(
        &["test"],
        &["--speed", "--throughput", "--capacity"],
        "use --rate for the capacity of the path, or --pacing to limit the rate",
    ),
    row(&["test"], &["--ping", "--rtt", "--owd"], "use --latency, or lfn test --stamp HOST"),
    row(&["test"], &["--mtu", "--traceroute"], "use --path"),
    row(&["test"], &["--output-file", "--out", "-o"], "use --report FILE.json"),
    row(&["test"], &["--token", "--ticket", "--key"], "give the ticket instead of HOST: lfn test 'lfn://…'"),
    row(&["serve"], &["--listen", "--address", "--host", "--addr", "--interface"], "use --bind ADDRESS"),
    row(&["serve"], &["--dir", "--directory", "--path", "--module", "--share"], "use --root DIR"),
    row(
        &["serve"],
        &["--daemon", "-D", "--background", "--detach"],
        "run the server under systemd, or use nohup lfn serve &",
    ),
    row(
        &["serve"],
        &["--one-off", "-1", "--once"],
        "use --stdio over ssh: lfn test USER@HOST starts a server for one test",
    ),
    row(
        &["serve"],
        &["--user", "--password", "--auth", "--secret"],
        "create a ticket for each user: lfn token add NAME",
    ),
    row(&["serve"], &["--token"], "use --new-token, or create another ticket: lfn token add NAME"),
    row(&["serve"], &["--public-address", "--advertise", "--hostname", "--external"], "use --ticket-host NAME"),
    row(&["serve"], &["--readonly", "--ro"], "use --read-only"),
    row(&["serve"], &["--max-total-streams"], "use --max-streams"),
    row(&["serve"], &["--queue", "--queue-size", "--backlog"], "use --max-queue"),
    row(&["serve"], &["--max-test-time", "--max-duration", "--server-max-duration"], "use --test-time"),
    row(&["serve"], &["--server-bitrate-limit", "--limit-rate"], "use --max-rate, or --client-rate for each client"),
    row(&["serve"], &["--max-per-ip", "--limit-conn", "--max-client-sessions"], "use --client-sessions"),
    row(&["serve"], &["-s", "--server"], "remove -s: lfn serve is the server"),
    row(&["token add"], &["--expiry", "--ttl", "--lifetime", "--valid"], "use --expires, such as --expires 12h"),
    row(&["token add"], &["--host", "--hostname"], "use --ticket-host NAME"),
    row(&["token add"], &["--port"], "use --ticket-port PORT"),
    row(&["token add"], &["--read-only", "--ro"], "use --rights read"),
    row(&["token add"], &["--write-only"], "use --rights write"),
    row(&["token add"], &["--create-only"], "use --rights create"),
    row(&["token add"], &["--dir", "--directory", "--path"], "use --root DIR"),
    row(&["token add"], &["--max-rate", "--bandwidth", "--limit"], "use --rate, such as --rate 50mbit"),
];

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;
    use crate::cli::Cli;
    use crate::cmd::man::with_flags_of_all;

    /// Returns a command such as `token add`.
    fn command<'a>(program: &'a Command, words: &str) -> &'a Command {
        let found = words.split_whitespace().try_fold(program, |command, word| command.find_subcommand(word));
        found.unwrap_or_else(|| panic!("no command '{words}'"))
    }

    fn has_flag(command: &Command, flag: &str) -> bool {
        let has_long = |long: &str| command.get_arguments().any(|arg| arg.get_long() == Some(long));
        let has_short = |short: &str| command.get_arguments().any(|arg| arg.get_short() == short.chars().next());
        flag.strip_prefix("--").map_or_else(|| has_short(&flag[1..]), has_long)
    }

    #[test]
    fn foreign_flag_has_one_hint_per_command() {
        let all = |row: &ForeignFlags| -> Vec<_> {
            let flags = row.flags;
            row.commands.iter().flat_map(|command| flags.iter().map(move |flag| (*command, *flag))).collect()
        };
        let mut pairs: Vec<_> = TABLE.iter().flat_map(all).collect();
        pairs.sort_unstable();
        let twice: Vec<_> = pairs.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }

    #[test]
    fn commands_do_not_have_the_foreign_flags() {
        let program = with_flags_of_all(Cli::command());
        for ForeignFlags { commands, flags, .. } in TABLE {
            for (name, flag) in commands.iter().flat_map(|name| flags.iter().map(move |flag| (name, flag))) {
                assert!(!has_flag(command(&program, name), flag), "lfn {name} {flag}");
            }
        }
    }

    /// Words after `lfn COMMAND` in a hint belong to this command.
    #[test]
    fn hints_name_only_existing_flags() {
        let program = with_flags_of_all(Cli::command());
        let mut checked = 0;
        for ForeignFlags { commands, hint, .. } in TABLE {
            for name in if commands.is_empty() { &["test", "copy"] } else { *commands } {
                let mut described = command(&program, name);
                for word in hint.split([' ', ',', ';', ':', '(', ')', '\'']) {
                    match described.find_subcommand(word) {
                        _ if word == "lfn" => described = &program,
                        Some(deeper) => described = deeper,
                        None if word.starts_with("--") => {
                            assert!(has_flag(described, word), "lfn {name}: '{hint}': {word}");
                            checked += 1;
                        }
                        None => {}
                    }
                }
            }
        }
        assert!(checked > 80, "{checked} flags were checked");
    }

    #[test]
    fn replacement_is_the_first_flag_of_the_hint() {
        assert_eq!(replacement("emulate", "--up"), Some("--forward-rate"));
        assert_eq!(replacement("emulate", "--latency"), Some("--delay"));
        assert_eq!(replacement("copy", "--recursive"), None);
        assert_eq!(hint("test", "--up"), None);
    }
}
