//! `lfn test --stamp`: measures delay and loss with a STAMP reflector, without load and without a session.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Arg;
use lfn_api::stamp;
use lfn_api::stamp::{MAX_COUNT, StampOptions, StampVerbError};
use lfn_base::units::Bytes;
use lfn_measure::stamp::StampKey;

use crate::cmd::values::{count, duration, read, value_error};
use crate::exit::{Exit, Failure};
use crate::print::output::{Output, OutputFormat};
use crate::print::stamp::print;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "STAMP (RFC 8762), instead of a load")]
pub(super) struct StampProbeArgs {
    /// Measure delay and loss of each direction with a STAMP reflector [default port: 862]
    ///
    /// The reflector can be `lfn serve --stamp`, or any reflector for STAMP or TWAMP Light.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(super) stamp: Option<String>,
    /// Send this many packets [default: 100]
    #[arg(long, value_name = "N", requires = "stamp", allow_hyphen_values = true)]
    stamp_count: Option<String>,
    /// Set the time between packets [default: 100ms]
    #[arg(long, value_name = "DURATION", requires = "stamp", allow_hyphen_values = true)]
    stamp_interval: Option<String>,
    /// Set the size of a packet in bytes, without IP and UDP headers [default: the minimum: 44, or 112 with a key]
    #[arg(long, value_name = "BYTES", requires = "stamp", allow_hyphen_values = true)]
    stamp_size: Option<String>,
    /// Authenticate packets with the key in FILE, which the reflector must have too
    #[arg(long, value_name = "FILE", requires = "stamp")]
    stamp_key: Option<PathBuf>,
}

/// Flags that `--stamp` permits, besides its own: those of the output, and those of every command that dials a server.
const PERMITTED: [&str; 8] =
    ["output", "json", "report", "no_live", "insecure", "insecure_anywhere", "wait", "no_wait"];

/// Makes a flag of a load conflict with `--stamp`. A group would not do: clap reports all flags of a group.
pub(super) fn exclude_load(flag: Arg) -> Arg {
    let id = flag.get_id().as_str();
    let is_permitted = id == "stamp" || id.starts_with("stamp_") || PERMITTED.contains(&id);
    if is_permitted { flag } else { flag.conflicts_with("stamp") }
}

impl StampProbeArgs {
    pub(super) fn run(&self, host: &str, output: Output) -> Result<Exit, Failure> {
        if !matches!(output.format(), OutputFormat::Text | OutputFormat::Json) {
            let text = format!("--output {} cannot be used with --stamp", output.format().name());
            return Err(Failure::usage(text).hint("use --output json"));
        }
        let options = self.options(host)?;
        let stop = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone())?;
        print(&stamp(&options, &stop, &mut |_, _| {})?, output)?;
        Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { Exit::Ok })
    }

    fn options(&self, host: &str) -> Result<StampOptions, Failure> {
        let usual = StampOptions::new(host);
        let hint = "--stamp-count 100";
        let packets = match count("stamp-count", &self.stamp_count, hint)? {
            None => usual.count,
            Some(count) if count <= MAX_COUNT.into() => u32::try_from(count)?,
            Some(count) => {
                let text = format!("{count} is too large; the maximum is {MAX_COUNT}");
                return Err(value_error("stamp-count", text, hint));
            }
        };
        let key = self.stamp_key.as_deref().map(StampKey::read).transpose().map_err(|error| {
            Failure::usage(error).hint("create a key for both ends: head -c 32 /dev/urandom | base64 > FILE")
        })?;
        let hint = "--stamp-size 200";
        let size = read::<Bytes>("stamp-size", &self.stamp_size, hint)?;
        let options = StampOptions {
            count: packets,
            interval: duration("stamp-interval", &self.stamp_interval)?.unwrap_or(usual.interval),
            size: size.map(|size| usize::try_from(size.0)).transpose()?,
            key,
            ..usual
        };
        match options.check() {
            Err(error @ StampVerbError::Size { .. }) => Err(value_error("stamp-size", error, hint)),
            checked => checked.map(|()| options).map_err(Failure::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::super::TestArgs;
    use super::*;

    fn command() -> Command {
        TestArgs::augment_args(Command::new("test"))
    }

    #[test]
    fn permitted_flags_exist() {
        let command = command();
        for id in PERMITTED {
            assert!(command.get_arguments().any(|flag| flag.get_id() == id), "{id}");
        }
    }

    #[test]
    fn conflict_names_only_flags_in_use() {
        let typed = ["test", "--stamp", "192.0.2.1", "--time", "5s", "--no-gso"];
        let message = command().try_get_matches_from(typed).unwrap_err().to_string();
        assert!(message.contains("--stamp") && message.contains("--time") && message.contains("--no-gso"), "{message}");
        let others = ["--bytes", "--count", "--streams", "--udp", "--iperf3", "--window"];
        assert!(others.iter().all(|flag| !message.contains(flag)), "{message}");
    }
}
