//! What to expect of a copy, before it begins and once the RTT is known.

use std::time::Duration;

use lfn_core::path::PathProfile;
use lfn_core::tcp_model::{self, Congestion, Flow};
use lfn_core::units::{BitRate, Bytes};
use lfn_net::session::Protection;

/// What is known of the path before and after it was tried.
#[derive(Debug, Default)]
pub struct Forecast {
    pub path: Option<PathProfile>,
    pub rate: Option<BitRate>,
    pub congestion: Congestion,
    pub streams: u16,
    pub protection: Option<Protection>,
}

/// What to expect.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Predicted {
    /// Once past start-up.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// From the dial to the receiver's last word.
    #[serde(serialize_with = "seconds")]
    #[serde(rename = "seconds")]
    pub time: Duration,
    /// Size over time.
    #[serde(rename = "average_goodput_bits_per_second")]
    pub average_goodput: BitRate,
    /// Of it, start-up.
    #[serde(rename = "slow_start_seconds", serialize_with = "seconds")]
    pub slow_start: Duration,
}

impl Forecast {
    /// What to expect of so many bytes, once the path is known: as the emulator says, or from `--rate` and the RTT
    /// that was measured.
    pub fn predict(&self, bytes: Bytes, measured_rtt: Option<f64>) -> Option<Predicted> {
        let path = self.path_with(measured_rtt)?;
        let flow = Flow { streams: self.streams.into(), congestion: self.congestion, ..Flow::default() };
        let time = tcp_model::transfer_time(&path, &flow, bytes)?;
        // The model ends with the last byte's arrival and dials plain TCP: TLS is one round trip more, and the
        // receiver's word half of one.
        let rounds = if self.protection == Some(Protection::Clear) { 0.5 } else { 1.5 };
        let total = time.total().saturating_add(path.base_rtt.mul_f64(rounds));
        Some(Predicted {
            goodput: tcp_model::steady(&path, &flow).goodput,
            time: total,
            average_goodput: bytes.per(total),
            slow_start: time.slow_start,
        })
    }

    /// Streams the forecast is for.
    pub fn streams(&self) -> u16 {
        self.streams
    }

    fn path_with(&self, measured_rtt: Option<f64>) -> Option<PathProfile> {
        let rtt = measured_rtt.filter(|rtt| *rtt > 0.0).and_then(|rtt| Duration::try_from_secs_f64(rtt).ok());
        match (self.path, self.rate) {
            (Some(path), None) => Some(path),
            (Some(path), Some(capacity)) => Some(PathProfile { capacity, ..path }),
            (None, Some(capacity)) => Some(PathProfile::new(capacity, rtt?)),
            (None, None) => None,
        }
    }
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
