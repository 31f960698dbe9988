//! Durations as numbers of seconds in JSON, for `#[serde(with = "crate::units::seconds")]`.

use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes a duration as a number of seconds.
pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// Reads a number of seconds. A negative number and a number beyond the range of [`Duration`] are errors.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds).map_err(|error| D::Error::custom(format_args!("{seconds} s: {error}")))
}
