//! Flags of the data streams: number, block size, congestion control, rate and encryption.

use std::time::Duration;

use lfn_api::copy::StreamOptions;
use lfn_base::units::{BitRate, Bytes, parse_unit_duration};

/// Flags of the data streams.
#[derive(clap::Args, Debug)]
pub struct StreamFlags {
    /// Use exactly N data streams [default: from the path if known; otherwise start at 4 and add while throughput
    /// improves]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    streams: Option<u16>,
    /// Use blocks of this size, a power of two from 1KiB to 16MiB [default: 1MiB, less for many slow streams]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<Bytes>,
    /// Set the TCP congestion control of the sender, such as bbr [default: from the path if known; otherwise the
    /// host's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Limit the total send rate, and use it as the path capacity [default: no limit; the capacity of an emulated path]
    ///
    /// The capacity and the RTT determine the number of streams and the predicted time. Opens one extra connection to
    /// measure the RTT.
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Keep reconnecting for this long after the last progress; 0s disables reconnecting
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = parse_unit_duration)]
    retry_for: Duration,
    /// Do not encrypt the data streams (they stay authenticated); for private circuits
    #[arg(long)]
    clear_data: bool,
}

impl StreamFlags {
    /// Returns the options of the library.
    pub fn options(&self) -> StreamOptions {
        StreamOptions {
            streams: self.streams,
            block_size: self.block_size,
            congestion: self.congestion.clone(),
            rate: self.rate,
            retry_for: self.retry_for,
            clear_data: self.clear_data,
            ..StreamOptions::default()
        }
    }
}
