//! Mahimahi's format (`mm-link`; Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015):
//! one whole number of milliseconds a line, each an opportunity to deliver 1,504 bytes, over and over with the last time
//! as the period.
//!
//! The 1,504 bytes are an IP packet of 1,500 and the 4 bytes that a TUN device puts in front of it, so an opportunity is
//! counted here as 1,500 bytes of IP. `mm-link` delivers at the instant of the opportunity what waited by then; a line
//! that sends 1,500 bytes within the millisecond before it is done at the same instant. So `n` opportunities at `t` are
//! a rate of n × 12 Mb/s from t − 1 ms to t. What differs: an opportunity that finds an empty queue is lost to
//! `mm-link`, where a line may use what is left of its millisecond.

use std::time::Duration;

use super::{MOST_TIME, Steps, Trace, TraceError, lines, shortened};
use crate::framing::Layer;
use crate::units::BitRate;

/// What an opportunity carries, bit, in a millisecond: b/s.
const RATE: u64 = 1500 * 8 * 1000;
/// 10 Tb/s, the most of a link.
const MOST_OPPORTUNITIES: u64 = 10_000_000_000_000 / RATE;

/// Whether this line can be one of such a trace.
pub(super) fn is_time(line: &str) -> bool {
    !line.is_empty() && line.trim_start_matches('-').chars().all(|c| c.is_ascii_digit())
}

pub(super) fn parse(name: &str, text: &str) -> Result<Trace, TraceError> {
    // Opportunities at 0 come again with those at the end of the period, and are counted there.
    let mut at_start = 0;
    let mut steps = Steps::new();
    let mut bin = Bin { at: 0, opportunities: 0, line: 1 };
    for (line, word) in lines(text) {
        let at = millis(word, line)?;
        if at < bin.at {
            return Err(TraceError::Order { line });
        }
        if at > bin.at {
            bin.end(&mut at_start, &mut steps)?;
            if at > bin.at + 1 {
                steps.push_line(Duration::from_millis(bin.at), BitRate(0), line)?;
            }
            bin = Bin { at, opportunities: 0, line };
        }
        bin.opportunities += 1;
        bin.line = line;
    }
    if bin.at == 0 {
        return Err(TraceError::NoTime { line: bin.line });
    }
    bin.opportunities += at_start;
    let period = Duration::from_millis(bin.at);
    bin.end(&mut at_start, &mut steps)?;
    let rate = Some(steps.finish(Some(period))?);
    Ok(Trace { rate, layer: Some(Layer::Ip), ..Trace::named(name) })
}

/// The opportunities of one millisecond.
struct Bin {
    at: u64,
    opportunities: u64,
    /// The last of them.
    line: usize,
}

impl Bin {
    /// All of them are known.
    fn end(&self, at_start: &mut u64, steps: &mut Steps<BitRate>) -> Result<(), TraceError> {
        if self.opportunities > MOST_OPPORTUNITIES {
            return Err(TraceError::TooFast { line: self.line });
        }
        if self.at == 0 {
            *at_start = self.opportunities;
            return Ok(());
        }
        steps.push_line(Duration::from_millis(self.at - 1), BitRate(self.opportunities * RATE), self.line)
    }
}

fn millis(word: &str, line: usize) -> Result<u64, TraceError> {
    let at: u64 = word.parse().map_err(|_| TraceError::Millis { line, text: shortened(word) })?;
    if Duration::from_millis(at) > MOST_TIME { Err(TraceError::TooLong { line }) } else { Ok(at) }
}
