//! Places by name: coordinates, an IATA code or a city.
//!
//! The table has about 440 airports of large cities and of cities with research institutes. A city stands for its
//! largest airport, 5 to 50 km from its centre: at most half a millisecond of round-trip time. Source:
//! `airports.csv`.

use std::fmt;
use std::str::FromStr;

use crate::geometry::{Coordinates, GeometryParseError, Metres};

const AIRPORTS: &str = include_str!("airports.csv");
/// Minimum similarity of a suggested name (Jaro-Winkler, 0 to 1).
const MIN_SIMILARITY: f64 = 0.8;

/// A point on the ground that the user named.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub coordinates: Coordinates,
    /// City, IATA code and country; `None` for typed coordinates.
    pub name: Option<String>,
}

/// Error of a text that is not a place.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    Coordinates(#[from] GeometryParseError),
    /// No city and no airport has this name. Remedy: the suggestion, or coordinates.
    #[error("unknown city or airport '{text}'")]
    Unknown {
        text: String,
        /// The name in the table that is most similar, if one is.
        suggestion: Option<String>,
    },
}

impl FromStr for Place {
    type Err = PlaceError;

    /// Reads `46.2,6.1`, `46.2,6.1,430m`, `GVA`, `Geneva`, `Birmingham,US`. Case, accents, spaces and hyphens are
    /// ignored.
    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let is_number = |c: char| c.is_ascii_digit() || "+-. ".contains(c);
        if text.trim().is_empty() || text.starts_with(is_number) || text.starts_with(',') {
            return Ok(Place { coordinates: text.parse()?, name: None });
        }
        let (wanted, country) = match text.rsplit_once(',') {
            Some((city, country)) => (normalize(city), Some(country.trim().to_ascii_uppercase())),
            None => (normalize(text), None),
        };
        let in_country = |airport: &Airport| country.as_ref().is_none_or(|country| airport.country == country);
        let exact = |airport: &Airport| airport.names().any(|name| normalize(name) == wanted);
        // A code is preferred to a city of the same name.
        let found = airports().find(|airport| normalize(airport.code) == wanted && in_country(airport));
        let found = found.or_else(|| airports().find(|airport| exact(airport) && in_country(airport)));
        match found {
            Some(airport) => Ok(airport.place()),
            None => Err(PlaceError::Unknown { text: text.trim().to_owned(), suggestion: nearest_name(&wanted) }),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.pad(name),
            None => f.pad(&self.coordinates.to_string()),
        }
    }
}

/// One line of the table.
struct Airport {
    code: &'static str,
    names: &'static str,
    country: &'static str,
    latitude: f64,
    longitude: f64,
}

impl Airport {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.split('|')
    }

    fn place(&self) -> Place {
        let city = self.names().next().unwrap_or_default();
        Place {
            coordinates: Coordinates { latitude: self.latitude, longitude: self.longitude, altitude: Metres(0.0) },
            name: Some(format!("{city} ({}, {})", self.code, self.country)),
        }
    }
}

fn airports() -> impl Iterator<Item = Airport> {
    AIRPORTS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split(';');
        let mut next = || fields.next();
        Some(Airport {
            code: next()?,
            names: next()?,
            country: next()?,
            latitude: next()?.parse().ok()?,
            longitude: next()?.parse().ok()?,
        })
    })
}

/// Returns the name or code that is most similar.
fn nearest_name(wanted: &str) -> Option<String> {
    let names = airports().flat_map(|airport| airport.names().chain([airport.code]).collect::<Vec<_>>());
    let scored = names.map(|name| (strsim::jaro_winkler(&normalize(name), wanted), name));
    // Of equal scores the first wins: the table has the most important places first.
    let (score, name) = scored.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (score >= MIN_SIMILARITY).then(|| name.to_owned())
}

/// Removes accents, spaces and punctuation, and lowers the case.
fn normalize(text: &str) -> String {
    text.to_lowercase().chars().filter_map(plain_letter).collect()
}

/// Returns the letter without its accent, for the letters of the table; `None` for spaces and punctuation.
fn plain_letter(letter: char) -> Option<char> {
    Some(match letter {
        'à'..='å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'č' => 'c',
        'è'..='ë' | 'ę' | 'ě' => 'e',
        'ì'..='ï' => 'i',
        'ł' => 'l',
        'ñ' | 'ń' => 'n',
        'ò'..='ö' | 'ø' | 'ō' => 'o',
        'ś' | 'ş' | 'ș' | 'š' => 's',
        'ţ' | 'ț' => 't',
        'ù'..='ü' | 'ū' => 'u',
        'ź' | 'ż' | 'ž' => 'z',
        letter if letter.is_alphanumeric() => letter,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        text.parse::<Place>().unwrap().to_string()
    }

    #[test]
    fn the_table_is_complete() {
        let lines = AIRPORTS.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(airports().count(), lines);
        assert!(lines > 400, "{lines}");
        for airport in airports() {
            assert_eq!((airport.code.len(), airport.country.len()), (3, 2), "{}", airport.code);
            let place = airport.place().coordinates;
            assert!(format!("{},{}", place.latitude, place.longitude).parse::<Coordinates>().is_ok());
            assert!(airport.names().all(|name| normalize(name).is_ascii() && !name.is_empty()), "{}", airport.names);
        }
    }

    #[test]
    fn cities_and_codes_are_found() {
        for text in ["GVA", "gva", "Geneva", "genève", "CERN"] {
            assert_eq!(name(text), "Geneva (GVA, CH)", "{text}");
        }
        assert_eq!(name("New-York"), "New York (JFK, US)");
        assert_eq!(name("sao paulo"), "São Paulo (GRU, BR)");
        assert_eq!(name("Birmingham"), "Birmingham (BHX, GB)");
        assert_eq!(name("Birmingham, US"), "Birmingham (BHM, US)");
        assert_eq!(name("40,-105.27"), "40,-105.27");
    }

    #[test]
    fn unknown_places_have_a_suggestion() {
        let suggestion = |text: &str| match text.parse::<Place>() {
            Err(PlaceError::Unknown { suggestion, .. }) => suggestion,
            other => panic!("{other:?}"),
        };
        assert_eq!(suggestion("Genva"), Some("Geneva".into()));
        assert_eq!(suggestion("Chicgo"), Some("Chicago".into()));
        assert_eq!(suggestion("qqqqqq"), None);
        assert!(matches!("".parse::<Place>(), Err(PlaceError::Coordinates(_))));
        assert!(matches!("91,0".parse::<Place>(), Err(PlaceError::Coordinates(_))));
    }
}
