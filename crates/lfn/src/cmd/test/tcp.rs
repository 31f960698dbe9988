//! How the streams' connections are made, and how payload is moved through them.

use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::test::{Dscp, Mode, Modes, SocketWish};
use lfn_net::session::dial::{Place, Target};

use super::typed::{read, unreadable};
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Connections")]
pub(super) struct TcpArgs {
    /// The most each stream may send: of TCP (SO_MAX_PACING_RATE; of several rates stream n has the nth) or of datagrams
    /// [default: TCP's own; 1mbit with --udp; 100gbit, the highest rate tried, with --ramp]
    #[arg(short = 'b', long, value_name = "RATE,…", value_delimiter = ',', allow_hyphen_values = true)]
    pacing: Vec<String>,
    /// Largest segment, in both directions (TCP_MAXSEG); time stamps take 12 bytes of it
    #[arg(short = 'M', long, value_name = "BYTES", allow_hyphen_values = true)]
    mss: Option<String>,
    /// Mark of the packets of both ends: 0 to 63, CS0 to CS7, AF11 to AF43, EF, VA or LE
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    dscp: Option<String>,
    /// Where this end dials from: ADDRESS, INTERFACE or ADDRESS%INTERFACE; of several stream n has the nth
    #[arg(short = 'B', long, value_name = "PLACE,…", value_delimiter = ',', allow_hyphen_values = true)]
    bind: Vec<String>,
    /// Multipath TCP; where it falls back to plain TCP, that is told
    #[arg(long)]
    mptcp: bool,
    /// Neither end copies payload: the sender hands over pages (sendfile), the receiver drops bytes unread (MSG_TRUNC).
    /// Figures of such a test are not comparable with those of one that copies
    #[arg(long)]
    no_copy: bool,
    /// The same at this end alone
    #[arg(long)]
    near_no_copy: bool,
    /// The same at the server's end alone
    #[arg(long)]
    far_no_copy: bool,
}

impl TcpArgs {
    /// How each end moves payload.
    pub(super) fn modes(&self) -> Modes {
        let mode = |uncopied| if uncopied { Mode::NoCopy } else { Mode::Copying };
        Modes { near: mode(self.no_copy || self.near_no_copy), far: mode(self.no_copy || self.far_no_copy) }
    }

    /// The rates of the streams, dealt in turn.
    pub(super) fn pacing(&self) -> Result<Vec<BitRate>, Failure> {
        let rates = self.pacing.iter();
        rates.map(|rate| rate.parse().map_err(|error| unreadable("pacing", error, "--pacing 500mbit"))).collect()
    }

    /// Adds the options that belong to sockets to what is asked of each end.
    pub(super) fn add_to(&self, near: &mut SocketWish, far: &mut SocketWish) -> Result<(), Failure> {
        let pacing = self.pacing()?;
        let dscp: Option<Dscp> = read("dscp", &self.dscp, "--dscp EF")?;
        for wish in [&mut *near, &mut *far] {
            wish.pacing = pacing.clone();
            wish.dscp = dscp;
            wish.mptcp = self.mptcp;
        }
        // What the client announces bounds the server's segments, and Linux sends no larger ones than it takes.
        near.mss = read::<Bytes>("mss", &self.mss, "--mss 1400")?;
        Ok(())
    }

    /// Refuses what datagrams have not.
    pub(super) fn check_datagrams(&self) -> Result<(), Failure> {
        let uncopied = self.no_copy || self.near_no_copy || self.far_no_copy;
        let given = [("mptcp", self.mptcp), ("mss", self.mss.is_some()), ("no-copy", uncopied)];
        if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!("--{flag} is of TCP streams")).hint("leave out --udp"));
        }
        if self.bind.len() > 1 {
            return Err(Failure::usage(
                "--bind with several places: all datagrams leave from where the control connection does",
            )
            .hint("give one place, or leave out --udp"));
        }
        Ok(())
    }

    /// Whether it was said by which interface to dial.
    pub(super) fn is_by_interface(&self) -> bool {
        self.bind.iter().filter_map(|text| Place::parse(text)).any(|place| place.interface.is_some())
    }

    /// Dials from where, and as what, it was asked.
    pub(super) fn dialled(&self, target: Target) -> Result<Target, Failure> {
        Ok(target.from(self.places()?).multipath(self.mptcp))
    }

    /// Where to dial from.
    pub(super) fn places(&self) -> Result<Vec<Place>, Failure> {
        let places = self.bind.iter().map(|text| {
            let unknown = || format!("'{text}' is no address and cannot be the name of an interface");
            Place::parse(text).ok_or_else(|| unreadable("bind", unknown(), "--bind 192.0.2.1 or --bind eth1"))
        });
        places.collect()
    }
}
