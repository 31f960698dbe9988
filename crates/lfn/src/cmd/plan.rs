//! `lfn plan`: reads a path and wishes from the command line, plans, prints. The arithmetic is in `lfn_core`.
//!
//! Everything is taken as text and read here rather than by clap, so that a bad quantity, a contradiction and a missing
//! figure all fail in the one shape: a line that names it, a hint, exit code 2.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use lfn_core::framing::{Framing, IpVersion, Layer, Tunnel};
use lfn_core::geometry::{self, Constants, Metres, Place, Route, RouteError, Via};
use lfn_core::links::{LINKS, Link};
use lfn_core::path::{PathProfile, QueueSize};
use lfn_core::plan::{self, PlanError, Wishes};
use lfn_core::units::{BitRate, Bytes, parse_unit_duration};

use crate::exit::{Exit, Failure};
use crate::print;

/// Say what a path can carry and what it needs: RTT, capacity, BDP, buffers, goodput.
///
/// Arithmetic alone: nothing is sent. Give the capacity (--rate or --link) and the round-trip time (--rtt, or places and
/// the way between them).
#[derive(clap::Args, Debug, Default)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Capacity of the bottleneck: 135mbit, 2.5Gb/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = "Capacity")]
    rate: Option<String>,
    /// Kind of link: oc3c, oc12c, oc48c, oc192c with -atm, -pos or -hippi; ethernet-RATE (ethernet-10g); t1; t3.
    /// With --rate too: this framing, that rate
    #[arg(long, value_name = "LINK", allow_hyphen_values = true, help_heading = "Capacity")]
    link: Option<String>,
    /// IP MTU in bytes [default: 1500, or what is usual on the link]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Capacity")]
    mtu: Option<String>,
    /// IPv6 instead of IPv4
    #[arg(long, help_heading = "Capacity")]
    ipv6: bool,
    /// No TCP timestamps
    #[arg(long, help_heading = "Capacity")]
    no_timestamps: bool,
    /// One VLAN tag (802.1Q)
    #[arg(long, help_heading = "Capacity")]
    vlan: bool,
    /// Two VLAN tags (802.1ad)
    #[arg(long, help_heading = "Capacity")]
    qinq: bool,
    /// Inside a WireGuard tunnel
    #[arg(long, help_heading = "Capacity")]
    wireguard: bool,
    /// Inside an IPsec ESP tunnel (AES-GCM)
    #[arg(long, help_heading = "Capacity")]
    ipsec: bool,

    /// Round-trip time: 539ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Round-trip time")]
    rtt: Option<String>,
    /// One end: degrees north, degrees east, altitude if not 0: 40,-105.27 or 40,-105.27,1863m
    #[arg(long, value_name = "LAT,LON[,ALT]", allow_hyphen_values = true, help_heading = "Round-trip time")]
    from: Option<String>,
    /// The other end
    #[arg(long, value_name = "LAT,LON[,ALT]", allow_hyphen_values = true, help_heading = "Round-trip time")]
    to: Option<String>,
    /// The way between them: fibre, geo:LON (a geostationary satellite), leo:ALTITUDE (one over the midpoint)
    #[arg(long, value_name = "WAY", allow_hyphen_values = true, help_heading = "Round-trip time")]
    via: Option<String>,
    /// Group index of refraction of the fibre [default: 1.468, ITU-T G.652]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Round-trip time")]
    index: Option<String>,
    /// Length of the fibre over the great circle [default: 1]
    #[arg(long, value_name = "FACTOR", allow_hyphen_values = true, help_heading = "Round-trip time")]
    detour: Option<String>,
    /// A spherical earth of this radius instead of WGS84: 3960mi
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true, help_heading = "Round-trip time")]
    earth_radius: Option<String>,
    /// Altitude of the geostationary orbit [default: 35786km]
    #[arg(long, value_name = "LENGTH", allow_hyphen_values = true, help_heading = "Round-trip time")]
    geo_altitude: Option<String>,
    /// Speed of light, a length per second [default: 299792458m/s]
    #[arg(long, value_name = "SPEED", allow_hyphen_values = true, help_heading = "Round-trip time")]
    light_speed: Option<String>,

    /// Data to move: 100GB; gives the time it takes
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Transfer")]
    size: Option<String>,
    /// TCP streams side by side [default: as few as the buffers allow]
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Transfer")]
    streams: Option<String>,
    /// Largest socket buffer a host gives [default: 1GiB]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Transfer")]
    max_buffer: Option<String>,
    /// Receive window each stream holds, instead of the planned one
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, help_heading = "Transfer")]
    window: Option<String>,
    /// Window scale negotiated: 0 to 14, or none [default: the least that serves]
    #[arg(long, value_name = "SCALE", allow_hyphen_values = true, help_heading = "Transfer")]
    window_scale: Option<String>,
    /// Random loss, as a ratio: 1e-4 or 0.01%
    #[arg(long, value_name = "RATIO", allow_hyphen_values = true, help_heading = "Transfer")]
    loss: Option<String>,
    /// Room in the bottleneck's queue: 9MB, 539ms or 1bdp
    #[arg(long, value_name = "ROOM", allow_hyphen_values = true, help_heading = "Transfer")]
    queue: Option<String>,
    /// reno, cubic or bbr [default: cubic]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true, help_heading = "Transfer")]
    congestion: Option<String>,
    /// First flight of a stream, in segments [default: 10]
    #[arg(long, value_name = "SEGMENTS", allow_hyphen_values = true, help_heading = "Transfer")]
    initial_window: Option<String>,
    /// Slow start grows by half each round trip, as with delayed acknowledgements before byte counting
    #[arg(long, help_heading = "Transfer")]
    delayed_ack: bool,

    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  lfn plan --rate 135mbit --rtt 539ms --size 10GB    the ACTS satellite path
  lfn plan --link oc3c-atm --from 40,-105 --to 40,-83 --via geo:-100
  lfn plan --link ethernet-10g --vlan --from 46,6 --to 41,-73 --via fibre
  lfn plan --rate 622mbit --rtt 50ms --window 2MB    what such a window leaves idle
  lfn plan --rate 1gbit --rtt 90ms --loss 1e-4 --streams 4 --size 100GB
  lfn plan --rate 135mbit --rtt 40ms --window-scale none --json";

const PATH_HINT: &str = "lfn plan --rate 135mbit --rtt 539ms";
const PLACES_HINT: &str = "lfn plan --rate 135mbit --from 40,-105 --to 40,-83 --via geo:-100";

pub fn run(args: Args) -> Result<Exit, Failure> {
    let link = args.link()?;
    let capacity = args.capacity(link.as_ref())?;
    let (rtt, way) = args.round_trip()?;
    let path = args.path(PathProfile::new(capacity, rtt), link.as_ref())?;
    let plan = plan::plan(&path, &args.wishes()?).map_err(refused)?;
    let report = print::plan::Report { plan: &plan, link: link.map(|link| link.name), way };
    if args.json {
        report.json()?
    } else {
        report.text()?
    }
    Ok(Exit::Ok)
}

impl Args {
    fn link(&self) -> Result<Option<Link>, Failure> {
        read("link", &self.link, &format!("links are {LINKS}"))
    }

    /// The rest of the path's figures.
    fn path(&self, mut path: PathProfile, link: Option<&Link>) -> Result<PathProfile, Failure> {
        path.framing = self.framing(link)?;
        path.loss = read("loss", &self.loss, "--loss 1e-4")?.unwrap_or_default();
        if let Some(link) = link {
            path.mtu = link.mtu;
        }
        if let Some(Bytes(mtu)) = read("mtu", &self.mtu, "--mtu 9000")? {
            path.mtu = u32::try_from(mtu).ok().filter(|mtu| *mtu <= 65_535).ok_or_else(|| {
                Failure::usage(format!("--mtu: {mtu} bytes: an IP packet has at most 65,535")).hint("--mtu 9000")
            })?;
        }
        path.queue = read::<QueueSize>("queue", &self.queue, "--queue 1bdp")?.map(|queue| queue.on(&path));
        Ok(path)
    }

    fn capacity(&self, link: Option<&Link>) -> Result<BitRate, Failure> {
        let rate: Option<BitRate> = read("rate", &self.rate, PATH_HINT)?;
        match (rate, link) {
            (None, None) => Err(refusal("neither --rate nor --link: the capacity is missing", PATH_HINT)),
            (Some(rate), None) => Ok(rate),
            (rate, Some(Link { capacity: None, name, .. })) => {
                rate.ok_or_else(|| refusal(format!("--link {name} has no rate of its own"), "--link ethernet-10g"))
            }
            (None, Some(Link { capacity: Some(capacity), .. })) => Ok(*capacity),
            (Some(rate), Some(Link { capacity: Some(capacity), name, .. })) if rate > *capacity => {
                Err(refusal(format!("--rate {rate} is more than {name} carries, {capacity}"), "give one of them"))
            }
            (Some(rate), Some(_)) => Ok(rate),
        }
    }

    fn framing(&self, link: Option<&Link>) -> Result<Framing, Failure> {
        let layer = link.map_or(Layer::default(), |link| link.layer);
        if (self.vlan || self.qinq) && !layer.is_ethernet() {
            let text = format!("a VLAN tag is of Ethernet; this capacity counts {}", layer.describe());
            return Err(refusal(text, "leave out --vlan and --qinq, or give --link ethernet-10g"));
        }
        if self.vlan && self.qinq {
            return Err(refusal("--vlan is one tag and --qinq two", "give one of them"));
        }
        if self.wireguard && self.ipsec {
            return Err(refusal("--wireguard and --ipsec: one tunnel at a time", "give one of them"));
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

    /// The RTT as given, or as the way between two places has it.
    fn round_trip(&self) -> Result<(Duration, Option<(Via, Route)>), Failure> {
        let places = [("from", &self.from), ("to", &self.to), ("via", &self.via)];
        let given = places.iter().find(|(_, text)| text.is_some());
        if let Some(rtt) = &self.rtt {
            if let Some((flag, _)) = given {
                let text = format!("--rtt and --{flag} contradict each other: a given RTT, or one from places");
                return Err(refusal(text, "leave out one of them"));
            }
            self.refuse_geometry("--rtt")?;
            return Ok((parse_unit_duration(rtt).map_err(|e| unreadable("rtt", e, PATH_HINT))?, None));
        }
        if given.is_none() {
            let text = "neither --rtt nor --from, --to and --via: the round-trip time is missing";
            return Err(refusal(text, PATH_HINT));
        }
        let from: Place = required("from", &self.from)?;
        let to: Place = required("to", &self.to)?;
        let via: Via = required("via", &self.via)?;
        let route = geometry::route(from, to, via, &self.constants(via)?).map_err(no_route)?;
        Ok((route.rtt, Some((via, route))))
    }

    /// The figures of earth, orbit, light and fibre, each only where it plays a part.
    fn constants(&self, via: Via) -> Result<Constants, Failure> {
        if via != Via::Fibre && (self.index.is_some() || self.detour.is_some()) {
            return Err(refusal(format!("--index and --detour are of fibre, not of {via}"), "--via fibre"));
        }
        if !matches!(via, Via::Geo { .. }) && self.geo_altitude.is_some() {
            let text = format!("--geo-altitude is of a geostationary satellite, not of {via}");
            return Err(refusal(text, "--via geo:-100"));
        }
        let mut constants = Constants::default();
        if let Some(radius) = ranged("earth-radius", &self.earth_radius, 1e6, 1e8, "1,000 km to 100,000 km")? {
            (constants.earth_radius, constants.flattening) = (radius, 0.0);
        }
        if let Some(altitude) = ranged("geo-altitude", &self.geo_altitude, 1e5, 1e9, "100 km to 1,000,000 km")? {
            constants.geo_altitude = altitude;
        }
        let speed = self.light_speed.as_ref().map(|text| text.strip_suffix("/s").unwrap_or(text).to_owned());
        if let Some(light) = ranged("light-speed", &speed, 1e8, 4e8, "100,000 km/s to 400,000 km/s")? {
            constants.light = light;
        }
        if let Some(index) = ranged("index", &self.index, 1.0, 4.0, "1 to 4")? {
            constants.index = index.0;
        }
        if let Some(detour) = ranged("detour", &self.detour, 1.0, 100.0, "1 to 100")? {
            constants.detour = detour.0;
        }
        Ok(constants)
    }

    /// Figures that only places have use for.
    fn refuse_geometry(&self, beside: &str) -> Result<(), Failure> {
        let flags = [
            ("index", &self.index),
            ("detour", &self.detour),
            ("earth-radius", &self.earth_radius),
            ("geo-altitude", &self.geo_altitude),
            ("light-speed", &self.light_speed),
        ];
        match flags.iter().find(|(_, text)| text.is_some()) {
            Some((flag, _)) => {
                Err(refusal(format!("--{flag} has no meaning beside {beside}: it is of places"), PLACES_HINT))
            }
            None => Ok(()),
        }
    }

    fn wishes(&self) -> Result<Wishes, Failure> {
        let fallback = Wishes::default();
        Ok(Wishes {
            size: read("size", &self.size, "--size 100GB")?,
            streams: whole("streams", &self.streams, plan::MAX_STREAMS)?,
            max_buffer: read("max-buffer", &self.max_buffer, "--max-buffer 64MiB")?.unwrap_or(fallback.max_buffer),
            window: read("window", &self.window, "--window 4547813")?,
            window_scale: match self.window_scale.as_deref() {
                Some("none") => Some(0),
                _ => whole("window-scale", &self.window_scale, 14)?.map(|scale| scale as u8),
            },
            congestion: read("congestion", &self.congestion, "--congestion cubic")?.unwrap_or_default(),
            initial_window: whole("initial-window", &self.initial_window, 65_535)?.unwrap_or(fallback.initial_window),
            delayed_ack: self.delayed_ack,
        })
    }
}

fn read<T: FromStr<Err: Display>>(flag: &str, text: &Option<String>, hint: &str) -> Result<Option<T>, Failure> {
    text.as_deref().map(str::parse).transpose().map_err(|error| unreadable(flag, error, hint))
}

fn required<T: FromStr<Err: Display>>(flag: &str, text: &Option<String>) -> Result<T, Failure> {
    let value = read(flag, text, PLACES_HINT)?;
    value.ok_or_else(|| refusal(format!("--{flag} is missing: --from, --to and --via go together"), PLACES_HINT))
}

/// A whole number from 0 to `most`; what zero means is the plan's to say.
fn whole(flag: &str, text: &Option<String>, most: u32) -> Result<Option<u32>, Failure> {
    let Some(text) = text else { return Ok(None) };
    match text.trim().parse() {
        Ok(number) if number <= most => Ok(Some(number)),
        _ => Err(unreadable(flag, format!("'{text}' is not a whole number up to {most}"), &format!("--{flag} 4"))),
    }
}

/// A length, or a bare number where that is what the flag takes.
fn ranged(flag: &str, text: &Option<String>, least: f64, most: f64, range: &str) -> Result<Option<Metres>, Failure> {
    let hint = format!("--{flag} takes {range}");
    match read(flag, text, &hint)? {
        Some(Metres(value)) if !(least..=most).contains(&value) => {
            Err(unreadable(flag, format!("'{}' is outside {range}", text.as_deref().unwrap_or_default()), &hint))
        }
        value => Ok(value),
    }
}

fn unreadable(flag: &str, error: impl Display, hint: &str) -> Failure {
    Failure::usage(format!("--{flag}: {error}")).hint(hint)
}

/// Figures that are missing, or contradict each other.
fn refusal(text: impl Display, hint: &str) -> Failure {
    Failure::usage(text).hint(hint)
}

fn no_route(error: RouteError) -> Failure {
    let hint = match error {
        RouteError::BelowHorizon { .. } => "choose a satellite both ends can see, a higher orbit, or --via fibre",
        RouteError::SamePlace { .. } => "give two places, or the RTT itself: --rtt 100us",
    };
    Failure::usage(error).hint(hint)
}

/// A path or wishes that no plan can be made for.
fn refused(error: PlanError) -> Failure {
    let hint = match &error {
        PlanError::NoCapacity | PlanError::NoRtt => PATH_HINT.to_owned(),
        PlanError::NoRoom { .. } => "--mtu 1500".to_owned(),
        PlanError::AllLost => "--loss 1e-4".to_owned(),
        PlanError::Zero { .. } => "give at least 1, or leave the flag out".to_owned(),
        PlanError::WindowUnreachable { streams, .. } => {
            format!("more streams share it: --streams {streams}, and no --window")
        }
        PlanError::WindowBeyondBuffer { .. } => "raise --max-buffer or lower --window".to_owned(),
        PlanError::NoSuchScale { .. } => "--window-scale 8".to_owned(),
        PlanError::TooManyStreams { .. } => "lower --rate or --rtt, or raise --max-buffer".to_owned(),
        PlanError::Endless { .. } => "lower --size or --loss, or raise --rate".to_owned(),
    };
    Failure::usage(error).hint(hint)
}
