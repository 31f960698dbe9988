//! Prediction of a copy: before the copy starts, and again when the RTT is known.

use std::time::Duration;

use lfn_base::path::{PathProfile, seconds};
use lfn_base::tcp_model::{self, Congestion, FlowParameters};
use lfn_base::units::{BitRate, Bytes};
use lfn_copy::CopyOutcome;
use lfn_session::Protection;
use serde::{Deserialize, Serialize};

/// Inputs of the prediction: the figures of the path and the settings of the streams.
#[derive(Debug, Clone, Default)]
pub struct Predictor {
    pub path: Option<PathProfile>,
    pub rate: Option<BitRate>,
    pub congestion: Congestion,
    pub streams: u16,
    pub protection: Option<Protection>,
}

/// Predicted figures of one copy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CopyPrediction {
    /// Steady goodput, after slow start.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// From the dial to the receiver's last message.
    #[serde(rename = "seconds", with = "seconds")]
    pub time: Duration,
    /// Size divided by time.
    #[serde(rename = "average_goodput_bits_per_second")]
    pub average_goodput: BitRate,
    /// Slow start, a part of `time`.
    #[serde(rename = "slow_start_seconds", with = "seconds")]
    pub slow_start: Duration,
}

impl Predictor {
    /// Predicts the copy of `bytes`. Uses the path of the emulator, or the capacity of `--rate` with the measured RTT.
    /// Returns `None` if the path is unknown.
    pub fn predict(&self, bytes: Bytes, measured_rtt: Option<f64>) -> Option<CopyPrediction> {
        self.predict_with(self.streams, None, bytes, measured_rtt)
    }

    /// Predicts the same copy with another number of streams, and with the send buffers of the host if they are given.
    pub fn predict_with(
        &self,
        streams: u16,
        send_buffer: Option<Bytes>,
        bytes: Bytes,
        measured_rtt: Option<f64>,
    ) -> Option<CopyPrediction> {
        let path = self.path_with_rtt(measured_rtt)?;
        let (streams, congestion) = (streams.into(), self.congestion);
        let flow = FlowParameters { streams, congestion, send_buffer, ..FlowParameters::default() };
        let time = tcp_model::transfer_time(&path, &flow, bytes)?;
        // The model ends with the arrival of the last byte and has a plain TCP handshake. TLS adds one round trip, and
        // the receiver's last message half a round trip.
        let rounds = if self.protection == Some(Protection::Clear) { 0.5 } else { 1.5 };
        let total = time.total().saturating_add(path.base_rtt.mul_f64(rounds));
        Some(CopyPrediction {
            goodput: tcp_model::predict_steady(&path, &flow).goodput,
            time: total,
            average_goodput: bytes.per(total),
            slow_start: time.slow_start,
        })
    }

    /// Predicts a finished copy for the bytes that were sent, with its measured RTT. Returns `None` if none were sent.
    pub fn predict_outcome(
        &self,
        outcome: &CopyOutcome,
        streams: u16,
        send_buffer: Option<Bytes>,
    ) -> Option<CopyPrediction> {
        let rtt = outcome.sample.sockets.map(|sockets| sockets.min_rtt_seconds);
        let moved = Some(outcome.moved()).filter(|moved| moved.0 > 0)?;
        self.predict_with(streams, send_buffer, moved, rtt)
    }

    /// Returns the number of streams of the prediction.
    pub fn streams(&self) -> u16 {
        self.streams
    }

    fn path_with_rtt(&self, measured_rtt: Option<f64>) -> Option<PathProfile> {
        let rtt = measured_rtt.filter(|rtt| *rtt > 0.0).and_then(|rtt| Duration::try_from_secs_f64(rtt).ok());
        match (self.path, self.rate) {
            (Some(path), None) => Some(path),
            (Some(path), Some(capacity)) => Some(PathProfile { capacity, ..path }),
            (None, Some(capacity)) => Some(PathProfile::new(capacity, rtt?)),
            (None, None) => None,
        }
    }
}
