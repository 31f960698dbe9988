//! Flags for socket buffers and receive windows.

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::units::Bytes;
use lfn_results::measure::SocketRequest;

use crate::cmd::values::read;
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Buffers")]
pub(super) struct BufferArgs {
    /// Set the send buffer (SO_SNDBUF) of both ends [default: kernel autotuning]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    sndbuf: Option<String>,
    /// Set the receive buffer (SO_RCVBUF) of both ends [default: as for --sndbuf]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    rcvbuf: Option<String>,
    /// Fix the receive window of the receiving end at this size
    #[arg(short, long, value_name = "BYTES", allow_hyphen_values = true)]
    window: Option<String>,
    /// Set the send buffer of the client only
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    near_sndbuf: Option<String>,
    /// Set the receive buffer of the client only
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    near_rcvbuf: Option<String>,
    /// Fix the receive window of the client only
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    near_window: Option<String>,
    /// Set the send buffer of the server only
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    far_sndbuf: Option<String>,
    /// Set the receive buffer of the server only
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    far_rcvbuf: Option<String>,
    /// Fix the receive window of the server only
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    far_window: Option<String>,
}

/// Flags of one end: their prefix and their values.
struct OwnBuffers<'a> {
    prefix: &'a str,
    sndbuf: &'a Option<String>,
    rcvbuf: &'a Option<String>,
    window: &'a Option<String>,
}

impl BufferArgs {
    /// Returns the socket options of the client.
    pub(super) fn near(&self, congestion: Vec<CongestionRequest>) -> Result<SocketRequest, Failure> {
        let own = OwnBuffers {
            prefix: "near-",
            sndbuf: &self.near_sndbuf,
            rcvbuf: &self.near_rcvbuf,
            window: &self.near_window,
        };
        self.socket(&own, congestion)
    }

    /// Returns the socket options of the server.
    pub(super) fn far(&self, congestion: Vec<CongestionRequest>) -> Result<SocketRequest, Failure> {
        let own =
            OwnBuffers { prefix: "far-", sndbuf: &self.far_sndbuf, rcvbuf: &self.far_rcvbuf, window: &self.far_window };
        self.socket(&own, congestion)
    }

    /// Returns the flag that fixes a window.
    pub(super) fn window_flag(&self) -> &'static str {
        let given = [("window", &self.window), ("near-window", &self.near_window), ("far-window", &self.far_window)];
        given.into_iter().find(|(_, given)| given.is_some()).map_or("window", |(flag, _)| flag)
    }

    /// Returns the socket options of one end. Flags for one end override those for both.
    fn socket(&self, own: &OwnBuffers<'_>, congestion: Vec<CongestionRequest>) -> Result<SocketRequest, Failure> {
        let OwnBuffers { prefix, sndbuf, rcvbuf, window } = *own;
        let bytes = |flag: &str, own: &Option<String>, both: &Option<String>| match own {
            Some(_) => read::<Bytes>(&format!("{prefix}{flag}"), own, &format!("--{prefix}{flag} 16MiB")),
            None => read(flag, both, &format!("--{flag} 16MiB")),
        };
        Ok(SocketRequest {
            sndbuf: bytes("sndbuf", sndbuf, &self.sndbuf)?,
            rcvbuf: bytes("rcvbuf", rcvbuf, &self.rcvbuf)?,
            window: bytes("window", window, &self.window)?,
            congestion,
            ..SocketRequest::default()
        })
    }
}
