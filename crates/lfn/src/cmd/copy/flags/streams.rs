//! The data streams: how many, how large their blocks, how they are controlled, paced and protected; what is not asked for
//! is chosen from what is known of the path ([`lfn_core::transfer::streams`]).

use std::time::Duration;

use lfn_core::path::PathProfile;
use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::streams::{Asked, Choice, FEW, choose};
use lfn_core::units::{BitRate, Bytes, parse_unit_duration};
use lfn_core::wire::CongestionWish;
use lfn_net::session::Protection;

use crate::exit::Failure;

/// Slower than a modem, and rather a unit that was forgotten.
const LEAST_RATE: BitRate = BitRate(8000);

/// What streams may grow to on a path of which nothing is known; where it is known, what was chosen is enough.
const GROW_TO: u16 = 8 * FEW;

/// What is asked of the streams.
#[derive(clap::Args, Debug)]
pub struct StreamFlags {
    /// Data streams, so many and no others [default: as many as a known path needs, else 4 and more as long as they help]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    streams: Option<u16>,
    /// Size of a block, a power of two from 1KiB to 16MiB [default: 1MiB, less where streams are many and slow]
    #[arg(long, value_name = "BYTES")]
    block: Option<Bytes>,
    /// Congestion control of the sending streams, such as bbr [default: what a known path needs, else the host's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Capacity of the path, or what of it this copy may take: streams are chosen, and the time is predicted, by it and the
    /// round trip, which one connection more finds out; together they send no faster [default: that of the emulated path,
    /// else unknown]
    #[arg(long, value_name = "RATE")]
    pub rate: Option<BitRate>,
    /// If the connection is lost, try to get another one for this long, counted from when anything moved last; 0s: never
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = parse_unit_duration)]
    pub patience: Duration,
    /// Data streams without encryption, authenticated still; for private circuits
    #[arg(long)]
    clear_data: bool,
}

impl StreamFlags {
    /// What no server would grant.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(rate) = self.rate.filter(|rate| *rate < LEAST_RATE) {
            let text = format!("--rate: {rate} is less than {LEAST_RATE}, with which nothing comes to an end");
            return Err(Failure::usage(text).hint("--rate 10gbit"));
        }
        let Some(block) = self.block else { return Ok(()) };
        let block = Layout::new(Bytes(0), block);
        block.map(|_| ()).map_err(|error| Failure::usage(error).hint("--block 1MiB"))
    }

    /// How the data streams are protected.
    pub fn protection(&self) -> Protection {
        if self.clear_data { Protection::Clear } else { Protection::Tls }
    }

    /// How they are set up, as typed or for a path and a size as far as those are known.
    pub fn choose(&self, path: Option<&PathProfile>, size: Option<Bytes>) -> Choice {
        let asked = Asked {
            streams: self.streams,
            block: self.block,
            congestion: self.congestion.as_ref().map(|name| name.parse().unwrap_or_default()),
            send_buffer: send_buffer(),
        };
        let choice = choose(path, size, &asked);
        // What is typed holds for few streams too, and on this host, of whose path nothing is to be planned.
        let pace = self.rate.map(|rate| BitRate(rate.0 / u64::from(choice.streams.max(1)))).or(choice.pace);
        Choice { pace, ..choice }
    }

    /// How many streams there may come to be.
    pub fn most(&self, choice: &Choice, path: Option<&PathProfile>) -> u16 {
        if self.streams.is_some() || self.rate.is_some() || path.is_some() { choice.streams } else { GROW_TO }
    }

    /// What to ask the sockets for.
    pub fn wish(&self, choice: &Choice) -> Option<CongestionWish> {
        match &self.congestion {
            Some(name) => Some(CongestionWish::Asked(name.clone())),
            None => choice.congestion.map(|planned| CongestionWish::Planned(planned.to_string())),
        }
    }
}

/// What a socket of this host lets into flight: half of what autotuning may take (`net.ipv4.tcp_wmem`), since the kernel
/// counts its own overhead too. The far end's is not known before it is asked.
fn send_buffer() -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok()?;
    let most: u64 = text.split_whitespace().nth(2)?.parse().ok()?;
    Some(Bytes(most / 2))
}
