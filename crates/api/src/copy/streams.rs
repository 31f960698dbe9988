//! Options of the data streams: number, block size, congestion control, rate and encryption. Defaults come from the
//! figures of the path ([`lfn_copy::proto::streams`]).

use std::time::Duration;

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};
use lfn_copy::proto::streams::{RequestedStreams, StreamPlan, plan_streams};
use lfn_session::Protection;
use lfn_session::wire::copy::blocks::Layout;

use super::error::CopyError;
use super::stripes::plan_for_stripes;

/// A lower rate is probably a mistake in the unit.
const MIN_RATE: BitRate = BitRate(8000);

/// Options of the data streams.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// Number of data streams; `None` chooses and changes the number.
    pub streams: Option<u16>,
    /// Block size, a power of two from 1 KiB to 16 MiB.
    pub block_size: Option<Bytes>,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// Maximum send rate of all streams, also used as the capacity of the path.
    pub rate: Option<BitRate>,
    /// Maximum time without progress in which an interrupted copy tries to reconnect.
    pub retry_for: Duration,
    /// Do not encrypt the data streams; they stay authenticated.
    pub clear_data: bool,
    /// Paths between the hosts, each as `LOCAL=REMOTE`, or `auto`. The number of streams counts for each.
    pub stripes: Vec<String>,
    pub transport: Transport,
}

/// Transport of the connections of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Tcp,
    /// Multipath TCP (RFC 8684) if both hosts have it, otherwise TCP.
    Mptcp,
}

impl Default for StreamOptions {
    fn default() -> Self {
        StreamOptions {
            streams: None,
            block_size: None,
            congestion: None,
            rate: None,
            retry_for: Duration::from_secs(600),
            clear_data: false,
            stripes: Vec::new(),
            transport: Transport::default(),
        }
    }
}

impl StreamOptions {
    /// Refuses values that no server accepts.
    pub fn check(&self) -> Result<(), CopyError> {
        if let Some(rate) = self.rate.filter(|rate| *rate < MIN_RATE) {
            return Err(CopyError::RateTooLow { rate, minimum: MIN_RATE });
        }
        if self.transport == Transport::Mptcp && self.rate.is_some() {
            return Err(CopyError::MptcpRate);
        }
        match self.block_size.map(|block| Layout::new(Bytes(0), block)) {
            Some(Err(error)) => Err(CopyError::BlockSize(error.to_string())),
            _ => Ok(()),
        }
    }

    /// Returns the protection of the data streams.
    pub(super) fn protection(&self) -> Protection {
        if self.clear_data { Protection::Clear } else { Protection::Tls }
    }

    /// Chooses the settings of the streams: as requested, or from the path and the size as far as known. `send_buffer`
    /// is that of the sender, if known. Each of the stripes has the streams of one path.
    pub(super) fn plan_streams(
        &self,
        path: Option<&PathProfile>,
        size: Option<Bytes>,
        send_buffer: Option<Bytes>,
        stripes: usize,
    ) -> StreamPlan {
        let requested = RequestedStreams {
            streams: self.streams,
            block: self.block_size,
            congestion: self.congestion.as_ref().map(|name| name.parse().unwrap_or_default()),
            limits_rate: self.rate.is_some(),
            send_buffer,
        };
        let plan = plan_streams(path, size, &requested);
        let choice = plan_for_stripes(plan, stripes, self.streams.is_some());
        // A requested rate also limits few streams and local copies, for which no path is planned.
        let pace = self.rate.map(|rate| BitRate(rate.0 / u64::from(choice.streams.max(1)))).or(choice.pace);
        // Multipath TCP has no pacing rate.
        StreamPlan { pace: pace.filter(|_| self.transport == Transport::Tcp), ..choice }
    }

    /// Returns the congestion control to request for the sockets.
    pub(super) fn congestion_request(&self, choice: &StreamPlan) -> Option<CongestionRequest> {
        match &self.congestion {
            Some(name) => Some(CongestionRequest::Requested(name.clone())),
            None => choice.congestion.map(|planned| CongestionRequest::Planned(planned.to_string())),
        }
    }
}

/// Returns the maximum bytes in flight of a socket on this host: half of the maximum of `net.ipv4.tcp_wmem`, since the
/// kernel counts its own overhead too. The value of the other end is unknown before the session.
pub(super) fn send_buffer() -> Option<Bytes> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok()?;
    let max_bytes: u64 = text.split_whitespace().nth(2)?.parse().ok()?;
    Some(Bytes(max_bytes / 2))
}
