//! Figures from a peer, bounded before anything is reckoned with them.
//!
//! A number that no test can come to would overflow some sum far from here. So a message is looked at as a whole, whatever
//! its type, rather than each sum defended; what counts up over a test is bounded in its sum too.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::report::Interval;

/// The largest count: 72 PB, 2 Tb/s for three days.
const LARGEST: u64 = 1 << 56;
/// The longest time and the largest share: 30,000 years.
const LARGEST_FLOAT: f64 = 1e12;
/// The largest sum of what all intervals of a test tell.
const LARGEST_SUM: u64 = 1 << 60;

/// A message whose figures may be reckoned with.
#[derive(Debug)]
pub struct Bounded<T>(pub T);

/// A figure that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("'{name}' of {value}, which no test comes to")]
pub struct Unbounded {
    /// Its name in JSON.
    pub name: String,
    /// As it was told.
    pub value: String,
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        check("", &value).map_err(D::Error::custom)?;
        T::deserialize(value).map(Bounded).map_err(D::Error::custom)
    }
}

fn check(name: &str, value: &Value) -> Result<(), Unbounded> {
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| check(name, value)),
        Value::Array(values) => values.iter().try_for_each(|value| check(name, value)),
        // A clock may stand anywhere, and no limit may be the largest number; neither is added up.
        Value::Number(number) if name.contains("nanos") || name.ends_with("_bits_per_second") => {
            match number.as_u64().or(number.as_i64().map(i64::unsigned_abs)) {
                Some(_) => Ok(()),
                None => unbounded(name, number),
            }
        }
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) if whole.unsigned_abs() <= LARGEST => Ok(()),
            (None, Some(broken)) if number.is_f64() && broken.abs() <= LARGEST_FLOAT => Ok(()),
            _ => unbounded(name, number),
        },
        _ => Ok(()),
    }
}

fn unbounded(name: &str, value: &serde_json::Number) -> Result<(), Unbounded> {
    Err(Unbounded { name: name.to_owned(), value: value.to_string() })
}

/// What a peer's intervals have told so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds an interval; an error if that is more than a test can come to.
    pub fn add(&mut self, interval: &Interval) -> Result<(), Unbounded> {
        let udp = interval.streams.iter().filter_map(|stream| stream.udp.as_ref());
        let udp = udp.flat_map(|udp| [udp.datagrams, udp.lost, udp.reordered, udp.duplicates]);
        let figures = interval.streams.iter().map(|stream| stream.bytes).chain(udp).chain([interval.bytes]);
        self.0 = figures.fold(self.0, u64::saturating_add);
        match self.0 <= LARGEST_SUM {
            true => Ok(()),
            false => Err(Unbounded { name: "intervals".into(), value: format!("{} bytes and datagrams", self.0) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::test::{EndReport, ServerMessage};

    #[test]
    fn what_no_test_comes_to_is_named() {
        let honest = ServerMessage::Report(Box::new(EndReport { bytes: 1 << 50, ..EndReport::default() }));
        let text = serde_json::to_string(&honest).unwrap();
        assert!(serde_json::from_str::<Bounded<ServerMessage>>(&text).is_ok());
        let lie = text.replace(&(1u64 << 50).to_string(), &u64::MAX.to_string());
        let said = serde_json::from_str::<Bounded<ServerMessage>>(&lie).unwrap_err().to_string();
        assert!(said.contains("'bytes' of 18446744073709551615"), "{said}");
        let long = text.replace("\"elapsed_seconds\":0.0", "\"elapsed_seconds\":1e15");
        assert_ne!(long, text);
        assert!(serde_json::from_str::<Bounded<ServerMessage>>(&long).is_err());
    }

    #[test]
    fn sums_are_bounded_too() {
        let interval = Interval { bytes: LARGEST, ..Interval::default() };
        let mut sum = Sum::default();
        assert!((0..16).all(|_| sum.add(&interval).is_ok()));
        assert!(sum.add(&interval).is_err());
    }
}
