//! Socket buffers and windows of each end.

use lfn_core::units::Bytes;
use lfn_core::wire::CongestionWish;
use lfn_core::wire::test::SocketWish;

use super::typed::read;
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Buffers")]
pub(super) struct BufferArgs {
    /// Send buffer (SO_SNDBUF) of both ends [default: the kernel's autotuning, or the plan where that ends too early]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    sndbuf: Option<String>,
    /// Receive buffer (SO_RCVBUF) of both ends [default: as for --sndbuf]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    rcvbuf: Option<String>,
    /// Receive window to hold exactly, at whichever end receives
    #[arg(short, long, value_name = "BYTES", allow_hyphen_values = true)]
    window: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    near_sndbuf: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    near_rcvbuf: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    near_window: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    far_sndbuf: Option<String>,
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    far_rcvbuf: Option<String>,
    /// These hold for one end alone: near is the client, far the server
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    far_window: Option<String>,
}

impl BufferArgs {
    /// Options of this end.
    pub(super) fn near(&self, congestion: Vec<CongestionWish>) -> Result<SocketWish, Failure> {
        self.socket((&self.near_sndbuf, &self.near_rcvbuf, &self.near_window), "near-", congestion)
    }

    /// Options of the server's end.
    pub(super) fn far(&self, congestion: Vec<CongestionWish>) -> Result<SocketWish, Failure> {
        self.socket((&self.far_sndbuf, &self.far_rcvbuf, &self.far_window), "far-", congestion)
    }

    /// Refuses what datagrams have not.
    pub(super) fn check_datagrams(&self) -> Result<(), Failure> {
        let given = [("window", &self.window), ("near-window", &self.near_window), ("far-window", &self.far_window)];
        match given.iter().find(|(_, given)| given.is_some()) {
            Some((flag, _)) => Err(Failure::usage(format!("--{flag} with --udp: datagrams have no window"))
                .hint("give --rcvbuf, or leave out --udp")),
            None => Ok(()),
        }
    }

    /// Options of one end: its own flags before those for both.
    fn socket(
        &self,
        (sndbuf, rcvbuf, window): (&Option<String>, &Option<String>, &Option<String>),
        end: &str,
        congestion: Vec<CongestionWish>,
    ) -> Result<SocketWish, Failure> {
        let bytes = |flag: &str, own: &Option<String>, both: &Option<String>| match own {
            Some(_) => read::<Bytes>(&format!("{end}{flag}"), own, &format!("--{end}{flag} 16MiB")),
            None => read(flag, both, &format!("--{flag} 16MiB")),
        };
        Ok(SocketWish {
            sndbuf: bytes("sndbuf", sndbuf, &self.sndbuf)?,
            rcvbuf: bytes("rcvbuf", rcvbuf, &self.rcvbuf)?,
            window: bytes("window", window, &self.window)?,
            congestion,
            ..SocketWish::default()
        })
    }
}
