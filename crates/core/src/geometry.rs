//! From places to a round-trip time: over fibre, a geostationary satellite or one in low orbit.
//!
//! Distances are of WGS84 unless [`Constants`] say otherwise: geodesics for fibre, straight lines between earth-centred
//! positions for satellites. Only propagation is counted. Terminals, switches and coding add to it: the ACTS path of
//! 1995 measured 539 ms where geometry gives about 501 (report 000). The other direction, from a measured RTT to
//! places, is not here.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use geographiclib_rs::{DirectGeodesic, Geodesic, InverseGeodesic};
use serde::Serialize;

/// A length in metres.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Metres(pub f64);

/// A place on or near the ground, as WGS84 gives it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Place {
    /// Degrees north, -90 to 90.
    #[serde(rename = "latitude_degrees")]
    pub latitude: f64,
    /// Degrees east, -180 to 180.
    #[serde(rename = "longitude_degrees")]
    pub longitude: f64,
    /// Above the ellipsoid; -500 m to 30 km.
    #[serde(rename = "altitude_metres")]
    pub altitude: Metres,
}

/// What carries the signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Via {
    /// Fibre along the geodesic.
    Fibre,
    /// A geostationary satellite over this longitude (degrees east), a bent pipe.
    Geo {
        /// Degrees east, -180 to 180.
        longitude: f64,
    },
    /// One satellite in low orbit, a bent pipe, at the best it can be: over the middle of the geodesic.
    Leo {
        /// Above the ellipsoid; 100 km to the geostationary 35,786 km.
        altitude: Metres,
    },
}

/// The figures of earth, orbit, light and fibre; the defaults are today's, report 000's can be put in their place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// Equatorial radius: WGS84's 6,378,137 m.
    pub earth_radius: Metres,
    /// Flattening: WGS84's 1/298.257223563; 0 for a sphere.
    pub flattening: f64,
    /// Altitude of the geostationary orbit above the equator: 35,786 km.
    pub geo_altitude: Metres,
    /// Metres per second: 299,792,458.
    pub light: Metres,
    /// Group index of refraction of the fibre: 1.468, standard single-mode (ITU-T G.652) at 1550 nm.
    pub index: f64,
    /// Length of the fibre over that of the geodesic; 1 is the least. Real routes are 1.2 to 2.
    pub detour: f64,
}

/// How far the signal goes, and how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Route {
    /// One way, from place to place.
    #[serde(rename = "length_metres")]
    pub length: Metres,
    /// There and back.
    #[serde(rename = "rtt_seconds", serialize_with = "as_seconds")]
    pub rtt: Duration,
    /// Elevation of the satellite above the horizon of either place, degrees.
    #[serde(rename = "elevation_degrees")]
    pub elevation: Option<[f64; 2]>,
}

/// Why a place, a length or a way between places could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// Not two or three numbers between commas.
    #[error("'{text}' is not a place: expected LAT,LON or LAT,LON,ALTITUDE in degrees and metres, such as {example}")]
    NotAPlace {
        /// What was typed.
        text: String,
        /// A place that would be accepted.
        example: &'static str,
    },
    /// Neither fibre nor a satellite.
    #[error("'{text}' is not a way between places: expected fibre, geo:LONGITUDE or leo:ALTITUDE")]
    NotAWay {
        /// What was typed.
        text: String,
    },
    /// Not a number and a unit of length.
    #[error("'{text}' is not a length: expected a number and m, km, mi or ft, such as 550km")]
    NotALength {
        /// What was typed.
        text: String,
    },
    /// A figure outside what it can be.
    #[error("{what} {value} is outside {least} to {most}")]
    OutOfRange {
        /// Latitude, longitude, altitude …
        what: &'static str,
        /// What was typed.
        value: String,
        /// The least accepted, with its unit.
        least: &'static str,
        /// The most accepted, with its unit.
        most: &'static str,
    },
}

/// Why there is no round-trip time between two places.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RouteError {
    /// The satellite cannot be seen. Cure: a satellite nearer to the place, a higher orbit, or another way.
    #[error("{satellite} is below the horizon of {place}: elevation {elevation:.1} degrees")]
    BelowHorizon {
        /// The satellite, in words.
        satellite: String,
        /// The place that cannot see it.
        place: Place,
        /// Below zero.
        elevation: f64,
    },
    /// Both places are one: light needs no time. Cure: two places, or a given RTT.
    #[error("{place} is both ends: the RTT over fibre would be zero")]
    SamePlace {
        /// The place.
        place: Place,
    },
}

/// The round-trip time between two places.
pub fn route(from: Place, to: Place, via: Via, constants: &Constants) -> Result<Route, RouteError> {
    match via {
        Via::Fibre => fibre(from, to, constants),
        Via::Geo { longitude } => {
            let satellite = Place { latitude: 0.0, longitude, altitude: constants.geo_altitude };
            bent_pipe(from, to, satellite, format!("the geostationary satellite at longitude {longitude}"), constants)
        }
        Via::Leo { altitude } => {
            let satellite = Place { altitude, ..midpoint(from, to, constants) };
            let name = format!("a satellite at {} km over the midpoint", altitude.0 / 1e3);
            bent_pipe(from, to, satellite, name, constants)
        }
    }
}

/// Distance to a satellite over the equator from a station at this latitude and the same longitude, on a sphere: the
/// triangle of report 000, solved without rounding its angles. All lengths in one unit, whichever it is.
///
/// With 40 degrees, 3,960 and 22,300 miles it is 23,366 miles; the report, which rounds an angle to 6.25 degrees, has
/// 23,381.
pub fn slant_range_on_sphere(latitude_degrees: f64, earth_radius: f64, orbit_altitude: f64) -> f64 {
    let centre_angle = latitude_degrees.to_radians();
    let orbit = earth_radius + orbit_altitude;
    // By the law of sines, slant / sin A = earth / sin B, with B at the satellite from its two right triangles.
    let at_satellite = (earth_radius * centre_angle.sin()).atan2(orbit - earth_radius * centre_angle.cos());
    if at_satellite == 0.0 {
        return orbit_altitude;
    }
    earth_radius * centre_angle.sin() / at_satellite.sin()
}

impl Default for Constants {
    fn default() -> Self {
        Constants {
            earth_radius: Metres(6_378_137.0),
            flattening: 1.0 / 298.257_223_563,
            geo_altitude: Metres(35_786_000.0),
            light: Metres(299_792_458.0),
            index: 1.468,
            detour: 1.0,
        }
    }
}

impl Constants {
    /// Time for light in vacuum to go this far.
    fn light_time(&self, length: Metres) -> Duration {
        Duration::try_from_secs_f64(length.0 / self.light.0).unwrap_or(Duration::MAX)
    }
}

fn fibre(from: Place, to: Place, constants: &Constants) -> Result<Route, RouteError> {
    let surface: f64 = geodesic(constants).inverse(from.latitude, from.longitude, to.latitude, to.longitude);
    let length = Metres(surface * constants.detour);
    let rtt = constants.light_time(Metres(2.0 * length.0 * constants.index));
    if rtt.is_zero() {
        return Err(RouteError::SamePlace { place: from });
    }
    Ok(Route { length, rtt, elevation: None })
}

fn bent_pipe(
    from: Place,
    to: Place,
    satellite: Place,
    name: String,
    constants: &Constants,
) -> Result<Route, RouteError> {
    let overhead = position(satellite, constants);
    let mut length = 0.0;
    let mut elevation = [0.0; 2];
    for (slot, place) in elevation.iter_mut().zip([from, to]) {
        let slant = minus(overhead, position(place, constants));
        let distance = norm(slant);
        *slot = (dot(slant, up(place)) / distance).clamp(-1.0, 1.0).asin().to_degrees();
        if *slot < 0.0 {
            return Err(RouteError::BelowHorizon { satellite: name, place, elevation: *slot });
        }
        length += distance;
    }
    let length = Metres(length);
    Ok(Route { length, rtt: constants.light_time(Metres(2.0 * length.0)), elevation: Some(elevation) })
}

/// The middle of the geodesic between two places.
fn midpoint(from: Place, to: Place, constants: &Constants) -> Place {
    let earth = geodesic(constants);
    let (length, azimuth, _, _) = earth.inverse(from.latitude, from.longitude, to.latitude, to.longitude);
    let (latitude, longitude) = earth.direct(from.latitude, from.longitude, azimuth, length / 2.0);
    Place { latitude, longitude, altitude: Metres(0.0) }
}

fn geodesic(constants: &Constants) -> Geodesic {
    Geodesic::new(constants.earth_radius.0, constants.flattening)
}

/// Earth-centred, earth-fixed coordinates, metres.
fn position(place: Place, constants: &Constants) -> [f64; 3] {
    let eccentricity_squared = constants.flattening * (2.0 - constants.flattening);
    let [x, y, z] = up(place);
    let normal = constants.earth_radius.0 / (1.0 - eccentricity_squared * z * z).sqrt();
    let altitude = place.altitude.0;
    [(normal + altitude) * x, (normal + altitude) * y, (normal * (1.0 - eccentricity_squared) + altitude) * z]
}

/// The vertical of a place, of length one: the normal of the ellipsoid.
fn up(place: Place) -> [f64; 3] {
    let (sin_latitude, cos_latitude) = place.latitude.to_radians().sin_cos();
    let (sin_longitude, cos_longitude) = place.longitude.to_radians().sin_cos();
    [cos_latitude * cos_longitude, cos_latitude * sin_longitude, sin_latitude]
}

fn minus(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn norm(a: [f64; 3]) -> f64 {
    dot(a, a).sqrt()
}

impl FromStr for Metres {
    type Err = ReadError;

    /// `550km`, `22300mi`, `6113ft`, `1863 m`; a bare number is metres.
    fn from_str(text: &str) -> Result<Self, ReadError> {
        let trimmed = text.trim();
        // The international mile and foot.
        let units = [("km", 1e3), ("mi", 1609.344), ("ft", 0.3048), ("m", 1.0)];
        let (number, factor) = units
            .iter()
            .find_map(|(unit, factor)| Some((trimmed.strip_suffix(unit)?, *factor)))
            .unwrap_or((trimmed, 1.0));
        let value = finite(number).ok_or_else(|| ReadError::NotALength { text: text.to_owned() })? * factor;
        if value.is_finite() { Ok(Metres(value)) } else { Err(ReadError::NotALength { text: text.to_owned() }) }
    }
}

impl FromStr for Place {
    type Err = ReadError;

    /// `40,-105.27` or `40,-105.27,1863` (metres; `km`, `ft` and `mi` too).
    fn from_str(text: &str) -> Result<Self, ReadError> {
        let not_a_place = || ReadError::NotAPlace { text: text.to_owned(), example: "40,-105.27 or 40,-105.27,1863" };
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let (latitude, longitude, altitude) = match parts[..] {
            [latitude, longitude] => (latitude, longitude, "0"),
            [latitude, longitude, altitude] => (latitude, longitude, altitude),
            _ => return Err(not_a_place()),
        };
        let place = Place {
            latitude: finite(latitude).ok_or_else(not_a_place)?,
            longitude: finite(longitude).ok_or_else(not_a_place)?,
            altitude: altitude.parse().map_err(|_| not_a_place())?,
        };
        let out_of_range =
            |what, value: &str, least, most| Err(ReadError::OutOfRange { what, value: value.to_owned(), least, most });
        if !(-90.0..=90.0).contains(&place.latitude) {
            return out_of_range("latitude", latitude, "-90", "90");
        }
        longitude_in_range(place.longitude, longitude)?;
        if !(-500.0..=30_000.0).contains(&place.altitude.0) {
            return out_of_range("altitude", altitude, "-500 m", "30 km");
        }
        Ok(place)
    }
}

impl FromStr for Via {
    type Err = ReadError;

    /// `fibre` (or `fiber`), `geo:-100` (degrees east), `leo:550km`; a bare number is kilometres, or metres where it is
    /// too large to be kilometres of any orbit meant here.
    fn from_str(text: &str) -> Result<Self, ReadError> {
        let not_a_way = || ReadError::NotAWay { text: text.to_owned() };
        let lower = text.trim().to_ascii_lowercase();
        if let Some(degrees) = lower.strip_prefix("geo:") {
            let longitude = finite(degrees).ok_or_else(not_a_way)?;
            longitude_in_range(longitude, degrees)?;
            return Ok(Via::Geo { longitude });
        }
        if let Some(height) = lower.strip_prefix("leo:") {
            let altitude = match finite(height) {
                Some(number) if number >= 100e3 => Metres(number),
                Some(number) => Metres(number * 1e3),
                None => height.parse().map_err(|_| not_a_way())?,
            };
            let (least, most) = ("100 km", "35786 km");
            if !(100e3..=35_786e3).contains(&altitude.0) {
                return Err(ReadError::OutOfRange { what: "altitude", value: height.to_owned(), least, most });
            }
            return Ok(Via::Leo { altitude });
        }
        if matches!(lower.as_str(), "fibre" | "fiber") { Ok(Via::Fibre) } else { Err(not_a_way()) }
    }
}

fn longitude_in_range(longitude: f64, text: &str) -> Result<(), ReadError> {
    if (-180.0..=180.0).contains(&longitude) {
        return Ok(());
    }
    Err(ReadError::OutOfRange {
        what: "longitude",
        value: text.to_owned(),
        least: "-180",
        most: "180 (west is negative)",
    })
}

fn finite(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

fn as_seconds<S: serde::Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.as_secs_f64())
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.latitude, self.longitude)?;
        if self.altitude.0 == 0.0 { Ok(()) } else { write!(f, ",{} m", self.altitude.0) }
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Via::Fibre => write!(f, "fibre"),
            Via::Geo { longitude } => write!(f, "geo:{longitude}"),
            Via::Leo { altitude } => write!(f, "leo:{}km", altitude.0 / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Place {
        text.parse().unwrap()
    }

    #[test]
    fn a_station_under_its_satellite_is_the_altitude_away() {
        let under = place("0,-100");
        let found = route(under, under, Via::Geo { longitude: -100.0 }, &Constants::default()).unwrap();
        assert!((found.length.0 - 2.0 * 35_786_000.0).abs() < 1e-3, "{found:?}");
        assert!(found.elevation.unwrap().iter().all(|degrees| (degrees - 90.0).abs() < 1e-6), "{found:?}");
        let low = route(under, under, Via::Leo { altitude: Metres(550e3) }, &Constants::default()).unwrap();
        assert!((low.length.0 - 1_100e3).abs() < 1e-3, "{low:?}");
    }

    #[test]
    fn the_sphere_of_report_000_is_one_of_the_constants() {
        let mile = 1609.344;
        let constants = Constants {
            earth_radius: Metres(3960.0 * mile),
            flattening: 0.0,
            geo_altitude: Metres(22_300.0 * mile),
            light: Metres(186_400.0 * mile),
            ..Constants::default()
        };
        let station = place("40,-105");
        let found = route(station, station, Via::Geo { longitude: -105.0 }, &constants).unwrap();
        assert!((found.length.0 / 2.0 / mile - slant_range_on_sphere(40.0, 3960.0, 22_300.0)).abs() < 1e-6);
        assert!((found.rtt.as_secs_f64() - 0.5014).abs() < 5e-5, "{found:?}");
    }

    #[test]
    fn new_york_to_london_over_fibre() {
        // 5,570 km of geodesic (JFK area to London): 54.5 ms at index 1.468.
        let found = route(place("40.7,-74"), place("51.5,0"), Via::Fibre, &Constants::default()).unwrap();
        assert!((5_560e3..5_600e3).contains(&found.length.0), "{found:?}");
        let twice = Constants { detour: 2.0, ..Constants::default() };
        let detoured = route(place("40.7,-74"), place("51.5,0"), Via::Fibre, &twice).unwrap();
        assert!((detoured.rtt.as_secs_f64() / found.rtt.as_secs_f64() - 2.0).abs() < 1e-6);
    }

    #[test]
    fn a_satellite_below_the_horizon_is_refused_with_its_elevation() {
        let error = route(place("40,-105"), place("35,139"), Via::Geo { longitude: -100.0 }, &Constants::default());
        let text = error.unwrap_err().to_string();
        assert!(text.contains("35,139") && text.contains("elevation -"), "{text}");
        let far = route(place("40,-105"), place("51,0"), Via::Leo { altitude: Metres(550e3) }, &Constants::default());
        assert!(matches!(far, Err(RouteError::BelowHorizon { .. })), "{far:?}");
        let here = place("1,1");
        assert!(matches!(route(here, here, Via::Fibre, &Constants::default()), Err(RouteError::SamePlace { .. })));
    }

    #[test]
    fn places_and_ways_are_read_or_refused() {
        assert_eq!(place("40,-105.5,6113ft").altitude, Metres(6113.0 * 0.3048));
        assert_eq!("leo:550".parse(), Ok(Via::Leo { altitude: Metres(550e3) }));
        assert_eq!("leo:550000".parse(), Ok(Via::Leo { altitude: Metres(550e3) }));
        assert_eq!("leo:340mi".parse(), Ok(Via::Leo { altitude: Metres(340.0 * 1609.344) }));
        assert_eq!("GEO:-100".parse(), Ok(Via::Geo { longitude: -100.0 }));
        for text in ["", "40", "40,", "91,0", "0,181", "nan,0", "0,inf", "0,0,40km", "1,2,3,4", "0,0,-1e9"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        for text in ["", "geo", "geo:", "geo:x", "geo:nan", "geo:200", "leo:0", "leo:-5km", "leo:1e9km", "copper"] {
            assert!(text.parse::<Via>().is_err(), "{text}");
        }
    }
}
