//! Flags for the connections of the streams, and for the copying of the payload.

use lfn_base::units::{BitRate, Bytes};
use lfn_results::measure::{Dscp, Mode, Modes, SocketRequest};
use lfn_session::dial::BindAddress;

use crate::cmd::values::{read, value_error};
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Connections")]
pub(super) struct TcpArgs {
    /// Limit the rate of each stream [default: no limit; 1mbit with --udp; 100gbit with --ramp]
    ///
    /// The kernel paces TCP streams (SO_MAX_PACING_RATE). With a list, TCP stream n uses the nth rate. With --ramp,
    /// this is the highest rate that is tried.
    #[arg(short = 'b', long, value_name = "RATE,…", value_delimiter = ',', allow_hyphen_values = true)]
    pacing: Vec<String>,
    /// Set the TCP maximum segment size in both directions (TCP_MAXSEG); timestamps use 12 bytes of it
    #[arg(short = 'M', long, value_name = "BYTES", allow_hyphen_values = true)]
    mss: Option<String>,
    /// Set the DSCP of both ends: 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA or LE
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    dscp: Option<String>,
    /// Bind this end to ADDRESS, INTERFACE or ADDRESS%INTERFACE; with a list, stream n uses the nth
    #[arg(short = 'B', long, value_name = "ADDRESS,…", value_delimiter = ',', allow_hyphen_values = true)]
    bind: Vec<String>,
    /// Use Multipath TCP; a fallback to plain TCP is reported
    #[arg(long)]
    mptcp: bool,
    /// Do not copy the payload at either end (sendfile at the sender, MSG_TRUNC at the receiver)
    ///
    /// Results are not comparable with those of a test that copies.
    #[arg(long)]
    no_copy: bool,
    /// Do not copy the payload at the client (see --no-copy)
    #[arg(long)]
    near_no_copy: bool,
    /// Do not copy the payload at the server (see --no-copy)
    #[arg(long)]
    far_no_copy: bool,
}

impl TcpArgs {
    /// Returns the mode of both ends: copying or not.
    pub(super) fn modes(&self) -> Modes {
        let mode = |no_copy| if no_copy { Mode::NoCopy } else { Mode::Copying };
        Modes { near: mode(self.no_copy || self.near_no_copy), far: mode(self.no_copy || self.far_no_copy) }
    }

    /// Returns the rates of the streams, assigned in turn.
    pub(super) fn pacing(&self) -> Result<Vec<BitRate>, Failure> {
        let rates = self.pacing.iter();
        rates.map(|rate| rate.parse().map_err(|error| value_error("pacing", error, "--pacing 500mbit"))).collect()
    }

    /// Adds the socket options to the requests of both ends.
    pub(super) fn add_to(&self, near: &mut SocketRequest, far: &mut SocketRequest) -> Result<(), Failure> {
        let pacing = self.pacing()?;
        let dscp: Option<Dscp> = read("dscp", &self.dscp, "--dscp EF")?;
        for wish in [&mut *near, &mut *far] {
            wish.pacing = pacing.clone();
            wish.dscp = dscp;
            wish.mptcp = self.mptcp;
        }
        // The MSS announced by the client limits the server's segments, and Linux sends no larger segments than it
        // accepts.
        near.mss = read::<Bytes>("mss", &self.mss, "--mss 1400")?;
        Ok(())
    }

    /// Returns the addresses to bind to.
    pub(super) fn bind_addresses(&self) -> Result<Vec<BindAddress>, Failure> {
        let bind_addresses = self.bind.iter().map(|text| {
            let unknown = || format!("'{text}' is not an address and not a valid name of an interface");
            BindAddress::parse(text).ok_or_else(|| value_error("bind", unknown(), "--bind 192.0.2.1 or --bind eth1"))
        });
        bind_addresses.collect()
    }
}
