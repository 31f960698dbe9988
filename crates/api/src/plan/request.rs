//! Typed options of a plan: capacity, round-trip time, framing, transfer and the host whose settings are compared.

use std::time::Duration;

use lfn_base::framing::{Framing, IpVersion, Layer, Tunnel};
use lfn_base::geometry::{self, Medium, PhysicalConstants};
use lfn_base::named_link::NamedLink;
use lfn_base::path::{PathProfile, QueueSize};
use lfn_base::place::Place;
use lfn_base::plan::settings::{HostSettings, TargetHost, recommend_for_host};
use lfn_base::plan::{self, PlanOptions};
use lfn_base::tcp_model::Congestion;
use lfn_base::units::{BitRate, Bytes, Ratio};

use super::error::PlanRequestError;
use super::host::read_this_host;
use super::report::{HostSource, NamedRoute};

/// Maximum length of an IP packet, bytes.
const MAX_MTU: u64 = 65_535;

/// Options of a plan. At least one of `rate` and `link` is needed.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// Capacity of the bottleneck; `None` uses the capacity of the link.
    pub rate: Option<BitRate>,
    /// Kind of link, for the capacity, the framing and the usual MTU.
    pub link: Option<NamedLink>,
    pub round_trip: RoundTrip,
    /// IP MTU in bytes; `None` uses 1500, or the usual MTU of the link.
    pub mtu: Option<u64>,
    pub ip: IpVersion,
    pub without_timestamps: bool,
    /// VLAN tags of each frame: 0, 1 (802.1Q) or 2 (802.1ad).
    pub vlan_tags: u8,
    pub tunnel: Option<Tunnel>,
    /// Random packet loss of the path.
    pub loss: Ratio,
    /// Size of the bottleneck's queue.
    pub queue: Option<QueueSize>,
    /// Bytes to transfer; `None` predicts the goodput only.
    pub size: Option<Bytes>,
    /// Parallel streams; `None` uses the minimum that the buffers allow.
    pub streams: Option<u32>,
    /// Maximum memory of a socket buffer; `None` uses 2 GiB.
    pub max_buffer: Option<Bytes>,
    /// Receive window of each stream; `None` uses the planned window.
    pub window: Option<Bytes>,
    /// Window scale, 0 to 14; `None` uses the minimum that suffices.
    pub window_scale: Option<u8>,
    /// Congestion control; `None` uses the recommended one.
    pub congestion: Option<Congestion>,
    /// Initial congestion window in segments; `None` uses 10.
    pub initial_window: Option<u32>,
    /// Grow by half per round trip in slow start.
    pub delayed_ack: bool,
    pub host: PlanHost,
}

/// Source of the round-trip time.
#[derive(Debug, Clone)]
pub enum RoundTrip {
    Time(Duration),
    /// Computed from a route between two places. Constants that do not apply to the medium are ignored.
    Route {
        from: Place,
        to: Place,
        via: Medium,
        constants: PhysicalConstants,
    },
}

/// Host whose settings the plan compares with the needs of the path.
#[derive(Debug, Clone)]
pub enum PlanHost {
    /// This host. A host without readable settings counts as [`PlanHost::Other`].
    This,
    /// A host with unknown settings. The plan has all settings.
    Other,
    /// A host whose settings are in a file, with the name of the file.
    File { name: String, settings: HostSettings },
}

impl PlanRequest {
    /// Creates a request for this host with defaults. The capacity is still missing.
    pub fn new(round_trip: RoundTrip) -> Self {
        PlanRequest {
            rate: None,
            link: None,
            round_trip,
            mtu: None,
            ip: IpVersion::V4,
            without_timestamps: false,
            vlan_tags: 0,
            tunnel: None,
            loss: Ratio::ZERO,
            queue: None,
            size: None,
            streams: None,
            max_buffer: None,
            window: None,
            window_scale: None,
            congestion: None,
            initial_window: None,
            delayed_ack: false,
            host: PlanHost::This,
        }
    }

    /// Returns the capacity of the bottleneck, from the rate or the link.
    pub fn capacity(&self) -> Result<BitRate, PlanRequestError> {
        let Some(NamedLink { name, capacity, .. }) = &self.link else {
            return self.rate.ok_or(PlanRequestError::NoCapacity);
        };
        let link = name.clone();
        match (self.rate, *capacity) {
            (None, None) => Err(PlanRequestError::LinkWithoutRate { link }),
            (Some(rate), Some(capacity)) if rate > capacity => {
                Err(PlanRequestError::RateAboveLink { rate, link, capacity })
            }
            (Some(rate), _) | (None, Some(rate)) => Ok(rate),
        }
    }

    /// Returns the RTT, and the route from which it is computed.
    pub(super) fn route(&self) -> Result<(Duration, Option<NamedRoute>), PlanRequestError> {
        match &self.round_trip {
            RoundTrip::Time(rtt) => Ok((*rtt, None)),
            RoundTrip::Route { from, to, via, constants } => {
                let route = geometry::find_route(from.coordinates, to.coordinates, *via, constants)?;
                let (from, to) = (from.clone(), to.clone());
                Ok((route.rtt, Some(NamedRoute { from, to, via: *via, route, detour: constants.detour })))
            }
        }
    }

    /// Returns the path with MTU, framing, loss and queue.
    pub(super) fn path(&self, capacity: BitRate, rtt: Duration) -> Result<PathProfile, PlanRequestError> {
        let layer = self.link.as_ref().map_or(Layer::default(), |link| link.layer);
        if self.vlan_tags > 0 && !layer.is_ethernet() {
            return Err(PlanRequestError::VlanWithoutEthernet(layer));
        }
        let mut path = PathProfile::new(capacity, rtt);
        path.framing = Framing {
            layer,
            ip: self.ip,
            without_timestamps: self.without_timestamps,
            vlan_tags: self.vlan_tags,
            tunnel: self.tunnel,
        };
        path.loss = self.loss;
        if let Some(link) = &self.link {
            path.mtu = link.mtu;
        }
        if let Some(mtu) = self.mtu {
            let fits = u32::try_from(mtu).ok().filter(|_| mtu <= MAX_MTU);
            path.mtu = fits.ok_or(PlanRequestError::MtuTooLarge(mtu))?;
        }
        path.queue = self.queue.map(|queue| queue.bytes_on(&path));
        Ok(path)
    }

    /// Returns the settings of the selected host, and their source.
    pub(super) fn host_settings(&self) -> (HostSource, Option<HostSettings>) {
        match &self.host {
            PlanHost::File { name, settings } => (HostSource::File(name.clone()), Some(settings.clone())),
            PlanHost::Other => (HostSource::Unknown, None),
            PlanHost::This => match read_this_host() {
                Some(settings) => (HostSource::ThisHost, Some(settings)),
                None => (HostSource::Unknown, None),
            },
        }
    }

    pub(super) fn options(&self, path: &PathProfile, target: TargetHost<'_>) -> Result<PlanOptions, PlanRequestError> {
        let defaults = PlanOptions::default();
        let mut options = PlanOptions {
            size: self.size,
            streams: self.streams,
            max_buffer: self.max_buffer.unwrap_or(defaults.max_buffer),
            window: self.window,
            window_scale: self.window_scale,
            congestion: defaults.congestion,
            initial_window: self.initial_window.unwrap_or(defaults.initial_window),
            delayed_ack: self.delayed_ack,
        };
        options.congestion = match self.congestion {
            Some(congestion) => congestion,
            // The recommendation depends on the number of streams, which the plan itself may choose.
            None => recommend_for_host(path, plan::plan(path, &options)?.streams, target),
        };
        Ok(options)
    }
}
