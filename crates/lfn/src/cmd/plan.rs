//! `lfn plan`: parses a path and the options of the plan, calculates and prints. The arithmetic is in `lfn_core`.
//!
//! The values are parsed here and not by clap. So a bad value, a contradiction and a missing value are all reported in
//! the same form: one line with the flag, a hint, exit code 2.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use lfn_core::framing::{Framing, IpVersion, Layer, Tunnel};
use lfn_core::geometry::{self, Coordinates, Medium, Metres, PhysicalConstants, Route, RouteError};
use lfn_core::named_link::{LINKS, NamedLink};
use lfn_core::path::{PathProfile, QueueSize};
use lfn_core::plan::{self, PlanError, PlanOptions};
use lfn_core::units::{BitRate, Bytes, parse_unit_duration};

use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;

/// Calculate BDP, buffers, goodput and transfer time of a path
///
/// Only calculates; sends nothing. Give the capacity (--rate or --link) and the round-trip time (--rtt, or --from, --to
/// and --via).
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// Set the capacity of the bottleneck, such as 135mbit or 2.5Gb/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = "Capacity")]
    rate: Option<String>,
    /// Set the kind of link: oc3c, oc12c, oc48c, oc192c with -atm, -pos or -hippi; ethernet-RATE (ethernet-10g); t1; t3
    ///
    /// Together with --rate, only the framing of the link is used, not its rate.
    #[arg(long, value_name = "LINK", allow_hyphen_values = true, help_heading = "Capacity")]
    link: Option<String>,
    /// Set the IP MTU in bytes [default: 1500, or the usual MTU of the link]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Capacity")]
    mtu: Option<String>,
    /// Use IPv6 instead of IPv4
    #[arg(long, help_heading = "Capacity")]
    ipv6: bool,
    /// Use no TCP timestamps
    #[arg(long, help_heading = "Capacity")]
    no_timestamps: bool,
    /// Add one VLAN tag (802.1Q)
    #[arg(long, help_heading = "Capacity")]
    vlan: bool,
    /// Add two VLAN tags (802.1ad)
    #[arg(long, help_heading = "Capacity")]
    qinq: bool,
    /// Add the overhead of a WireGuard tunnel
    #[arg(long, help_heading = "Capacity")]
    wireguard: bool,
    /// Add the overhead of an IPsec ESP tunnel (AES-GCM)
    #[arg(long, help_heading = "Capacity")]
    ipsec: bool,

    /// Set the round-trip time, such as 539ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Round-trip time")]
    rtt: Option<String>,
    /// Set the location of one end: degrees north, degrees east, altitude if not 0; 40,-105.27 or 40,-105.27,1863m
    #[arg(long, value_name = "LAT,LON[,ALT]", allow_hyphen_values = true, help_heading = "Round-trip time")]
    from: Option<String>,
    /// Set the location of the other end
    #[arg(long, value_name = "LAT,LON[,ALT]", allow_hyphen_values = true, help_heading = "Round-trip time")]
    to: Option<String>,
    /// Set the medium between the ends: fibre, geo:LON (geostationary satellite) or leo:ALTITUDE (satellite over the
    /// midpoint)
    #[arg(long, value_name = "MEDIUM", allow_hyphen_values = true, help_heading = "Round-trip time")]
    via: Option<String>,
    /// Set the group refractive index of the fibre [default: 1.468, ITU-T G.652]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Round-trip time")]
    refractive_index: Option<String>,
    /// Set the length of the fibre relative to the great circle [default: 1]
    #[arg(long, value_name = "FACTOR", allow_hyphen_values = true, help_heading = "Round-trip time")]
    detour: Option<String>,
    /// Use a spherical earth of this radius instead of WGS84, such as 3960mi
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true, help_heading = "Round-trip time")]
    earth_radius: Option<String>,
    /// Set the altitude of the geostationary orbit [default: 35786km]
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true, help_heading = "Round-trip time")]
    geo_altitude: Option<String>,
    /// Set the speed of light, as a length per second [default: 299792458m/s]
    #[arg(long, value_name = "SPEED", allow_hyphen_values = true, help_heading = "Round-trip time")]
    light_speed: Option<String>,

    /// Calculate the time to transfer this much data, such as 100GB
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Transfer")]
    size: Option<String>,
    /// Use N TCP streams in parallel [default: the minimum that the buffers allow]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Transfer")]
    streams: Option<String>,
    /// Set the maximum socket buffer of a host [default: 1GiB]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Transfer")]
    max_buffer: Option<String>,
    /// Set the receive window of each stream [default: the planned window]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Transfer")]
    window: Option<String>,
    /// Set the TCP window scale, 0 to 14, or none [default: the minimum that suffices]
    #[arg(long, value_name = "SCALE", allow_hyphen_values = true, help_heading = "Transfer")]
    window_scale: Option<String>,
    /// Set the random packet loss, as a ratio: 1e-4 or 0.01%
    #[arg(long, value_name = "RATIO", allow_hyphen_values = true, help_heading = "Transfer")]
    loss: Option<String>,
    /// Set the size of the bottleneck's queue: 9MB, 539ms or 1bdp
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, help_heading = "Transfer")]
    queue: Option<String>,
    /// Set the TCP congestion control: reno, cubic or bbr [default: cubic]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, help_heading = "Transfer")]
    congestion: Option<String>,
    /// Set the initial congestion window, in segments [default: 10]
    #[arg(long, value_name = "SEGMENTS", allow_hyphen_values = true, help_heading = "Transfer")]
    initial_window: Option<String>,
    /// Grow by half per round trip in slow start, as with delayed ACKs and without byte counting
    #[arg(long, help_heading = "Transfer")]
    delayed_ack: bool,

    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

const EXAMPLES: &str = "Examples:
  lfn plan --rate 135mbit --rtt 539ms --size 10GB    the ACTS satellite path
  lfn plan --link oc3c-atm --from 40,-105 --to 40,-83 --via geo:-100
  lfn plan --link ethernet-10g --vlan --from 46,6 --to 41,-73 --via fibre
  lfn plan --rate 622mbit --rtt 50ms --window 2MB    goodput with a small window
  lfn plan --rate 1gbit --rtt 90ms --loss 1e-4 --streams 4 --size 100GB
  lfn plan --rate 135mbit --rtt 40ms --window-scale none --json";

const PATH_HINT: &str = "lfn plan --rate 135mbit --rtt 539ms";
const PLACES_HINT: &str = "lfn plan --rate 135mbit --from 40,-105 --to 40,-83 --via geo:-100";

/// Runs `lfn plan`: computes the plan and prints it.
pub fn run(args: PlanArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    let link = args.link()?;
    let capacity = args.capacity(link.as_ref())?;
    let (rtt, route) = args.route_or_rtt()?;
    let path = args.path(PathProfile::new(capacity, rtt), link.as_ref())?;
    let plan = plan::plan(&path, &args.plan_options()?).map_err(plan_error)?;
    let report = print::plan::PlanReport { plan: &plan, link: link.map(|link| link.name), route };
    output.finish(&report.document(), || report.text())?;
    Ok(Exit::Ok)
}

impl PlanArgs {
    fn link(&self) -> Result<Option<NamedLink>, Failure> {
        read("link", &self.link, &format!("use one of {LINKS}"))
    }

    /// Sets MTU, framing, loss and queue of the path.
    fn path(&self, mut path: PathProfile, link: Option<&NamedLink>) -> Result<PathProfile, Failure> {
        path.framing = self.framing(link)?;
        path.loss = read("loss", &self.loss, "--loss 1e-4")?.unwrap_or_default();
        if let Some(link) = link {
            path.mtu = link.mtu;
        }
        if let Some(Bytes(mtu)) = read("mtu", &self.mtu, "--mtu 9000")? {
            path.mtu = u32::try_from(mtu).ok().filter(|mtu| *mtu <= 65_535).ok_or_else(|| {
                Failure::usage(format!("--mtu: {mtu} bytes is too large; the maximum of an IP packet is 65,535"))
                    .hint("--mtu 9000")
            })?;
        }
        path.queue = read::<QueueSize>("queue", &self.queue, "--queue 1bdp")?.map(|queue| queue.bytes_on(&path));
        Ok(path)
    }

    fn capacity(&self, link: Option<&NamedLink>) -> Result<BitRate, Failure> {
        let rate: Option<BitRate> = read("rate", &self.rate, PATH_HINT)?;
        match (rate, link) {
            (None, None) => Err(usage_error("the capacity is missing: give --rate or --link", PATH_HINT)),
            (Some(rate), None) => Ok(rate),
            (rate, Some(NamedLink { capacity: None, name, .. })) => rate.ok_or_else(|| {
                usage_error(
                    format!("--link {name} has no fixed rate: give --rate too"),
                    "for example, use --link ethernet-10g",
                )
            }),
            (None, Some(NamedLink { capacity: Some(capacity), .. })) => Ok(*capacity),
            (Some(rate), Some(NamedLink { capacity: Some(capacity), name, .. })) if rate > *capacity => {
                Err(usage_error(
                    format!("--rate {rate} exceeds the capacity of {name}, {capacity}"),
                    "give only --rate or only --link",
                ))
            }
            (Some(rate), Some(_)) => Ok(rate),
        }
    }

    fn framing(&self, link: Option<&NamedLink>) -> Result<Framing, Failure> {
        let layer = link.map_or(Layer::default(), |link| link.layer);
        if (self.vlan || self.qinq) && !layer.is_ethernet() {
            let text = format!("a VLAN tag needs Ethernet, but this capacity counts {}", layer.describe());
            return Err(usage_error(text, "remove --vlan and --qinq, or use --link ethernet-10g"));
        }
        if self.vlan && self.qinq {
            return Err(usage_error("--vlan and --qinq cannot be combined", "use only one of the two"));
        }
        if self.wireguard && self.ipsec {
            return Err(usage_error("--wireguard and --ipsec cannot be combined", "use only one of the two"));
        }
        Ok(Framing {
            layer,
            ip: if self.ipv6 { IpVersion::V6 } else { IpVersion::V4 },
            without_timestamps: self.no_timestamps,
            vlan_tags: u8::from(self.vlan) + 2 * u8::from(self.qinq),
            tunnel: match (self.wireguard, self.ipsec) {
                (true, _) => Some(Tunnel::Wireguard),
                (_, true) => Some(Tunnel::IpsecEsp),
                _ => None,
            },
        })
    }

    /// Returns the RTT from --rtt, or from the route between two locations.
    fn route_or_rtt(&self) -> Result<(Duration, Option<(Medium, Route)>), Failure> {
        let places = [("from", &self.from), ("to", &self.to), ("via", &self.via)];
        let given = places.iter().find(|(_, text)| text.is_some());
        if let Some(rtt) = &self.rtt {
            if let Some((flag, _)) = given {
                let text = format!("--rtt and --{flag} cannot be combined");
                return Err(usage_error(text, "remove one of the two"));
            }
            self.refuse_geometry("--rtt")?;
            return Ok((parse_unit_duration(rtt).map_err(|e| value_error("rtt", e, PATH_HINT))?, None));
        }
        if given.is_none() {
            let text = "the round-trip time is missing: give --rtt, or --from, --to and --via";
            return Err(usage_error(text, PATH_HINT));
        }
        let from: Coordinates = required("from", &self.from)?;
        let to: Coordinates = required("to", &self.to)?;
        let via: Medium = required("via", &self.via)?;
        let route = geometry::find_route(from, to, via, &self.constants(via)?).map_err(route_error)?;
        Ok((route.rtt, Some((via, route))))
    }

    /// Returns the physical constants. Refuses constants that do not apply to the medium.
    fn constants(&self, via: Medium) -> Result<PhysicalConstants, Failure> {
        if via != Medium::Fibre && (self.refractive_index.is_some() || self.detour.is_some()) {
            return Err(usage_error(format!("--refractive-index and --detour need fibre, not {via}"), "--via fibre"));
        }
        if !matches!(via, Medium::Geo { .. }) && self.geo_altitude.is_some() {
            let text = format!("--geo-altitude needs a geostationary satellite, not {via}");
            return Err(usage_error(text, "--via geo:-100"));
        }
        let mut constants = PhysicalConstants::default();
        if let Some(radius) = parse_in_range("earth-radius", &self.earth_radius, 1e6, 1e8, "1,000 km to 100,000 km")? {
            (constants.earth_radius, constants.flattening) = (radius, 0.0);
        }
        if let Some(altitude) = parse_in_range("geo-altitude", &self.geo_altitude, 1e5, 1e9, "100 km to 1,000,000 km")?
        {
            constants.geo_altitude = altitude;
        }
        let speed = self.light_speed.as_ref().map(|text| text.strip_suffix("/s").unwrap_or(text).to_owned());
        if let Some(light) = parse_in_range("light-speed", &speed, 1e8, 4e8, "100,000 km/s to 400,000 km/s")? {
            constants.speed_of_light = light;
        }
        if let Some(index) = parse_in_range("refractive-index", &self.refractive_index, 1.0, 4.0, "1 to 4")? {
            constants.refractive_index = index.0;
        }
        if let Some(detour) = parse_in_range("detour", &self.detour, 1.0, 100.0, "1 to 100")? {
            constants.detour = detour.0;
        }
        Ok(constants)
    }

    /// Refuses constants that only apply to locations.
    fn refuse_geometry(&self, other: &str) -> Result<(), Failure> {
        let flags = [
            ("refractive-index", &self.refractive_index),
            ("detour", &self.detour),
            ("earth-radius", &self.earth_radius),
            ("geo-altitude", &self.geo_altitude),
            ("light-speed", &self.light_speed),
        ];
        match flags.iter().find(|(_, text)| text.is_some()) {
            Some((flag, _)) => Err(usage_error(
                format!("--{flag} cannot be combined with {other}: it needs --from, --to and --via"),
                PLACES_HINT,
            )),
            None => Ok(()),
        }
    }

    fn plan_options(&self) -> Result<PlanOptions, Failure> {
        let fallback = PlanOptions::default();
        Ok(PlanOptions {
            size: read("size", &self.size, "--size 100GB")?,
            streams: parse_integer("streams", &self.streams, plan::MAX_STREAMS)?,
            max_buffer: read("max-buffer", &self.max_buffer, "--max-buffer 64MiB")?.unwrap_or(fallback.max_buffer),
            window: read("window", &self.window, "--window 4547813")?,
            window_scale: match self.window_scale.as_deref() {
                Some("none") => Some(0),
                _ => parse_integer("window-scale", &self.window_scale, 14)?.map(|scale| scale as u8),
            },
            congestion: read("congestion", &self.congestion, "--congestion cubic")?.unwrap_or_default(),
            initial_window: parse_integer("initial-window", &self.initial_window, 65_535)?
                .unwrap_or(fallback.initial_window),
            delayed_ack: self.delayed_ack,
        })
    }
}

fn read<T: FromStr<Err: Display>>(flag: &str, text: &Option<String>, hint: &str) -> Result<Option<T>, Failure> {
    text.as_deref().map(str::parse).transpose().map_err(|error| value_error(flag, error, hint))
}

fn required<T: FromStr<Err: Display>>(flag: &str, text: &Option<String>) -> Result<T, Failure> {
    let value = read(flag, text, PLACES_HINT)?;
    value.ok_or_else(|| usage_error(format!("--{flag} is missing: give all of --from, --to and --via"), PLACES_HINT))
}

/// Parses an integer from 0 to `max`. The plan decides whether 0 is valid.
fn parse_integer(flag: &str, text: &Option<String>, max: u32) -> Result<Option<u32>, Failure> {
    let Some(text) = text else { return Ok(None) };
    match text.trim().parse() {
        Ok(number) if number <= max => Ok(Some(number)),
        _ => Err(value_error(flag, format!("'{text}' is not an integer from 0 to {max}"), &format!("--{flag} 4"))),
    }
}

/// Parses a length, or a number without unit, and checks its range.
fn parse_in_range(
    flag: &str,
    text: &Option<String>,
    min: f64,
    max: f64,
    range: &str,
) -> Result<Option<Metres>, Failure> {
    let hint = format!("give --{flag} in the range {range}");
    match read(flag, text, &hint)? {
        Some(Metres(value)) if !(min..=max).contains(&value) => {
            Err(value_error(flag, format!("'{}' is outside {range}", text.as_deref().unwrap_or_default()), &hint))
        }
        value => Ok(value),
    }
}

fn value_error(flag: &str, error: impl Display, hint: &str) -> Failure {
    Failure::usage(format!("--{flag}: {error}")).hint(hint)
}

/// Returns an error about missing or contradictory values.
fn usage_error(text: impl Display, hint: &str) -> Failure {
    Failure::usage(text).hint(hint)
}

fn route_error(error: RouteError) -> Failure {
    let hint = match error {
        RouteError::BelowHorizon { .. } => "choose a satellite that both ends can see, a higher orbit, or --via fibre",
        RouteError::SamePlace { .. } => "give two different locations, or the RTT: --rtt 100us",
    };
    Failure::usage(error).hint(hint)
}

/// Describes a path or options for which no plan exists.
fn plan_error(error: PlanError) -> Failure {
    let hint = match &error {
        PlanError::NoCapacity | PlanError::NoRtt => PATH_HINT.to_owned(),
        PlanError::HeadersFillMtu { .. } => "--mtu 1500".to_owned(),
        PlanError::TotalLoss => "--loss 1e-4".to_owned(),
        PlanError::Zero { .. } => "give at least 1, or remove the flag".to_owned(),
        PlanError::WindowUnreachable { streams, .. } => {
            format!("remove --window and use more streams: --streams {streams}")
        }
        PlanError::WindowBeyondBuffer { .. } => "raise --max-buffer or lower --window".to_owned(),
        PlanError::WindowScaleTooLarge { .. } => "--window-scale 8".to_owned(),
        PlanError::TooManyStreams { .. } => "lower --rate or --rtt, or raise --max-buffer".to_owned(),
        PlanError::DurationTooLong { .. } => "lower --size or --loss, or raise --rate".to_owned(),
    };
    Failure::usage(error).hint(hint)
}
