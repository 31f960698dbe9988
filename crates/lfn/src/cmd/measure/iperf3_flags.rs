//! Hints for iperf3's flags that `lfn test` does not have. Flags with the same letter and meaning exist in both.

/// Returns the equivalent of an iperf3 flag.
pub fn equivalent_of(flag: &str) -> Option<&'static str> {
    Some(match flag {
        "-c" | "--client" => "give the host without -c: lfn test HOST, or lfn test --iperf3 HOST",
        "-s" | "--server" => "run the server on the other host: lfn serve, or lfn serve --iperf3",
        "-p" | "--port" => "the ticket contains the port; for an iperf3 server use --iperf3 HOST:PORT",
        "--bitrate" | "--bandwidth" | "--fq-rate" => "use --pacing 50mbit",
        "--len" => "use --length 128KiB",
        "--parallel" => "use --streams 4",
        "--blockcount" => "use --count 1000",
        "--set-mss" => "use --mss 1400",
        "-S" | "--tos" => "use --dscp AF11; the DSCP is the upper six bits of the TOS octet",
        "-Z" | "--zerocopy" => "use --near-no-copy; with -R use --far-no-copy",
        "--skip-rx-copy" => "use --far-no-copy; with -R use --near-no-copy",
        "-f" | "--format" => "rates are printed in a suitable unit; --json has bit/s",
        "-A" | "--affinity" => "use taskset -c 2 lfn test HOST",
        "-F" | "--file" => "use lfn copy FILE HOST:FILE",
        "-4" | "-6" | "--version4" | "--version6" => "the address in the ticket decides, or --bind ADDRESS",
        "--json-stream" => "use --output ndjson",
        "--logfile" => "use --report FILE.json, or lfn test HOST >FILE",
        "--get-server-output" => "the result always has both ends; for an iperf3 server use --iperf3-server-output",
        "--bidirectional" | "-d" | "--dualtest" => "use --bidir",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::*;

    #[test]
    fn own_flags_have_no_iperf3_hint() {
        let command = super::super::TestArgs::augment_args(Command::new("test"));
        for argument in command.get_arguments() {
            let long = argument.get_long().map(|long| format!("--{long}"));
            let short = argument.get_short().map(|short| format!("-{short}"));
            for flag in long.into_iter().chain(short) {
                assert_eq!(equivalent_of(&flag), None, "{flag}");
            }
        }
    }
}
