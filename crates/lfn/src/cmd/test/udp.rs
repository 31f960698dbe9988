//! Flags for UDP and for latency probes.

use lfn_base::units::{BitRate, Ratio};
use lfn_results::latency::LatencyRequest;
use lfn_results::measure::UdpRequest;
use lfn_results::udp::ramp::RampRequest;

use super::load::LoadArgs;
use crate::cmd::values::{duration, read};
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "UDP and latency")]
pub(super) struct UdpArgs {
    /// Use UDP instead of TCP
    ///
    /// --length is then the payload of a datagram [default: the maximum of the path MTU], and --count the number of
    /// datagrams.
    #[arg(short = 'u', long)]
    udp: bool,
    /// Find the rate at which datagrams begin to be lost or queued; implies --udp
    #[arg(long)]
    ramp: bool,
    /// Allow this share of lost datagrams in each step of --ramp, such as 1e-3 [default: 0]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, requires = "ramp")]
    loss_allowed: Option<String>,
    /// Set the duration of one step of --ramp [default: 500ms]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, requires = "ramp")]
    ramp_step_time: Option<String>,
    /// Send each datagram separately (no UDP_SEGMENT)
    #[arg(long)]
    no_gso: bool,
    /// Receive each datagram separately (no UDP_GRO)
    #[arg(long)]
    no_gro: bool,
    /// Allow fragmentation: datagrams larger than the path MTU are sent without DF
    #[arg(long)]
    fragment: bool,
    /// Measure the round-trip time before and during the load, at this interval [default: 20ms]
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "20ms",
        allow_hyphen_values = true
    )]
    latency: Option<String>,
}

impl UdpArgs {
    /// Returns the UDP settings of the request, if the test uses UDP. `pacing` has the rates of the streams.
    pub(super) fn udp(&self, load: &LoadArgs, pacing: &[BitRate]) -> Result<Option<UdpRequest>, Failure> {
        if !self.udp && !self.ramp {
            return self.refuse_without_udp();
        }
        let rate = pacing.first().copied();
        let ramp = if self.ramp {
            load.check_ramp()?;
            Some(self.ramp(rate)?)
        } else {
            None
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

    /// Returns the flag that selects UDP.
    pub(super) fn flag(&self) -> &'static str {
        if self.ramp { "--ramp" } else { "--udp" }
    }

    /// Returns the settings of latency probes, if requested.
    pub(super) fn latency(&self) -> Result<Option<LatencyRequest>, Failure> {
        Ok(duration("latency", &self.latency)?.map(|pace| LatencyRequest { pace }))
    }

    fn ramp(&self, max_rate: Option<BitRate>) -> Result<RampRequest, Failure> {
        let usual = RampRequest::default();
        let allowed: Option<Ratio> = read("loss-allowed", &self.loss_allowed, "--loss-allowed 1e-3")?;
        let to = max_rate.unwrap_or(usual.to);
        Ok(RampRequest {
            from: usual.from.min(to),
            to,
            loss_allowed: allowed.unwrap_or_default(),
            step: duration("ramp-step-time", &self.ramp_step_time)?.unwrap_or(usual.step),
            rates: Vec::new(),
        })
    }

    fn refuse_without_udp(&self) -> Result<Option<UdpRequest>, Failure> {
        let given = [("no-gso", self.no_gso), ("no-gro", self.no_gro), ("fragment", self.fragment)];
        match given.iter().find(|(_, given)| *given) {
            Some((flag, _)) => {
                Err(Failure::usage(format!("--{flag} needs --udp")).hint(format!("add --udp, or remove --{flag}")))
            }
            None => Ok(None),
        }
    }
}
