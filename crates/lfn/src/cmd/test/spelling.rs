//! What users of iperf3 type, and what does the same here. Where letter and meaning are the same, the flag is too; these
//! are the others.

/// What to type instead of a flag that `lfn test` does not have.
pub fn instead_of(flag: &str) -> Option<&'static str> {
    Some(match flag {
        "-c" | "--client" => "the host stands by itself: lfn test HOST, or lfn test --iperf3 HOST",
        "-s" | "--server" => "the other end is lfn serve, or lfn serve --iperf3",
        "-p" | "--port" => "a ticket has the port in it; of an iperf3 server: --iperf3 HOST:PORT",
        "--bitrate" | "--bandwidth" | "--fq-rate" => "--pacing 50mbit",
        "--length" | "--len" => "--record 128KiB",
        "--parallel" => "--streams 4",
        "--blockcount" => "--count 1000",
        "--set-mss" => "--mss 1400",
        "-S" | "--tos" => "--dscp AF11; of a TOS octet the upper six bits",
        "-Z" | "--zerocopy" => "--near-no-copy; with -R --far-no-copy",
        "--skip-rx-copy" => "--far-no-copy; with -R --near-no-copy",
        "-f" | "--format" => "rates are told in the unit that fits; --json has bit/s",
        "-V" | "--verbose" => "--json tells all of both ends",
        "-A" | "--affinity" => "taskset -c 2 lfn test HOST",
        "-F" | "--file" => "lfn copy FILE HOST:FILE",
        "-4" | "-6" | "--version4" | "--version6" => "the address in the ticket decides, and --bind",
        "--json-stream" => "--ndjson",
        "--logfile" => "--save FILE, or lfn test HOST >FILE",
        "--get-server-output" => "both ends are told anyhow; of an iperf3 server: --iperf3-server-output",
        "--bidirectional" | "-d" | "--dualtest" => "--bidir",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::*;

    #[test]
    fn no_flag_of_ours_is_explained_away() {
        let command = super::super::Args::augment_args(Command::new("test"));
        for argument in command.get_arguments() {
            let long = argument.get_long().map(|long| format!("--{long}"));
            let short = argument.get_short().map(|short| format!("-{short}"));
            for flag in long.into_iter().chain(short) {
                assert_eq!(instead_of(&flag), None, "{flag}");
            }
        }
    }
}
