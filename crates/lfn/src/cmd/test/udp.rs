//! Datagrams instead of TCP, and probes beside either.

use lfn_core::latency::LatencyRequest;
use lfn_core::udp::ramp::RampRequest;
use lfn_core::units::{BitRate, Ratio};
use lfn_core::wire::test::UdpRequest;

use super::load::LoadArgs;
use super::typed::{duration, read};
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "UDP and latency")]
pub(super) struct UdpArgs {
    /// Datagrams at a paced rate instead of TCP; --record is then their payload [default: what fits the path MTU], --count
    /// their number
    #[arg(short = 'u', long)]
    udp: bool,
    /// Find the rate where datagrams begin to be lost, or to queue; implies --udp
    #[arg(long)]
    ramp: bool,
    /// Share of datagrams that may be lost in a step of --ramp that passes, such as 1e-3 [default: 0]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, requires = "ramp")]
    loss_allowed: Option<String>,
    /// How long a step of --ramp sends [default: 500ms]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, requires = "ramp")]
    ramp_step: Option<String>,
    /// Hand each datagram to the device by itself (no UDP_SEGMENT)
    #[arg(long)]
    no_gso: bool,
    /// Take each datagram from the device by itself (no UDP_GRO)
    #[arg(long)]
    no_gro: bool,
    /// Leave DF clear: datagrams longer than the path MTU are fragmented
    #[arg(long)]
    fragment: bool,
    /// Probe the round-trip time before the load and beside it, so often [default: 20ms]
    #[arg(
        long,
        value_name = "PACE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "20ms",
        allow_hyphen_values = true
    )]
    latency: Option<String>,
}

impl UdpArgs {
    /// What is asked of a test of datagrams, if it is one; `pacing` is what was asked of each stream.
    pub(super) fn udp(&self, load: &LoadArgs, pacing: &[BitRate]) -> Result<Option<UdpRequest>, Failure> {
        if !self.udp && !self.ramp {
            return self.only_with_udp();
        }
        if pacing.len() > 1 {
            return Err(Failure::usage("--pacing with several rates: streams of datagrams have one for all")
                .hint(format!("give one rate, or leave out {}", self.flag())));
        }
        let rate = pacing.first().copied();
        if !load.congestion.is_empty() {
            let text = format!("--congestion with {}: datagrams have none", self.flag());
            return Err(Failure::usage(text).hint("leave out one of them"));
        }
        let ramp = match self.ramp {
            true => {
                load.check_ramp()?;
                Some(self.ramp(rate)?)
            }
            false => None,
        };
        Ok(Some(UdpRequest {
            rate: rate.unwrap_or(UdpRequest::default().rate),
            datagram_bytes: load.datagram()?,
            no_gso: self.no_gso,
            no_gro: self.no_gro,
            fragment: self.fragment,
            ramp,
        }))
    }

    /// The flag that made it a test of datagrams.
    pub(super) fn flag(&self) -> &'static str {
        if self.ramp { "--ramp" } else { "--udp" }
    }

    /// Probes, if they are asked for.
    pub(super) fn latency(&self) -> Result<Option<LatencyRequest>, Failure> {
        Ok(duration("latency", &self.latency)?.map(|pace| LatencyRequest { pace }))
    }

    fn ramp(&self, most: Option<BitRate>) -> Result<RampRequest, Failure> {
        let usual = RampRequest::default();
        let allowed: Option<Ratio> = read("loss-allowed", &self.loss_allowed, "--loss-allowed 1e-3")?;
        let to = most.unwrap_or(usual.to);
        Ok(RampRequest {
            from: usual.from.min(to),
            to,
            loss_allowed: allowed.unwrap_or_default(),
            step: duration("ramp-step", &self.ramp_step)?.unwrap_or(usual.step),
        })
    }

    fn only_with_udp(&self) -> Result<Option<UdpRequest>, Failure> {
        let given = [("no-gso", self.no_gso), ("no-gro", self.no_gro), ("fragment", self.fragment)];
        match given.iter().find(|(_, given)| *given) {
            Some((flag, _)) => {
                Err(Failure::usage(format!("--{flag} without --udp")).hint(format!("add --udp, or leave out --{flag}")))
            }
            None => Ok(None),
        }
    }
}
