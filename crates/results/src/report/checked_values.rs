//! Check of all values of a file before the file becomes a document: no duplicate keys, and figures in a plausible range.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::read_error::ReadError;
use crate::measure::bounded::{OutOfRange, check_broken, check_whole};

/// Maximum sum of all whole numbers of a document, so that no sum of a rule overflows.
const MAX_SUM: u64 = 1 << 62;
/// Keys of figures that no rule adds up: those that follow from the evidence, and seeds.
const NOT_SUMMED: [&str; 8] = [
    "findings",
    "predicted",
    "expected",
    "estimate",
    "bdp_bytes",
    "measured_bdp_bytes",
    "cpu_seconds_per_gigabyte",
    "seed",
];

/// Figures that a document may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PermittedFigures {
    /// All figures that JSON can have.
    Any,
    /// Figures of a plausible examination.
    Plausible,
}

/// Checks the only value of a file, without keeping it in memory.
pub(super) fn check_values(bytes: &[u8], permitted: PermittedFigures) -> Result<(), ReadError> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let sum = Cell::new(0);
    let sum = (permitted == PermittedFigures::Plausible).then_some(&sum);
    CheckedValue { name: "", sum }.deserialize(&mut deserializer)?;
    deserializer.end().map_err(|_| ReadError::Trailing)
}

/// Any value that is checked.
#[derive(Clone, Copy)]
struct CheckedValue<'a> {
    /// Key of the value.
    name: &'a str,
    /// Sum of the whole numbers so far; none if any figure is permitted.
    sum: Option<&'a Cell<u64>>,
}

impl CheckedValue<'_> {
    fn add_whole<E: Error>(self, value: i128) -> Result<(), E> {
        let Some(sum) = self.sum else { return Ok(()) };
        if self.name.ends_with("_seconds") {
            return check_broken(self.name, value as f64).map_err(E::custom);
        }
        if check_whole(self.name, value).map_err(E::custom)? {
            sum.set(sum.get().saturating_add(u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX)));
        }
        match sum.get() <= MAX_SUM {
            true => Ok(()),
            false => Err(E::custom(OutOfRange { name: self.name.to_owned(), value: "the sum of all figures".into() })),
        }
    }
}

impl<'de> DeserializeSeed<'de> for CheckedValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CheckedValue<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.add_whole(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.add_whole(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.sum {
            None => Ok(()),
            Some(_) if self.name.ends_with("_seconds") => check_broken(self.name, value).map_err(E::custom),
            // A whole number that was read as a figure with a fraction.
            Some(_) => check_whole(self.name, value as i128).map(drop).map_err(E::custom),
        }
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut keys: HashSet<String> = HashSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if keys.contains(&key) {
                let key: String = key.chars().take(40).filter(|c| !c.is_control()).collect();
                return Err(A::Error::custom(format_args!("duplicate key '{key}'")));
            }
            let sum = self.sum.filter(|_| !NOT_SUMMED.contains(&key.as_str()));
            fields.next_value_seed(CheckedValue { name: &key, sum })?;
            keys.insert(key);
        }
        Ok(())
    }
}
