//! Reasons why a test request is invalid.

use std::time::Duration;

use lfn_base::plan::MAX_WINDOW;
use lfn_base::units::{BitRate, Bytes, show_duration};

use super::limits::{
    MAX_BUFFERS, MAX_DATAGRAM, MAX_PARTS, MAX_RECORD, MAX_SAMPLES, MAX_STREAMS, MIN_DATAGRAM, MIN_INTERVAL,
};
use crate::udp::ramp::MAX_STEPS;

/// Reason why a test request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Zero, or more than the server's maximum of threads.
    #[error("{0} streams requested: 1 to {MAX_STREAMS} are allowed")]
    Streams(u16),
    /// An empty record would never end, and a large record needs memory.
    #[error("record size of {}: 1 B to {} are allowed", .0, MAX_RECORD)]
    Record(Bytes),
    /// A read of zero bytes means the end of the stream.
    #[error("read size of {}: 1 B to {} are allowed", .0, MAX_RECORD)]
    Read(Bytes),
    /// Each stream has its own buffer.
    #[error("{0} streams with buffers of {1}: at most {MAX_BUFFERS} in total are allowed")]
    Buffers(u16, Bytes),
    /// The content of payload that is not copied cannot be checked.
    #[error("cannot check the payload in no-copy mode")]
    CheckWithoutCopy,
    /// Datagrams are not acknowledged.
    #[error("datagrams cannot be sent in lock-step")]
    LockstepDatagrams,
    /// Each part needs its own measurement.
    #[error("intervals in {} parts: at most {MAX_PARTS} parts of at least {} each are allowed", .0, show_duration(MIN_INTERVAL))]
    Parts(u16),
    /// Zero, or more than can be counted.
    #[error("load of {0}: 1 B to 9 EB are allowed")]
    Amount(Bytes),
    /// No records, or more bytes than can be counted.
    #[error("{0} records of {1}: at least one record and at most 9 EB are allowed")]
    Count(u64, Bytes),
    #[error("test duration of 0: use a longer time")]
    Time,
    /// More frequent reports would themselves be the load.
    #[error("interval of {}: at least {} is required", show_duration(*.0), show_duration(MIN_INTERVAL))]
    Interval(Duration),
    /// Each sample is stored until the end of the test: streams, time, interval.
    #[error("{0} streams over {time} in intervals of {interval}: at most {MAX_SAMPLES} samples are allowed", time = show_duration(*.1), interval = show_duration(*.2))]
    Samples(u16, Duration, Duration),
    /// TCP cannot announce this window.
    #[error("receive window of {0}: 2 KiB to {MAX_WINDOW} are allowed")]
    Window(Bytes),
    /// Zero, or larger than an int.
    #[error("socket buffer of {0}: 1 B to 1 GiB are allowed")]
    Buffer(Bytes),
    /// A smaller MSS has no room for header options; a larger one is no valid packet.
    #[error("MSS of {0}: 88 B to 32767 B are allowed")]
    Mss(Bytes),
    /// More values of one option than the maximum of streams.
    #[error("{0} values of one option: at most {MAX_STREAMS} are allowed")]
    Values(usize),
    /// Too low to send anything.
    #[error("pacing rate of {0} is too low: minimum 8 kb/s")]
    Pace(BitRate),
    /// Smaller than the lfn header, or larger than an IP packet.
    #[error("datagrams of {0} B: {shortest} to {longest} B are allowed", shortest = MIN_DATAGRAM, longest = MAX_DATAGRAM)]
    Datagram(u32),
    /// Too low to send anything.
    #[error("datagram rate of {0} is too low: minimum 1 kb/s")]
    Rate(BitRate),
    /// Steps on several streams cannot be separated.
    #[error("a ramp over {0} streams: a ramp uses exactly one stream")]
    RampStreams(u16),
    /// The ramp would end before its start.
    #[error("ramp from {0} to {1}: the minimum start is 1 kb/s, and the end must not be lower")]
    Ramp(BitRate, BitRate),
    /// More steps than a ramp may have.
    #[error("a ramp with {0} rates: at most {MAX_STEPS} are allowed")]
    RampSteps(usize),
    /// A given rate of a ramp outside its range.
    #[error("ramp with the rate {0}: rates from {1} to {2} are allowed")]
    RampRate(BitRate, BitRate, BitRate),
    /// Too short to see a queue fill, or too long to wait.
    #[error("ramp steps of {}: 50 ms to 1 min are allowed", show_duration(*.0))]
    Step(Duration),
    /// More frequent probes would themselves be the load.
    #[error("probe interval of {}: 5 ms to 10 s are allowed", show_duration(*.0))]
    ProbePace(Duration),
    /// Does not fit the socket option.
    #[error("'{0}' is not the name of a congestion control")]
    Congestion(String),
}

impl RequestError {
    /// Returns a hint for the user, if one exists.
    pub fn hint(&self) -> Option<String> {
        match self {
            RequestError::Samples(streams, time, _) => {
                let least = (time.as_millis() * u128::from(*streams)).div_ceil(MAX_SAMPLES);
                Some(format!("use --interval {least}ms or more, a shorter --time, or a smaller --streams"))
            }
            _ => None,
        }
    }
}
