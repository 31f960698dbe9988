//! Flags of the data streams: number, block size, congestion control, rate and encryption. Defaults come from the
//! figures of the path ([`lfn_core::transfer::streams`]).

use std::time::Duration;

use lfn_core::path::PathProfile;
use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::streams::{RequestedStreams, StreamPlan, plan_streams};
use lfn_core::units::{BitRate, Bytes, parse_unit_duration};
use lfn_core::wire::CongestionRequest;
use lfn_net::session::Protection;

use crate::exit::Failure;

/// A lower rate is probably a mistake in the unit.
const MIN_RATE: BitRate = BitRate(8000);

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
    pub rate: Option<BitRate>,
    /// Keep reconnecting for this long after the last progress; 0s disables reconnecting
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = parse_unit_duration)]
    pub retry_for: Duration,
    /// Do not encrypt the data streams (they stay authenticated); for private circuits
    #[arg(long)]
    clear_data: bool,
}

impl StreamFlags {
    /// Refuses values that no server accepts.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(rate) = self.rate.filter(|rate| *rate < MIN_RATE) {
            let text = format!("--rate {rate} is too low; minimum {MIN_RATE}");
            return Err(Failure::usage(text).hint("--rate 10gbit"));
        }
        let Some(block) = self.block_size else { return Ok(()) };
        let block = Layout::new(Bytes(0), block);
        block.map(|_| ()).map_err(|error| Failure::usage(error).hint("--block-size 1MiB"))
    }

    /// Returns the protection of the data streams.
    pub fn protection(&self) -> Protection {
        if self.clear_data { Protection::Clear } else { Protection::Tls }
    }

    /// Chooses the settings of the streams: as typed, or from the path and the size as far as known. `send_buffer` is
    /// that of the sender, if known.
    pub fn plan_streams(
        &self,
        path: Option<&PathProfile>,
        size: Option<Bytes>,
        send_buffer: Option<Bytes>,
    ) -> StreamPlan {
        let requested = RequestedStreams {
            streams: self.streams,
            block: self.block_size,
            congestion: self.congestion.as_ref().map(|name| name.parse().unwrap_or_default()),
            limits_rate: self.rate.is_some(),
            send_buffer,
        };
        let choice = plan_streams(path, size, &requested);
        // A typed rate also limits few streams and local copies, for which no path is planned.
        let pace = self.rate.map(|rate| BitRate(rate.0 / u64::from(choice.streams.max(1)))).or(choice.pace);
        StreamPlan { pace, ..choice }
    }

    /// Returns the congestion control to request for the sockets.
    pub fn congestion_request(&self, choice: &StreamPlan) -> Option<CongestionRequest> {
        match &self.congestion {
            Some(name) => Some(CongestionRequest::Requested(name.clone())),
            None => choice.congestion.map(|planned| CongestionRequest::Planned(planned.to_string())),
        }
    }
}

/// Returns the maximum bytes in flight of a socket on this host: half of the maximum of `net.ipv4.tcp_wmem`, since the
/// kernel counts its own overhead too. The value of the other end is unknown before the session.
pub fn send_buffer() -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok()?;
    let max_bytes: u64 = text.split_whitespace().nth(2)?.parse().ok()?;
    Some(Bytes(max_bytes / 2))
}
