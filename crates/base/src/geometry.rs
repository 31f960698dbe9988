//! Round-trip times from coordinates: over fibre, a geostationary satellite or a satellite in low orbit.
//!
//! Distances are on WGS84 unless [`PhysicalConstants`] has other values: geodesics for fibre, straight lines between
//! earth-centred positions for satellites. Only propagation is counted. Terminals, switches and coding add to it: the
//! ACTS path of 1995 measured 539 ms, and the geometry gives about 501 ms (report 000). The other direction, from a
//! measured RTT to coordinates, is not here.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use geographiclib_rs::{DirectGeodesic, Geodesic, InverseGeodesic};
use serde::Serialize;

/// A length in metres.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Metres(#[cfg_attr(any(test, feature = "schema"), schemars(with = "crate::figure::Figure"))] pub f64);

/// A point on or near the ground, in WGS84 coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Coordinates {
    /// Degrees north, -90 to 90.
    #[serde(rename = "latitude_degrees")]
    pub latitude: f64,
    /// Degrees east, -180 to 180.
    #[serde(rename = "longitude_degrees")]
    pub longitude: f64,
    /// Height above the ellipsoid: -500 m to 30 km.
    #[serde(rename = "altitude_metres")]
    pub altitude: Metres,
}

/// The medium that carries the signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Medium {
    Fibre,
    /// A geostationary satellite that only relays the signal (bent pipe).
    Geo {
        /// Degrees east, -180 to 180.
        longitude: f64,
    },
    /// One satellite in low orbit that only relays the signal, in the best position: over the middle of the geodesic.
    Leo {
        /// Height above the ellipsoid: 100 km to the geostationary 35,786 km.
        altitude: Metres,
    },
}

/// Physical constants of earth, orbit, light and fibre. The defaults are today's values; a test replaces them with
/// those of report 000.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhysicalConstants {
    /// Equatorial radius: WGS84's 6,378,137 m.
    pub earth_radius: Metres,
    /// Flattening: WGS84's 1/298.257223563; 0 for a sphere.
    pub flattening: f64,
    /// Altitude of the geostationary orbit above the equator: 35,786 km.
    pub geo_altitude: Metres,
    /// Speed of light in vacuum, metres per second: 299,792,458.
    pub speed_of_light: Metres,
    /// Group index of refraction of the fibre: 1.468, standard single-mode (ITU-T G.652) at 1550 nm.
    pub refractive_index: f64,
    /// Length of the fibre divided by the length of the geodesic; at least 1. Real routes have 1.2 to 2.
    pub detour: f64,
}

/// The length and the round-trip time of a route.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Route {
    /// One way, from end to end.
    #[serde(rename = "length_metres")]
    pub length: Metres,
    /// Round-trip time of the propagation.
    #[serde(rename = "rtt_seconds", with = "crate::path::seconds")]
    pub rtt: Duration,
    /// Elevation of the satellite above the horizon at each end, degrees.
    #[serde(rename = "elevation_degrees")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Option<[crate::figure::Figure; 2]>"))]
    pub elevation: Option<[f64; 2]>,
}

/// Error of a text that is not valid coordinates, length or medium.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GeometryParseError {
    #[error(
        "'{text}' is not a place: expected LAT,LON or LAT,LON,ALTITUDE in degrees and metres, for example {example}"
    )]
    NotAPlace { text: String, example: &'static str },
    #[error("'{text}' is not a medium: expected fibre, geo:LONGITUDE or leo:ALTITUDE")]
    NotAMedium { text: String },
    #[error("'{text}' is not a length: expected a number and m, km, mi or ft, for example 550km")]
    NotALength { text: String },
    #[error("{quantity} {value} is outside {min} to {max}")]
    OutOfRange {
        quantity: &'static str,
        value: String,
        /// Text with the unit.
        min: &'static str,
        /// Text with the unit.
        max: &'static str,
    },
}

/// Error: two places have no round-trip time.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RouteError {
    /// The place cannot see the satellite. Remedy: a satellite nearer to the place, a higher orbit, or another medium.
    #[error("{satellite} is below the horizon of {place}: elevation {elevation:.1} degrees")]
    BelowHorizon {
        satellite: String,
        place: Coordinates,
        /// In degrees, below zero.
        elevation: f64,
    },
    /// Both ends are the same place. Remedy: two different places, or an explicit RTT.
    #[error("{place} is both ends of the path: the RTT over fibre would be zero")]
    SamePlace { place: Coordinates },
}

/// Computes the route and its round-trip time between two places.
pub fn find_route(
    from: Coordinates,
    to: Coordinates,
    via: Medium,
    constants: &PhysicalConstants,
) -> Result<Route, RouteError> {
    match via {
        Medium::Fibre => fibre_route(from, to, constants),
        Medium::Geo { longitude } => {
            let satellite = Coordinates { latitude: 0.0, longitude, altitude: constants.geo_altitude };
            bent_pipe_route(
                from,
                to,
                satellite,
                format!("the geostationary satellite at longitude {longitude}"),
                constants,
            )
        }
        Medium::Leo { altitude } => {
            let satellite = Coordinates { altitude, ..midpoint(from, to, constants) };
            let name = format!("a satellite at {} km over the midpoint", altitude.0 / 1e3);
            bent_pipe_route(from, to, satellite, name, constants)
        }
    }
}

/// Returns the distance from a ground station to a satellite over the equator at the same longitude, on a sphere. This
/// is the triangle of report 000, solved without rounded angles. All lengths have the same unit.
///
/// With 40 degrees, 3,960 and 22,300 miles the result is 23,366 miles. The report rounds an angle to 6.25 degrees and
/// gets 23,381.
pub fn slant_range_on_sphere(latitude_degrees: f64, earth_radius: f64, orbit_altitude: f64) -> f64 {
    let centre_angle = latitude_degrees.to_radians();
    let orbit = earth_radius + orbit_altitude;
    // The law of sines: slant / sin A = earth / sin B. B is the angle at the satellite, from its two right triangles.
    let at_satellite = (earth_radius * centre_angle.sin()).atan2(orbit - earth_radius * centre_angle.cos());
    if at_satellite == 0.0 {
        return orbit_altitude;
    }
    earth_radius * centre_angle.sin() / at_satellite.sin()
}

impl Default for PhysicalConstants {
    fn default() -> Self {
        PhysicalConstants {
            earth_radius: Metres(6_378_137.0),
            flattening: 1.0 / 298.257_223_563,
            geo_altitude: Metres(35_786_000.0),
            speed_of_light: Metres(299_792_458.0),
            refractive_index: 1.468,
            detour: 1.0,
        }
    }
}

impl PhysicalConstants {
    /// Returns the time that light in vacuum needs for this length.
    fn light_time(&self, length: Metres) -> Duration {
        Duration::try_from_secs_f64(length.0 / self.speed_of_light.0).unwrap_or(Duration::MAX)
    }
}

fn fibre_route(from: Coordinates, to: Coordinates, constants: &PhysicalConstants) -> Result<Route, RouteError> {
    let surface: f64 = geodesic(constants).inverse(from.latitude, from.longitude, to.latitude, to.longitude);
    let length = Metres(surface * constants.detour);
    let rtt = constants.light_time(Metres(2.0 * length.0 * constants.refractive_index));
    if rtt.is_zero() {
        return Err(RouteError::SamePlace { place: from });
    }
    Ok(Route { length, rtt, elevation: None })
}

fn bent_pipe_route(
    from: Coordinates,
    to: Coordinates,
    satellite: Coordinates,
    name: String,
    constants: &PhysicalConstants,
) -> Result<Route, RouteError> {
    let overhead = position(satellite, constants);
    let mut length = 0.0;
    let mut elevation = [0.0; 2];
    for (slot, place) in elevation.iter_mut().zip([from, to]) {
        let slant = subtract(overhead, position(place, constants));
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

/// Returns the middle of the geodesic between two places.
fn midpoint(from: Coordinates, to: Coordinates, constants: &PhysicalConstants) -> Coordinates {
    let earth = geodesic(constants);
    let (length, azimuth, _, _) = earth.inverse(from.latitude, from.longitude, to.latitude, to.longitude);
    let (latitude, longitude) = earth.direct(from.latitude, from.longitude, azimuth, length / 2.0);
    Coordinates { latitude, longitude, altitude: Metres(0.0) }
}

fn geodesic(constants: &PhysicalConstants) -> Geodesic {
    Geodesic::new(constants.earth_radius.0, constants.flattening)
}

/// Converts to earth-centred, earth-fixed coordinates in metres.
fn position(place: Coordinates, constants: &PhysicalConstants) -> [f64; 3] {
    let eccentricity_squared = constants.flattening * (2.0 - constants.flattening);
    let [x, y, z] = up(place);
    let normal = constants.earth_radius.0 / (1.0 - eccentricity_squared * z * z).sqrt();
    let altitude = place.altitude.0;
    [(normal + altitude) * x, (normal + altitude) * y, (normal * (1.0 - eccentricity_squared) + altitude) * z]
}

/// Returns the vertical of a place as a unit vector: the normal of the ellipsoid.
fn up(place: Coordinates) -> [f64; 3] {
    let (sin_latitude, cos_latitude) = place.latitude.to_radians().sin_cos();
    let (sin_longitude, cos_longitude) = place.longitude.to_radians().sin_cos();
    [cos_latitude * cos_longitude, cos_latitude * sin_longitude, sin_latitude]
}

fn subtract(a: [f64; 3], b: [f64; 3]) -> [f64; 3] {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn norm(a: [f64; 3]) -> f64 {
    dot(a, a).sqrt()
}

impl FromStr for Metres {
    type Err = GeometryParseError;

    /// Reads `550km`, `22300mi`, `6113ft`, `1863 m`; a bare number is in metres.
    fn from_str(text: &str) -> Result<Self, GeometryParseError> {
        let trimmed = text.trim();
        // The international mile and foot.
        let units = [("km", 1e3), ("mi", 1609.344), ("ft", 0.3048), ("m", 1.0)];
        let (number, factor) = units
            .iter()
            .find_map(|(unit, factor)| Some((trimmed.strip_suffix(unit)?, *factor)))
            .unwrap_or((trimmed, 1.0));
        let value =
            parse_finite(number).ok_or_else(|| GeometryParseError::NotALength { text: text.to_owned() })? * factor;
        if value.is_finite() {
            Ok(Metres(value))
        } else {
            Err(GeometryParseError::NotALength { text: text.to_owned() })
        }
    }
}

impl FromStr for Coordinates {
    type Err = GeometryParseError;

    /// Reads `40,-105.27` or `40,-105.27,1863` (metres; `km`, `ft` and `mi` work too).
    fn from_str(text: &str) -> Result<Self, GeometryParseError> {
        let not_a_place =
            || GeometryParseError::NotAPlace { text: text.to_owned(), example: "40,-105.27 or 40,-105.27,1863" };
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let (latitude, longitude, altitude) = match parts[..] {
            [latitude, longitude] => (latitude, longitude, "0"),
            [latitude, longitude, altitude] => (latitude, longitude, altitude),
            _ => return Err(not_a_place()),
        };
        let place = Coordinates {
            latitude: parse_finite(latitude).ok_or_else(not_a_place)?,
            longitude: parse_finite(longitude).ok_or_else(not_a_place)?,
            altitude: altitude.parse().map_err(|_| not_a_place())?,
        };
        let out_of_range = |quantity, value: &str, min, max| {
            Err(GeometryParseError::OutOfRange { quantity, value: value.to_owned(), min, max })
        };
        if !(-90.0..=90.0).contains(&place.latitude) {
            return out_of_range("latitude", latitude, "-90", "90");
        }
        check_longitude(place.longitude, longitude)?;
        if !(-500.0..=30_000.0).contains(&place.altitude.0) {
            return out_of_range("altitude", altitude, "-500 m", "30 km");
        }
        Ok(place)
    }
}

impl FromStr for Medium {
    type Err = GeometryParseError;

    /// Reads `fibre` (or `fiber`), `geo:-100` (degrees east), `leo:550km`. A bare number is in kilometres; from 100,000
    /// on it is in metres, because no supported orbit is that many kilometres high.
    fn from_str(text: &str) -> Result<Self, GeometryParseError> {
        let not_a_medium = || GeometryParseError::NotAMedium { text: text.to_owned() };
        let lower = text.trim().to_ascii_lowercase();
        if let Some(degrees) = lower.strip_prefix("geo:") {
            let longitude = parse_finite(degrees).ok_or_else(not_a_medium)?;
            check_longitude(longitude, degrees)?;
            return Ok(Medium::Geo { longitude });
        }
        if let Some(height) = lower.strip_prefix("leo:") {
            let altitude = match parse_finite(height) {
                Some(number) if number >= 100e3 => Metres(number),
                Some(number) => Metres(number * 1e3),
                None => height.parse().map_err(|_| not_a_medium())?,
            };
            let (min, max) = ("100 km", "35786 km");
            if !(100e3..=35_786e3).contains(&altitude.0) {
                return Err(GeometryParseError::OutOfRange {
                    quantity: "altitude",
                    value: height.to_owned(),
                    min,
                    max,
                });
            }
            return Ok(Medium::Leo { altitude });
        }
        if matches!(lower.as_str(), "fibre" | "fiber") { Ok(Medium::Fibre) } else { Err(not_a_medium()) }
    }
}

fn check_longitude(longitude: f64, text: &str) -> Result<(), GeometryParseError> {
    if (-180.0..=180.0).contains(&longitude) {
        return Ok(());
    }
    Err(GeometryParseError::OutOfRange {
        quantity: "longitude",
        value: text.to_owned(),
        min: "-180",
        max: "180 (west is negative)",
    })
}

fn parse_finite(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.latitude, self.longitude)?;
        if self.altitude.0 == 0.0 { Ok(()) } else { write!(f, ",{} m", self.altitude.0) }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Medium::Fibre => write!(f, "fibre"),
            Medium::Geo { longitude } => write!(f, "geo:{longitude}"),
            Medium::Leo { altitude } => write!(f, "leo:{}km", altitude.0 / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Coordinates {
        text.parse().unwrap()
    }

    #[test]
    fn station_under_a_satellite_has_its_altitude_as_distance() {
        let under = place("0,-100");
        let found = find_route(under, under, Medium::Geo { longitude: -100.0 }, &PhysicalConstants::default()).unwrap();
        assert!((found.length.0 - 2.0 * 35_786_000.0).abs() < 1e-3, "{found:?}");
        assert!(found.elevation.unwrap().iter().all(|degrees| (degrees - 90.0).abs() < 1e-6), "{found:?}");
        let low =
            find_route(under, under, Medium::Leo { altitude: Metres(550e3) }, &PhysicalConstants::default()).unwrap();
        assert!((low.length.0 - 1_100e3).abs() < 1e-3, "{low:?}");
    }

    #[test]
    fn sphere_of_report_000_is_reproduced() {
        let mile = 1609.344;
        let constants = PhysicalConstants {
            earth_radius: Metres(3960.0 * mile),
            flattening: 0.0,
            geo_altitude: Metres(22_300.0 * mile),
            speed_of_light: Metres(186_400.0 * mile),
            ..PhysicalConstants::default()
        };
        let station = place("40,-105");
        let found = find_route(station, station, Medium::Geo { longitude: -105.0 }, &constants).unwrap();
        assert!((found.length.0 / 2.0 / mile - slant_range_on_sphere(40.0, 3960.0, 22_300.0)).abs() < 1e-6);
        assert!((found.rtt.as_secs_f64() - 0.5014).abs() < 5e-5, "{found:?}");
    }

    #[test]
    fn new_york_to_london_over_fibre() {
        // 5,570 km of geodesic (from the JFK area to London): 54.5 ms at index 1.468.
        let found =
            find_route(place("40.7,-74"), place("51.5,0"), Medium::Fibre, &PhysicalConstants::default()).unwrap();
        assert!((5_560e3..5_600e3).contains(&found.length.0), "{found:?}");
        let twice = PhysicalConstants { detour: 2.0, ..PhysicalConstants::default() };
        let detoured = find_route(place("40.7,-74"), place("51.5,0"), Medium::Fibre, &twice).unwrap();
        assert!((detoured.rtt.as_secs_f64() / found.rtt.as_secs_f64() - 2.0).abs() < 1e-6);
    }

    #[test]
    fn satellite_below_the_horizon_is_an_error() {
        let error = find_route(
            place("40,-105"),
            place("35,139"),
            Medium::Geo { longitude: -100.0 },
            &PhysicalConstants::default(),
        );
        let text = error.unwrap_err().to_string();
        assert!(text.contains("35,139") && text.contains("elevation -"), "{text}");
        let far = find_route(
            place("40,-105"),
            place("51,0"),
            Medium::Leo { altitude: Metres(550e3) },
            &PhysicalConstants::default(),
        );
        assert!(matches!(far, Err(RouteError::BelowHorizon { .. })), "{far:?}");
        let here = place("1,1");
        assert!(matches!(
            find_route(here, here, Medium::Fibre, &PhysicalConstants::default()),
            Err(RouteError::SamePlace { .. })
        ));
    }

    #[test]
    fn coordinates_and_media_are_parsed() {
        assert_eq!(place("40,-105.5,6113ft").altitude, Metres(6113.0 * 0.3048));
        assert_eq!("leo:550".parse(), Ok(Medium::Leo { altitude: Metres(550e3) }));
        assert_eq!("leo:550000".parse(), Ok(Medium::Leo { altitude: Metres(550e3) }));
        assert_eq!("leo:340mi".parse(), Ok(Medium::Leo { altitude: Metres(340.0 * 1609.344) }));
        assert_eq!("GEO:-100".parse(), Ok(Medium::Geo { longitude: -100.0 }));
        for text in ["", "40", "40,", "91,0", "0,181", "nan,0", "0,inf", "0,0,40km", "1,2,3,4", "0,0,-1e9"] {
            assert!(text.parse::<Coordinates>().is_err(), "{text}");
        }
        for text in ["", "geo", "geo:", "geo:x", "geo:nan", "geo:200", "leo:0", "leo:-5km", "leo:1e9km", "copper"] {
            assert!(text.parse::<Medium>().is_err(), "{text}");
        }
    }
}
