//! What is sent, which way, and when it is enough.

use std::time::Duration;

use lfn_core::units::{Bytes, Ratio, parse_duration};
use lfn_core::wire::test::{
    DEFAULT_READ, DEFAULT_RECORD, Data, Direction, Load, MOST_STREAMS, SHORTEST_INTERVAL, TestRequest,
};

use super::typed::{count, duration, read, unreadable};
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// The server writes and the client reads
    #[arg(short = 'R', long, conflicts_with_all = ["both", "bidir"])]
    reverse: bool,
    /// The client writes, then reads
    #[arg(long, conflicts_with = "bidir")]
    both: bool,
    /// Both at the same time, each over streams of its own
    #[arg(long, conflicts_with = "nettest")]
    bidir: bool,
    /// How long to write [default: 10s; with --until 60s at most]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    time: Option<String>,
    /// Write this many records instead, and wait for the last to arrive
    #[arg(short = 'k', long, value_name = "N", allow_hyphen_values = true)]
    count: Option<String>,
    /// Write this much instead, all streams together
    #[arg(short = 'n', long, value_name = "BYTES", allow_hyphen_values = true, conflicts_with = "count")]
    bytes: Option<String>,
    /// Write until the 95 % interval of the steady goodput reaches no further than this from its mean: 2%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, conflicts_with_all = ["count", "bytes"])]
    until: Option<String>,
    /// Bytes handed to one write [default: 120KiB]
    #[arg(short = 'l', long, value_name = "BYTES", allow_hyphen_values = true)]
    record: Option<String>,
    /// Bytes asked of one read [default: 128KiB]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    read: Option<String>,
    /// TCP streams side by side, 1 to 256 [default: 1]
    #[arg(short = 'P', long, value_name = "N", allow_hyphen_values = true)]
    streams: Option<String>,
    /// Congestion control of the sending end, such as cubic or bbr; of several names stream n has the nth
    /// [default: the kernel's]
    #[arg(short = 'C', long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) congestion: Vec<String>,
    /// What payload consists of
    #[arg(long, value_enum, default_value_t)]
    data: DataArg,
    /// The receiver looks whether every byte is the one that belongs at its place
    #[arg(long)]
    check: bool,
    /// Pitch and catch: when the first record arrives whole, the fastest and the slowest, the rate with that delay and
    /// without
    #[arg(long)]
    blocks: bool,
}

/// As it is typed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default)]
enum DataArg {
    /// Bytes that do not compress
    #[default]
    Random,
    /// Zeros
    Zero,
}

const DEFAULT_TIME: Duration = Duration::from_secs(10);
/// The most a test takes whose end is found in the figures.
const MOST_TIME: Duration = Duration::from_secs(60);
/// Parts of an interval, where the figures decide when there is enough.
const PARTS: u16 = 10;

impl LoadArgs {
    /// One test after the other; `both` where the layout asks for it anyhow.
    pub(super) fn directions(&self, both: bool) -> Vec<Direction> {
        match (self.reverse, self.both || self.bidir || both) {
            (_, true) => vec![Direction::Forward, Direction::Reverse],
            (true, _) => vec![Direction::Reverse],
            _ => vec![Direction::Forward],
        }
    }

    pub(super) fn load(&self) -> Result<Load, Failure> {
        let amount = if self.count.is_some() { "--count" } else { "--bytes" };
        if self.time.is_some() && (self.count.is_some() || self.bytes.is_some()) {
            let text = format!("--time and {amount} contradict each other: a test ends by one of them");
            return Err(Failure::usage(text).hint("leave out one of them"));
        }
        let count = count("count", &self.count, "--count 1000")?;
        let bytes = read("bytes", &self.bytes, "--bytes 10GB")?;
        let usual = if self.until.is_some() { MOST_TIME } else { DEFAULT_TIME };
        Ok(match (count, bytes) {
            (Some(count), _) => Load::Records(count),
            (None, Some(bytes)) => Load::Bytes(bytes),
            (None, None) => Load::TimeSeconds(self.time()?.unwrap_or(usual)),
        })
    }

    fn time(&self) -> Result<Option<Duration>, Failure> {
        match self.time.as_deref().map(parse_duration) {
            // iperf3 takes it for a test without an end.
            Some(Ok(Duration::ZERO)) => Err(unreadable(
                "time",
                "a test of no time measures nothing, and one without an end there is not",
                "give the most it may take, such as --time 1h; Ctrl-C ends it earlier, with its figures",
            )),
            _ => duration("time", &self.time),
        }
    }

    /// How narrow the interval of the goodput is to be, if that ends the test.
    pub(super) fn until(&self) -> Result<Option<Ratio>, Failure> {
        let until: Option<Ratio> = read("until", &self.until, "--until 2%")?;
        if until.is_some_and(|until| until.get() < 0.001) {
            return Err(unreadable("until", "below 0.1 % no test would end", "--until 2%"));
        }
        Ok(until)
    }

    /// Both directions at the same time.
    pub(super) fn at_once(&self) -> bool {
        self.bidir
    }

    /// Fills in how payload is made, cut and looked at.
    pub(super) fn add_to(&self, request: &mut TestRequest) -> Result<(), Failure> {
        request.read = read("read", &self.read, "--read 128KiB")?.unwrap_or(DEFAULT_READ);
        request.data = match self.data {
            DataArg::Random => Data::Random,
            DataArg::Zero => Data::Zero,
        };
        (request.check, request.blocks) = (self.check, self.blocks);
        request.parts = match self.until {
            // As many as fit into a short interval.
            Some(_) => {
                PARTS.min(u16::try_from(request.interval.as_nanos() / SHORTEST_INTERVAL.as_nanos()).unwrap_or(PARTS))
            }
            None => 0,
        };
        Ok(())
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

    /// Refuses what datagrams have not.
    pub(super) fn check_datagrams(&self) -> Result<(), Failure> {
        let zero = matches!(self.data, DataArg::Zero);
        let given = [
            ("read", self.read.is_some(), "datagrams are read whole"),
            ("data zero", zero, "datagrams carry random bytes"),
        ];
        match given.iter().find(|(_, given, _)| *given) {
            Some((flag, _, why)) => {
                Err(Failure::usage(format!("--{flag} with --udp: {why}")).hint("leave out one of them"))
            }
            None => Ok(()),
        }
    }

    /// Refuses what would end a ramp, which ends by itself.
    pub(super) fn check_ramp(&self) -> Result<(), Failure> {
        let given = [("time", &self.time), ("count", &self.count), ("bytes", &self.bytes), ("until", &self.until)];
        match given.iter().find(|(_, given)| given.is_some()) {
            Some((flag, _)) => Err(Failure::usage(format!("--{flag} with --ramp: it ends when it has found the rate"))
                .hint(format!("leave out --{flag}; --ramp-step is the time of one step"))),
            None => Ok(()),
        }
    }

    /// Payload of each datagram, if it was given.
    pub(super) fn datagram(&self) -> Result<Option<u32>, Failure> {
        let Some(bytes) = read::<Bytes>("record", &self.record, "--record 1200")? else { return Ok(None) };
        Ok(Some(u32::try_from(bytes.0).unwrap_or(u32::MAX)))
    }

    pub(super) fn record(&self) -> Result<Bytes, Failure> {
        Ok(read("record", &self.record, "--record 120KiB")?.unwrap_or(DEFAULT_RECORD))
    }
}
