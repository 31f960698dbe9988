//! What is sent, which way, and when it is enough.

use std::time::Duration;

use lfn_core::units::Bytes;
use lfn_core::wire::test::{DEFAULT_RECORD, Direction, Load, MOST_STREAMS};

use super::typed::{count, duration, read, unreadable};
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// The server writes and the client reads
    #[arg(short = 'R', long, conflicts_with = "both")]
    reverse: bool,
    /// The client writes, then reads
    #[arg(long)]
    both: bool,
    /// How long to write [default: 10s]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    time: Option<String>,
    /// Write this many records instead, and wait for the last to arrive
    #[arg(short = 'n', long, value_name = "N", allow_hyphen_values = true)]
    count: Option<String>,
    /// Bytes handed to one write [default: 256KiB]
    #[arg(short = 'l', long, value_name = "BYTES", allow_hyphen_values = true)]
    record: Option<String>,
    /// TCP streams side by side, 1 to 256 [default: 1]
    #[arg(short = 'P', long, value_name = "N", allow_hyphen_values = true)]
    streams: Option<String>,
    /// Congestion control of the sending end, such as cubic or bbr; of several names stream n has the nth
    /// [default: the kernel's]
    #[arg(short = 'C', long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) congestion: Vec<String>,
}

const DEFAULT_TIME: Duration = Duration::from_secs(10);

impl LoadArgs {
    /// One test after the other; `both` where the layout asks for it anyhow.
    pub(super) fn directions(&self, both: bool) -> Vec<Direction> {
        match (self.reverse, self.both || both) {
            (_, true) => vec![Direction::Forward, Direction::Reverse],
            (true, _) => vec![Direction::Reverse],
            _ => vec![Direction::Forward],
        }
    }

    pub(super) fn load(&self) -> Result<Load, Failure> {
        if self.time.is_some() && self.count.is_some() {
            return Err(Failure::usage("--time and --count contradict each other: a test ends by one of them")
                .hint("leave out one of them"));
        }
        Ok(match count("count", &self.count, "--count 1000")? {
            Some(count) => Load::Records(count),
            None => Load::TimeSeconds(duration("time", &self.time)?.unwrap_or(DEFAULT_TIME)),
        })
    }

    pub(super) fn streams(&self) -> Result<u16, Failure> {
        let Some(text) = &self.streams else { return Ok(1) };
        match text.trim().parse() {
            Ok(streams @ 1..=MOST_STREAMS) => Ok(streams),
            _ => {
                Err(unreadable("streams", format!("'{text}' is not a number of streams from 1 to 256"), "--streams 4"))
            }
        }
    }

    /// Payload of each datagram, if it was given.
    pub(super) fn datagram(&self) -> Result<Option<u32>, Failure> {
        let Some(bytes) = read::<Bytes>("record", &self.record, "--record 1200")? else { return Ok(None) };
        Ok(Some(u32::try_from(bytes.0).unwrap_or(u32::MAX)))
    }

    pub(super) fn record(&self) -> Result<Bytes, Failure> {
        Ok(read("record", &self.record, "--record 256KiB")?.unwrap_or(DEFAULT_RECORD))
    }
}
