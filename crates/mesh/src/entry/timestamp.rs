//! Times of entries in JSON, as time since 1970: RFC 3339 in UTC with milliseconds, such as `2026-11-28T06:00:00.000Z`.
//! Use this module with `#[serde(with = "timestamp")]`.

use std::time::Duration;

use lfn_base::date;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

/// Writes the time, cut to milliseconds.
pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&date::rfc3339(*time))
}

/// Reads a date, or a date with a time in UTC.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    date::parse(&text).ok_or_else(|| D::Error::custom("expected a time in UTC such as 2026-11-28T06:00:00Z"))
}
