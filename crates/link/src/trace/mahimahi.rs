//! Mahimahi's format (`mm-link`; Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015).
//! Each line is a whole number of milliseconds: an opportunity to deliver 1,504 bytes. The trace repeats, and the last
//! time is its period.
//!
//! The 1,504 bytes are an IP packet of 1,500 bytes and the 4 bytes that a TUN device puts in front of it, so an
//! opportunity counts as 1,500 bytes of IP. `mm-link` delivers waiting bytes at the instant of the opportunity. A line
//! that sends 1,500 bytes in the millisecond before finishes at the same instant. So `n` opportunities at `t` are a
//! rate of n × 12 Mb/s from t − 1 ms to t. One difference remains: in `mm-link` an opportunity with an empty queue is
//! lost, while a line can use the rest of the millisecond.

use std::time::Duration;

use lfn_base::framing::Layer;
use lfn_base::units::BitRate;

use super::link_trace::{LinkTrace, MAX_TIME, TraceError};
use super::steps::{StepList, content_lines, truncate};

/// Rate of one opportunity per millisecond, b/s.
const OPPORTUNITY_RATE: u64 = 1500 * 8 * 1000;
/// Opportunities per millisecond at 10 Tb/s, the maximum of a link.
const MAX_OPPORTUNITIES: u64 = 10_000_000_000_000 / OPPORTUNITY_RATE;

/// Reports whether the line is a time in this format.
pub(super) fn is_time(line: &str) -> bool {
    !line.is_empty() && line.trim_start_matches('-').chars().all(|c| c.is_ascii_digit())
}

pub(super) fn parse(name: &str, text: &str) -> Result<LinkTrace, TraceError> {
    // The opportunities at 0 and at the end of the period repeat together, so they are counted at the end.
    let mut at_start = 0;
    let mut steps = StepList::new();
    let mut millisecond = Millisecond { at: 0, opportunities: 0, line: 1 };
    for (line, word) in content_lines(text) {
        let at = millis(word, line)?;
        if at < millisecond.at {
            return Err(TraceError::Order { line });
        }
        if at > millisecond.at {
            millisecond.end(&mut at_start, &mut steps)?;
            if at > millisecond.at + 1 {
                steps.push_line(Duration::from_millis(millisecond.at), BitRate(0), line)?;
            }
            millisecond = Millisecond { at, opportunities: 0, line };
        }
        millisecond.opportunities += 1;
        millisecond.line = line;
    }
    if millisecond.at == 0 {
        return Err(TraceError::ZeroLength { line: millisecond.line });
    }
    millisecond.opportunities += at_start;
    let period = Duration::from_millis(millisecond.at);
    millisecond.end(&mut at_start, &mut steps)?;
    let rate = Some(steps.finish(Some(period))?);
    Ok(LinkTrace { rate, layer: Some(Layer::Ip), ..LinkTrace::unloaded(name) })
}

/// Opportunities of one millisecond.
struct Millisecond {
    at: u64,
    opportunities: u64,
    /// Last line of this millisecond.
    line: usize,
}

impl Millisecond {
    /// Adds the step of this millisecond when all its opportunities are known.
    fn end(&self, at_start: &mut u64, steps: &mut StepList<BitRate>) -> Result<(), TraceError> {
        if self.opportunities > MAX_OPPORTUNITIES {
            return Err(TraceError::TooFast { line: self.line });
        }
        if self.at == 0 {
            *at_start = self.opportunities;
            return Ok(());
        }
        steps.push_line(Duration::from_millis(self.at - 1), BitRate(self.opportunities * OPPORTUNITY_RATE), self.line)
    }
}

fn millis(word: &str, line: usize) -> Result<u64, TraceError> {
    let at: u64 = word.parse().map_err(|_| TraceError::Millis { line, text: truncate(word) })?;
    if Duration::from_millis(at) > MAX_TIME { Err(TraceError::TooLong { line }) } else { Ok(at) }
}
