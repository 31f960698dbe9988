//! The client's request for a test over UDP.

use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

use super::error::RequestError;
use super::limits::{MAX_DATAGRAM, MIN_DATAGRAM};
use crate::udp::ramp::{MAX_STEPS, RampRequest};

/// UDP datagrams instead of TCP. The record size of the request is ignored, and a record count counts datagrams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct UdpRequest {
    /// Payload rate of each stream's datagrams.
    #[serde(rename = "rate_bits_per_second")]
    pub rate: BitRate,
    /// Payload of each datagram. If absent, the maximum that fits the path MTU known to the sender's kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagram_bytes: Option<u32>,
    /// Hand each datagram to the device separately (no GSO).
    #[serde(default)]
    pub no_gso: bool,
    /// Receive each datagram separately (no GRO).
    #[serde(default)]
    pub no_gro: bool,
    /// Clear the DF bit: datagrams larger than the path MTU may be fragmented.
    #[serde(default)]
    pub fragment: bool,
    /// Search the rate at which loss starts, instead of sending at one rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<RampRequest>,
}

impl Default for UdpRequest {
    fn default() -> Self {
        UdpRequest {
            rate: BitRate(1_000_000),
            datagram_bytes: None,
            no_gso: false,
            no_gro: false,
            fragment: false,
            ramp: None,
        }
    }
}

impl UdpRequest {
    /// Checks that the request can be served.
    pub(super) fn check(&self, streams: u16) -> Result<(), RequestError> {
        if let Some(bytes) = self.datagram_bytes {
            let possible = MIN_DATAGRAM as u32..=MAX_DATAGRAM as u32;
            if !possible.contains(&bytes) {
                return Err(RequestError::Datagram(bytes));
            }
        }
        if self.rate.0 < 1000 {
            return Err(RequestError::Rate(self.rate));
        }
        match &self.ramp {
            Some(_) if streams > 1 => Err(RequestError::RampStreams(streams)),
            Some(ramp) => check_ramp(ramp),
            None => Ok(()),
        }
    }
}

fn check_ramp(ramp: &RampRequest) -> Result<(), RequestError> {
    use std::time::Duration;
    if ramp.from.0 < 1000 || ramp.to < ramp.from {
        return Err(RequestError::Ramp(ramp.from, ramp.to));
    }
    if !(Duration::from_millis(50)..=Duration::from_secs(60)).contains(&ramp.step) {
        return Err(RequestError::Step(ramp.step));
    }
    if ramp.rates.len() > MAX_STEPS {
        return Err(RequestError::RampSteps(ramp.rates.len()));
    }
    if let Some(rate) = ramp.rates.iter().find(|rate| !(ramp.from..=ramp.to).contains(rate)) {
        return Err(RequestError::RampRate(*rate, ramp.from, ramp.to));
    }
    Ok(())
}
