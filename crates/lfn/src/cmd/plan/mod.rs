//! `lfn plan`: parses a path and the options of the plan, calls [`lfn_api::plan()`] and prints.
//!
//! The values are parsed here and not by clap. So a bad value, a contradiction and a missing value are all reported in
//! the same form: one line with the flag, a hint, exit code 2. The hint is the typed command with the value corrected.

mod sysctl_file;

use std::any::Any;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use lfn_api::plan::{PlanHost, PlanRequest, PlanRequestError, RoundTrip};
use lfn_base::framing::{IpVersion, Tunnel};
use lfn_base::geometry::{Medium, Metres, PhysicalConstants, RouteError};
use lfn_base::named_link::{LINKS, NamedLink};
use lfn_base::path::PathProfile;
use lfn_base::place::{Place, PlaceError};
use lfn_base::plan::{self, PlanError};
use lfn_base::units::{Bytes, QuantityError, parse_unit_bytes, parse_unit_duration};

use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::typed::corrected;

/// Calculate BDP, buffers, goodput and transfer time of a path
///
/// Sends nothing and changes nothing. Give the capacity (--rate or --link) and the round-trip time (--rtt, or --from,
/// --to and --via). The plan prints the settings that are too small on this host.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PlanArgs {
    /// Set the capacity of the bottleneck, such as 135mbit or 2.5Gb/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = "Capacity")]
    rate: Option<String>,
    /// Set the kind of link: ethernet-RATE (ethernet-100g), docsis-3.1, gpon, xgs-pon, 5g, starlink, oc3c-atm, t3
    ///
    /// Older links: oc3c, oc12c, oc48c, oc192c with -atm, -pos or -hippi; t1; t3.
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
    /// Set the location of one end: a city, an IATA code, or degrees north and east: Geneva, GVA, 46.2,6.1
    ///
    /// Add the altitude if it matters: 40,-105.27,1863m. Add a country to a city: Birmingham,US.
    #[arg(long, value_name = "PLACE", allow_hyphen_values = true, help_heading = "Round-trip time")]
    from: Option<String>,
    /// Set the location of the other end
    #[arg(long, value_name = "PLACE", allow_hyphen_values = true, help_heading = "Round-trip time")]
    to: Option<String>,
    /// Set the medium between the ends: fibre, geo:LON (geostationary satellite) or leo:ALTITUDE (satellite over the
    /// midpoint)
    #[arg(long, value_name = "MEDIUM", allow_hyphen_values = true, help_heading = "Round-trip time")]
    via: Option<String>,
    /// Set the group refractive index of the fibre [default: 1.468, ITU-T G.652]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Round-trip time")]
    refractive_index: Option<String>,
    /// Set the length of the fibre relative to the great circle [default: 1, the minimum; real routes have 1.2 to 2]
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

    /// Calculate the time and the disk rate to transfer this much data, such as 100GB
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Transfer")]
    size: Option<String>,
    /// Use N TCP streams in parallel [default: the minimum that the buffers allow]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Transfer")]
    streams: Option<String>,
    /// Set the maximum memory of a socket buffer; half of the memory holds payload [default: 2GiB]
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
    /// Set the TCP congestion control: reno, cubic or bbr [default: the recommended one]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, help_heading = "Transfer")]
    congestion: Option<String>,
    /// Set the initial congestion window, in segments [default: 10]
    #[arg(long, value_name = "SEGMENTS", allow_hyphen_values = true, help_heading = "Transfer")]
    initial_window: Option<String>,
    /// Grow by half per round trip in slow start, as with delayed ACKs and without byte counting
    #[arg(long, help_heading = "Transfer")]
    delayed_ack: bool,

    /// Print the settings that are too small on this host (the default)
    #[arg(long, conflicts_with_all = ["for_other_host", "sysctl"], help_heading = "Settings")]
    this_host: bool,
    /// Print all settings, for a host whose settings are not known
    #[arg(long, conflicts_with = "sysctl", help_heading = "Settings")]
    for_other_host: bool,
    /// Print the settings that are too small on the host whose output of `sysctl -a` is in FILE (- for standard input)
    ///
    /// For example: ssh far sysctl -a | lfn plan --rate 10gbit --rtt 150ms --sysctl -
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    sysctl: Option<String>,

    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

const EXAMPLES: &str = "Examples:
  lfn plan --rate 135mbit --rtt 539ms --size 10GB    the ACTS satellite path
  lfn plan --link oc3c-atm --from 40,-105 --to 40,-83 --via geo:-100
  lfn plan --link ethernet-100g --from GVA --to Chicago --via fibre --detour 1.5
  lfn plan --rate 10gbit --rtt 150ms --size 2TB --for-other-host
  lfn plan --rate 622mbit --rtt 50ms --window 2MB    goodput with a small window
  lfn plan --rate 1gbit --rtt 90ms --loss 1e-4 --streams 4 --size 100GB
  lfn plan --rate 135mbit --rtt 40ms --window-scale none --json";

/// Runs `lfn plan`: computes the plan and prints it.
pub fn run(args: PlanArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    let report = lfn_api::plan(&args.request()?).map_err(plan_error)?;
    args.warn_of_loss(&report.plan.path);
    output.finish(&report.document(), || print::plan::print(&report))?;
    Ok(Exit::Ok)
}

impl PlanArgs {
    fn link(&self) -> Result<Option<NamedLink>, Failure> {
        let Some(text) = &self.link else { return Ok(None) };
        let known =
            text.parse().map_err(|error| usage_error(format!("--link: {error}"), format!("use one of {LINKS}")));
        known.map(Some)
    }

    fn request(&self) -> Result<PlanRequest, Failure> {
        let (link, rate) = (self.link()?, read("rate", &self.rate, "100mbit")?);
        let request = PlanRequest { link, rate, ..PlanRequest::new(RoundTrip::Time(Duration::ZERO)) };
        // A missing capacity is reported before a missing round-trip time.
        request.capacity().map_err(plan_error)?;
        Ok(PlanRequest {
            round_trip: self.round_trip()?,
            ip: if self.ipv6 { IpVersion::V6 } else { IpVersion::V4 },
            without_timestamps: self.no_timestamps,
            vlan_tags: self.vlan_tags()?,
            tunnel: self.tunnel()?,
            loss: read("loss", &self.loss, "1e-4")?.unwrap_or_default(),
            mtu: read("mtu", &self.mtu, "9000")?.map(|Bytes(mtu)| mtu),
            queue: read("queue", &self.queue, "1bdp")?,
            size: match &self.size {
                Some(text) => Some(parse_unit_bytes(text).map_err(|error| value_error("size", error, "100GB"))?),
                None => None,
            },
            streams: parse_integer("streams", &self.streams, plan::MAX_STREAMS)?,
            max_buffer: read("max-buffer", &self.max_buffer, "64MiB")?,
            window: read("window", &self.window, "4MiB")?,
            window_scale: match self.window_scale.as_deref() {
                Some("none") => Some(0),
                _ => parse_integer("window-scale", &self.window_scale, 14)?.map(|scale| scale as u8),
            },
            congestion: read("congestion", &self.congestion, "cubic")?,
            initial_window: parse_integer("initial-window", &self.initial_window, 65_535)?,
            delayed_ack: self.delayed_ack,
            host: self.host()?,
            ..request
        })
    }

    fn vlan_tags(&self) -> Result<u8, Failure> {
        if self.vlan && self.qinq {
            return Err(usage_error("--vlan and --qinq cannot be combined", "use only one of the two"));
        }
        Ok(u8::from(self.vlan) + 2 * u8::from(self.qinq))
    }

    fn tunnel(&self) -> Result<Option<Tunnel>, Failure> {
        match (self.wireguard, self.ipsec) {
            (true, true) => Err(usage_error("--wireguard and --ipsec cannot be combined", "use only one of the two")),
            (true, false) => Ok(Some(Tunnel::Wireguard)),
            (false, true) => Ok(Some(Tunnel::IpsecEsp)),
            (false, false) => Ok(None),
        }
    }

    /// Returns the RTT from --rtt, or the route between two locations.
    fn round_trip(&self) -> Result<RoundTrip, Failure> {
        let places = [("from", &self.from), ("to", &self.to), ("via", &self.via)];
        let given = places.iter().find(|(_, text)| text.is_some());
        if let Some(rtt) = &self.rtt {
            if let Some((flag, _)) = given {
                let text = format!("--rtt and --{flag} cannot be combined");
                return Err(usage_error(text, "remove one of the two"));
            }
            self.refuse_geometry("--rtt")?;
            return parse_unit_duration(rtt).map(RoundTrip::Time).map_err(|e| value_error("rtt", e, "70ms"));
        }
        if given.is_none() {
            let text = "the round-trip time is missing: give --rtt, or --from, --to and --via";
            return Err(usage_error(text, corrected("rtt", "70ms")));
        }
        let from = required("from", &self.from, "Geneva", read_place)?;
        let to = required("to", &self.to, "Chicago", read_place)?;
        let via = required("via", &self.via, "fibre", |flag, text| {
            text.parse::<Medium>().map_err(|error| value_error(flag, error, "fibre"))
        })?;
        Ok(RoundTrip::Route { from, to, via, constants: self.constants(via)? })
    }

    /// Returns the physical constants. Refuses constants that do not apply to the medium.
    fn constants(&self, via: Medium) -> Result<PhysicalConstants, Failure> {
        if via != Medium::Fibre && (self.refractive_index.is_some() || self.detour.is_some()) {
            return Err(usage_error(
                format!("--refractive-index and --detour need fibre, not {via}"),
                corrected("via", "fibre"),
            ));
        }
        if !matches!(via, Medium::Geo { .. }) && self.geo_altitude.is_some() {
            let text = format!("--geo-altitude needs a geostationary satellite, not {via}");
            return Err(usage_error(text, corrected("via", "geo:-100")));
        }
        let mut constants = PhysicalConstants::default();
        if let Some(radius) =
            parse_in_range("earth-radius", "6371km", &self.earth_radius, 1e6, 1e8, "1,000 km to 100,000 km")?
        {
            constants.earth_radius = radius;
            constants.flattening = 0.0;
        }
        if let Some(altitude) =
            parse_in_range("geo-altitude", "35786km", &self.geo_altitude, 1e5, 1e9, "100 km to 1,000,000 km")?
        {
            constants.geo_altitude = altitude;
        }
        let speed = self.light_speed.as_ref().map(|text| text.strip_suffix("/s").unwrap_or(text).to_owned());
        if let Some(light) =
            parse_in_range("light-speed", "299792458m/s", &speed, 1e8, 4e8, "100,000 km/s to 400,000 km/s")?
        {
            constants.speed_of_light = light;
        }
        if let Some(index) = parse_in_range("refractive-index", "1.468", &self.refractive_index, 1.0, 4.0, "1 to 4")? {
            constants.refractive_index = index.0;
        }
        if let Some(detour) = parse_in_range("detour", "1.5", &self.detour, 1.0, 100.0, "1 to 100")? {
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
                format!("remove --{flag}"),
            )),
            None => Ok(()),
        }
    }

    /// Returns the selected host.
    fn host(&self) -> Result<PlanHost, Failure> {
        match &self.sysctl {
            Some(file) => Ok(PlanHost::File { name: file.clone(), settings: sysctl_file::read(file)? }),
            None if self.for_other_host => Ok(PlanHost::Other),
            None => Ok(PlanHost::This),
        }
    }

    /// Warns of a loss without a percent sign that is probably meant in per cent, as `tc` reads it.
    fn warn_of_loss(&self, path: &PathProfile) {
        let Some(text) = self.loss.as_deref().map(str::trim) else { return };
        if path.loss.get() > MAX_USUAL_LOSS && !text.ends_with('%') {
            let loss = plan::reasons::per_cent(path.loss);
            print::message(format_args!(
                "lfn: warning: --loss {text} means {loss}; tc reads {text} as {text} %\nhint: {}\n",
                corrected("loss", &format!("{text}%"))
            ));
        }
    }
}

/// Loss above which a missing percent sign is more probable than such a path.
const MAX_USUAL_LOSS: f64 = 0.05;

/// Parses a value. The hint of an error has `example` instead, or the typed number with its probable unit.
fn read<T: FromStr<Err: Display + 'static>>(
    flag: &str,
    text: &Option<String>,
    example: &str,
) -> Result<Option<T>, Failure> {
    text.as_deref().map(str::parse).transpose().map_err(|error| value_error(flag, error, example))
}

fn read_place(flag: &str, text: &str) -> Result<Place, Failure> {
    text.parse().map_err(|error| match &error {
        PlaceError::Unknown { suggestion: Some(suggestion), .. } => value_error(flag, error.to_string(), suggestion),
        PlaceError::Unknown { suggestion: None, .. } => {
            Failure::usage(format!("--{flag}: {error}")).hint("give degrees north and east, such as 46.2,6.1")
        }
        PlaceError::Coordinates(_) => value_error(flag, error.to_string(), "46.2,6.1"),
    })
}

fn required<T>(
    flag: &str,
    text: &Option<String>,
    example: &str,
    read: impl Fn(&str, &str) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match text {
        Some(text) => read(flag, text),
        None => Err(usage_error(
            format!("--{flag} is missing: give all of --from, --to and --via"),
            corrected(flag, example),
        )),
    }
}

/// Parses an integer from 0 to `max`. The plan decides whether 0 is valid.
fn parse_integer(flag: &str, text: &Option<String>, max: u32) -> Result<Option<u32>, Failure> {
    let Some(text) = text else { return Ok(None) };
    match text.trim().parse() {
        Ok(number) if number <= max => Ok(Some(number)),
        _ => Err(value_error(flag, format!("'{text}' is not an integer from 0 to {max}"), "4")),
    }
}

/// Parses a length, or a number without unit, and checks its range.
fn parse_in_range(
    flag: &str,
    example: &str,
    text: &Option<String>,
    min: f64,
    max: f64,
    range: &str,
) -> Result<Option<Metres>, Failure> {
    match read(flag, text, example)? {
        Some(Metres(value)) if !(min..=max).contains(&value) => {
            Err(value_error(flag, format!("'{}' is outside {range}", text.as_deref().unwrap_or_default()), example))
        }
        value => Ok(value),
    }
}

fn value_error(flag: &str, error: impl Display + 'static, example: &str) -> Failure {
    let suggestion = (&error as &dyn Any).downcast_ref::<QuantityError>().and_then(QuantityError::suggestion);
    let hint = corrected(flag, suggestion.as_deref().unwrap_or(example));
    Failure::usage(format!("--{flag}: {error}")).hint(hint)
}

/// Returns an error about missing or contradictory values.
fn usage_error(text: impl Display, hint: impl Display) -> Failure {
    Failure::usage(text).hint(hint)
}

fn route_error(error: &RouteError) -> Failure {
    let hint = match error {
        RouteError::BelowHorizon { .. } => corrected("via", "fibre"),
        RouteError::SamePlace { .. } => "give two different locations, or the RTT instead: --rtt 100us".to_owned(),
    };
    Failure::usage(error).hint(hint)
}

/// Describes options for which no plan exists.
fn plan_error(error: PlanRequestError) -> Failure {
    let hint = match &error {
        PlanRequestError::Route(error) => return route_error(error),
        PlanRequestError::Plan(error) => plan_hint(error),
        PlanRequestError::NoCapacity => corrected("rate", "100mbit"),
        PlanRequestError::LinkWithoutRate { .. } => corrected("rate", "10gbit"),
        PlanRequestError::RateAboveLink { .. } => "give only --rate or only --link".to_owned(),
        PlanRequestError::VlanWithoutEthernet(_) => corrected("link", "ethernet-10g"),
        PlanRequestError::MtuTooLarge(_) => corrected("mtu", "9000"),
    };
    Failure::usage(error).hint(hint)
}

fn plan_hint(error: &PlanError) -> String {
    match error {
        PlanError::NoCapacity => corrected("rate", "100mbit"),
        PlanError::NoRtt => corrected("rtt", "100us"),
        PlanError::HeadersFillMtu { .. } => corrected("mtu", "1500"),
        PlanError::TotalLoss => corrected("loss", "1%"),
        PlanError::Zero { quantity } => format!("give {quantity} of at least 1, or remove the flag"),
        PlanError::WindowUnreachable { streams, .. } => {
            format!("remove --window and use more streams: --streams {streams}")
        }
        PlanError::WindowBeyondBuffer { window, .. } => {
            corrected("max-buffer", &Bytes(window.0.saturating_mul(2)).to_argument())
        }
        PlanError::WindowScaleTooLarge { .. } => corrected("window-scale", "14"),
        PlanError::TooManyStreams { .. } => "lower --rate or --rtt, or raise --max-buffer".to_owned(),
        PlanError::DurationTooLong { .. } => "lower --size or --loss, or raise --rate".to_owned(),
    }
}
