//! Flags for the load: direction, duration, amount, streams and payload.

use std::time::Duration;

use lfn_base::units::{Bytes, Ratio, parse_duration};
use lfn_results::measure::{
    DEFAULT_LOCKSTEP_RECORD, DEFAULT_READ, DEFAULT_RECORD, MAX_STREAMS, PayloadData, TestDirection, TestLoad,
    TestRequest,
};

use crate::cmd::values::{count, duration, read, value_error};
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// Run in reverse mode (server sends, client receives)
    #[arg(short = 'R', long, conflicts_with_all = ["both", "bidir"])]
    reverse: bool,
    /// Run both directions in series: first the client sends, then the server
    #[arg(long, conflicts_with = "bidir")]
    both: bool,
    /// Run in bidirectional mode: both directions at the same time, over separate streams
    #[arg(long)]
    bidir: bool,
    /// Transmit for this long [default: 10s; with --precision 60s at most]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    time: Option<String>,
    /// Transmit this many records instead of --time, and wait until the last one arrives
    #[arg(short = 'k', long, value_name = "N", allow_hyphen_values = true)]
    count: Option<String>,
    /// Transmit this many bytes over all streams, instead of --time
    #[arg(short = 'n', long, value_name = "BYTES", allow_hyphen_values = true, conflicts_with = "count")]
    bytes: Option<String>,
    /// Stop when the 95 % confidence interval of the goodput is within this percentage, such as 2%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, conflicts_with_all = ["count", "bytes"])]
    precision: Option<String>,
    /// Set the length of a record, the bytes of one write [default: 120KiB]
    #[arg(short = 'l', long, value_name = "BYTES", allow_hyphen_values = true)]
    length: Option<String>,
    /// Set the maximum length of one read [default: 128KiB]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    read_length: Option<String>,
    /// Run N parallel streams, 1 to 256 [default: 1]
    #[arg(short = 'P', long, value_name = "N", allow_hyphen_values = true)]
    streams: Option<String>,
    /// Set the TCP congestion control of the sender, such as cubic or bbr [default: the kernel's]
    ///
    /// With a list, stream n uses the nth name.
    #[arg(short = 'C', long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) congestion: Vec<String>,
    /// Set the contents of the payload
    #[arg(long, value_enum, default_value_t)]
    data: DataArg,
    /// Check every received byte
    #[arg(long)]
    check_data: bool,
    /// Measure the time of each record
    ///
    /// Reports when the first record is complete, the fastest and the slowest record, and the rate with and without the
    /// delay of the first.
    #[arg(long)]
    block_timing: bool,
    /// Wait for an answer to each record before the next one is sent
    ///
    /// The receiver answers when the whole record has arrived. --length is then 64KiB by default.
    #[arg(long)]
    lockstep: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default)]
enum DataArg {
    /// Random bytes, which do not compress
    #[default]
    Random,
    /// Only zeros, which compress well
    Zero,
}

const DEFAULT_TIME: Duration = Duration::from_secs(10);
/// Maximum duration of a test with --precision.
const MAX_TIME: Duration = Duration::from_secs(60);

impl LoadArgs {
    /// Returns the directions. Several are tested in series. nettest has both directions.
    pub(super) fn directions(&self, is_nettest: bool) -> Result<Vec<TestDirection>, Failure> {
        let conflicts = [("--reverse", self.reverse), ("--bidir", self.bidir)];
        if let Some((flag, _)) = conflicts.iter().find(|(_, is_given)| is_nettest && *is_given) {
            let text = format!("--output nettest cannot be combined with {flag}: nettest tests each direction in turn");
            return Err(Failure::usage(text).hint(format!("remove {flag}, or use --output text")));
        }
        Ok(match (self.reverse, self.both || self.bidir || is_nettest) {
            (_, true) => vec![TestDirection::Forward, TestDirection::Reverse],
            (true, _) => vec![TestDirection::Reverse],
            _ => vec![TestDirection::Forward],
        })
    }

    pub(super) fn load(&self) -> Result<TestLoad, Failure> {
        let amount = if self.count.is_some() { "--count" } else { "--bytes" };
        if self.time.is_some() && (self.count.is_some() || self.bytes.is_some()) {
            let text = format!("--time and {amount} cannot be combined");
            return Err(Failure::usage(text).hint("remove one of the two"));
        }
        let count = count("count", &self.count, "--count 1000")?;
        let bytes = read("bytes", &self.bytes, "--bytes 10GB")?;
        let usual = if self.precision.is_some() { MAX_TIME } else { DEFAULT_TIME };
        Ok(match (count, bytes) {
            (Some(count), _) => TestLoad::Records(count),
            (None, Some(bytes)) => TestLoad::Bytes(bytes),
            (None, None) => TestLoad::TimeSeconds(self.time()?.unwrap_or(usual)),
        })
    }

    fn time(&self) -> Result<Option<Duration>, Failure> {
        match self.time.as_deref().map(parse_duration) {
            // iperf3 runs a test without end.
            Some(Ok(Duration::ZERO)) => Err(value_error(
                "time",
                "the time must be above zero; a test without end is not supported",
                "give the maximum time, such as --time 1h; Ctrl-C ends the test earlier and prints its result",
            )),
            _ => duration("time", &self.time),
        }
    }

    /// Returns the requested precision of the goodput that ends the test.
    pub(super) fn precision(&self) -> Result<Option<Ratio>, Failure> {
        let precision: Option<Ratio> = read("precision", &self.precision, "--precision 2%")?;
        if precision.is_some_and(|precision| precision.get() < 0.001) {
            return Err(value_error("precision", "the minimum is 0.1 %", "--precision 2%"));
        }
        Ok(precision)
    }

    /// Reports whether both directions run at the same time.
    pub(super) fn is_bidirectional(&self) -> bool {
        self.bidir
    }

    /// Sets the payload, the reads and the checks of the request.
    pub(super) fn add_to(&self, request: &mut TestRequest) -> Result<(), Failure> {
        request.read = read("read-length", &self.read_length, "--read-length 128KiB")?.unwrap_or(DEFAULT_READ);
        request.data = match self.data {
            DataArg::Random => PayloadData::Random,
            DataArg::Zero => PayloadData::Zero,
        };
        request.check = self.check_data;
        request.blocks = self.block_timing;
        request.lockstep = self.lockstep;
        Ok(())
    }

    pub(super) fn streams(&self) -> Result<u16, Failure> {
        let Some(text) = &self.streams else { return Ok(1) };
        match text.trim().parse() {
            Ok(streams @ 1..=MAX_STREAMS) => Ok(streams),
            _ => Err(value_error("streams", format!("'{text}' is not an integer from 1 to 256"), "--streams 4")),
        }
    }

    /// Refuses flags that end a test, since a ramp ends by itself.
    pub(super) fn check_ramp(&self) -> Result<(), Failure> {
        let given =
            [("time", &self.time), ("count", &self.count), ("bytes", &self.bytes), ("precision", &self.precision)];
        match given.iter().find(|(_, given)| given.is_some()) {
            Some((flag, _)) => Err(Failure::usage(format!("--{flag} with --ramp: a ramp ends when the rate is found"))
                .hint(format!("remove --{flag}; --ramp-step-time is the duration of one step"))),
            None => Ok(()),
        }
    }

    /// Returns the payload of each datagram, if given.
    pub(super) fn datagram(&self) -> Result<Option<u32>, Failure> {
        let Some(bytes) = read::<Bytes>("length", &self.length, "--length 1200")? else { return Ok(None) };
        Ok(Some(u32::try_from(bytes.0).unwrap_or(u32::MAX)))
    }

    pub(super) fn record(&self) -> Result<Bytes, Failure> {
        let usual = if self.lockstep { DEFAULT_LOCKSTEP_RECORD } else { DEFAULT_RECORD };
        Ok(read("length", &self.length, "--length 120KiB")?.unwrap_or(usual))
    }
}
