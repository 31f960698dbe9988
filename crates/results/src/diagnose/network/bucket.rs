//! Token buckets: a policer drops the packets above its rate, a shaper delays them.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use serde_json::json;

use super::flat_rtt::has_flat_rtt;
use super::loss_kind::{MIN_QUIET_LOSS, is_bbr, lost_run};
use crate::diagnose::remedy::rate_below;
use crate::diagnose::settings::host_shaper::host_shaper;
use crate::diagnose::shortfall::Shortfall;
use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::trains::MIN_DROPPED_EXCESS;
use crate::evidence::figures::{Figures, TrainFigures, TrainPlateau};
use crate::prediction::MSS_HEADERS;

/// Header of Ethernet, which a queueing discipline counts too, bytes.
const ETHERNET_HEADER: u32 = 14;
/// MSS on Ethernet with timestamps, bytes.
const USUAL_MSS: u32 = 1448;

/// Maximum rate of a bucket as a share of the payload capacity. The line itself is the limit above it.
pub(in crate::diagnose) const MAX_RATE_SHARE: f64 = 0.9;
/// Minimum share of the intervals within 3 % of their median goodput, for a constant rate.
pub(in crate::diagnose) const MIN_CONSTANT_SHARE: f64 = 0.5;
/// Width of the range around the median goodput, for a policer whose losses make the rate vary.
pub(in crate::diagnose) const POLICED_WIDTH: f64 = 0.08;
/// Minimum share of the intervals in this range.
pub(in crate::diagnose) const MIN_POLICED_SHARE: f64 = 0.75;
/// Minimum retransmitted share of the settled part for a policer.
pub(in crate::diagnose) const MIN_POLICED_LOSS: f64 = 0.0005;
/// Minimum lost segments of a recovery for a policer, if the congestion control slows down after a loss.
pub(in crate::diagnose) const MIN_POLICED_RUN: f64 = 3.0;
/// Maximum goodput of BBR behind a policer, as a share of the goodput that BBR keeps with the same random loss.
pub(in crate::diagnose) const MAX_BBR_SHARE: f64 = 0.77;
/// Maximum share of the busy time limited by the receive window, for BBR behind a policer: the data behind a loss fills a
/// small window.
pub(in crate::diagnose) const MAX_BBR_RWND_SHARE: f64 = 0.1;
/// Minimum rate of trains that pass over the rate of a bucket: the trains show that there is no such bucket.
pub(in crate::diagnose) const MIN_PASSED_FACTOR: f64 = 1.5;
/// Maximum goodput of TCP over the rate of a bucket: trains that the hosts send or receive badly show a lower rate.
pub(in crate::diagnose) const MAX_GOODPUT_FACTOR: f64 = 1.2;
/// Maximum lost share of the trains below the rate that passes, if only one train shows this rate.
pub(in crate::diagnose) const MAX_UNCERTAIN_LOSS: f64 = 0.005;
/// Maximum congestion window of a stream whose bursts the line drops, segments: two initial windows (RFC 6928).
pub(in crate::diagnose) const MAX_BURST_SEGMENTS: u64 = 20;
/// Minimum retransmitted share of such a stream.
pub(in crate::diagnose) const MIN_BURST_LOSS: f64 = 0.01;
/// Maximum goodput of such a stream over the rate of the trains: a bucket passes more.
pub(in crate::diagnose) const MAX_BURST_GOODPUT: f64 = 0.2;
/// Minimum delay of the data in a queue of a shaper, in base RTTs.
pub(in crate::diagnose) const MIN_DELAY_SHARE: f64 = 0.25;
/// Minimum of the same delay.
pub(in crate::diagnose) const MIN_DELAY: Duration = Duration::from_millis(5);

/// Finds a bucket without a queue: the trains lose their excess without delay, or the losses of a constant rate come
/// without a queue.
pub(in crate::diagnose) fn policer(figures: &Figures) -> Option<Finding> {
    if host_shaper(figures).is_some() {
        return None;
    }
    let by_trains =
        limiting_plateau(figures).filter(|at| at.dropped_excess >= MIN_DROPPED_EXCESS && !has_queue(figures));
    if let Some(plateau) = by_trains {
        let summary = format!(
            "{} arrive of each train that is faster; {:.0} % of the excess is lost; maximum delay {}",
            plateau.rate,
            plateau.dropped_excess.min(1.0) * 100.0,
            show_duration(plateau.max_delay),
        );
        return Some(bucket(figures, Cause::Policer, summary, plateau.rate, Confidence::High));
    }
    // The trains decide where they show a rate.
    if limiting_plateau(figures).is_some() {
        return None;
    }
    let shortfall = Shortfall::of(figures)?;
    let rate = policed_rate(figures, &shortfall).filter(|rate| !passes_more(figures, *rate))?;
    let summary = format!(
        "the goodput is constant at {rate} of payload, and the excess is lost without a queue: RTT {} without load, {} under load",
        show_duration(figures.base_rtt),
        show_duration(figures.rtt_under_load()),
    );
    let confidence = if figures.counters.retransmitted >= 100 { Confidence::Medium } else { Confidence::Low };
    Some(bucket(figures, Cause::Policer, summary, rate, confidence))
}

/// Finds a bucket with a queue: the trains wait and are lost only then, or a constant rate below the capacity fills a
/// queue.
pub(in crate::diagnose) fn shaper(figures: &Figures) -> Option<Finding> {
    if host_shaper(figures).is_some() {
        return None;
    }
    let by_trains = limiting_plateau(figures).filter(|_| has_queue(figures));
    if let Some(plateau) = by_trains {
        let burst = match plateau.burst_bytes {
            Some(bytes) => format!(", after a burst of {} without delay", Bytes(bytes)),
            None => String::new(),
        };
        let summary = format!(
            "{} arrive of each train that is faster{burst}; the excess waits up to {} in a queue",
            plateau.rate,
            show_duration(plateau.max_delay),
        );
        let confidence = if plateau.burst_bytes.is_some() { Confidence::High } else { Confidence::Medium };
        return Some(bucket(figures, Cause::Shaper, summary, plateau.rate, confidence));
    }
    if limiting_plateau(figures).is_some() {
        return None;
    }
    let shortfall = Shortfall::of(figures)?;
    let (rate, share) = figures.course.plateau()?;
    let delay = data_delay(figures)?;
    let is_delayed = delay >= MIN_DELAY && delay.as_secs_f64() >= MIN_DELAY_SHARE * figures.base_rtt.as_secs_f64();
    let below = rate.as_f64() < MAX_RATE_SHARE * shortfall.predicted.goodput.as_f64() && !passes_more(figures, rate);
    if share < MIN_CONSTANT_SHARE || !is_delayed || !below {
        return None;
    }
    let summary = format!(
        "the goodput is constant at {rate} of payload ({:.0} % of the intervals within 3 %), and data waits up to {} in a queue",
        share * 100.0,
        show_duration(delay),
    );
    Some(bucket(figures, Cause::Shaper, summary, rate, Confidence::Medium))
}

/// Returns true if trains pass at a rate above the rate of a bucket, longer than its burst. A capacity from trains is such a rate.
fn passes_more(figures: &Figures, rate: BitRate) -> bool {
    figures.is_capacity_measured
        || figures.trains.as_ref().is_some_and(|trains| trains.max_passed.as_f64() >= MIN_PASSED_FACTOR * rate.as_f64())
}

fn has_queue(figures: &Figures) -> bool {
    figures.trains.as_ref().is_some_and(TrainFigures::has_queue)
}

/// Returns the rate that trains show, if it is below the capacity and limits the test.
pub(super) fn limiting_plateau(figures: &Figures) -> Option<TrainPlateau> {
    let trains = figures.trains.as_ref()?;
    let plateau = trains.plateau.filter(|plateau| !drops_bursts(figures, plateau))?;
    // A bucket does not pass more than its rate, and one train says little about a path that loses datagrams at any rate.
    let is_exceeded = figures.steady_goodput().as_f64() > MAX_GOODPUT_FACTOR * plateau.rate.as_f64();
    if is_exceeded || (plateau.trains == 1 && trains.quiet_loss() >= MAX_UNCERTAIN_LOSS) {
        return None;
    }
    let capacity = figures.path.map(|path| path.payload_capacity().as_f64());
    let is_below = match capacity {
        Some(capacity) => plateau.rate.as_f64() < MAX_RATE_SHARE * capacity,
        // Without a known capacity, a burst above the rate shows that the line is faster, and each line has a queue.
        None => plateau.burst_bytes.is_some() || plateau.lacks_queue,
    };
    is_below.then_some(plateau)
}

/// Returns true if the line drops small bursts of the hosts at any mean rate: TCP loses data far below the rate of the trains, and
/// evenly spaced trains below this rate lose nothing. A bucket of so few packets is a queue that is too short.
fn drops_bursts(figures: &Figures, plateau: &TrainPlateau) -> bool {
    let (sent, lost) = (figures.counters.sent, figures.counters.retransmitted);
    let quiet = figures.trains.as_ref().is_some_and(|trains| trains.quiet_loss() < MIN_QUIET_LOSS);
    let few = figures.streams.iter().all(|flow| flow.cwnd.0 <= MAX_BURST_SEGMENTS * u64::from(flow.mss.max(1)));
    quiet
        && few
        && lost as f64 >= MIN_BURST_LOSS * sent.max(1) as f64
        && figures.steady_goodput().as_f64() <= MAX_BURST_GOODPUT * plateau.rate.as_f64()
}

/// Returns the rate of payload of a policer that the intervals of the test show. Measured with policers of 10 and 20 Mb/s
/// that have 9.55 and 19.1 Mb/s of payload, 20 to 150 ms: BBR shows 99 to 101 % of it, CUBIC 95 to 101 %.
fn policed_rate(figures: &Figures, shortfall: &Shortfall) -> Option<BitRate> {
    let settled = figures.course.settled();
    let (middle, _) = figures.course.plateau()?;
    let is_near = |rate: f64| (rate - middle.as_f64()).abs() <= POLICED_WIDTH * middle.as_f64();
    let near = settled.iter().filter(|at| is_near(at.goodput.as_f64())).count();
    let resent: u64 = settled.iter().map(|at| at.retransmitted).sum();
    let mss = figures.streams.iter().map(|flow| flow.mss).max().filter(|mss| *mss > 0)?;
    let bits: f64 = settled.iter().map(|at| at.goodput.as_f64() * at.seconds()).sum();
    let lost = resent as f64 * f64::from(mss) * 8.0 / bits.max(1.0);
    let below = middle.as_f64() < MAX_RATE_SHARE * shortfall.predicted.goodput.as_f64();
    let constant = near as f64 >= MIN_POLICED_SHARE * settled.len() as f64 && settled.len() >= 4;
    if !constant || !below || lost < MIN_POLICED_LOSS || !has_flat_rtt(figures) {
        return None;
    }
    let is_policed = if is_bbr(figures) {
        share_of_bbr(figures, lost) <= MAX_BBR_SHARE && figures.rwnd_share().is_some_and(|at| at <= MAX_BBR_RWND_SHARE)
    } else {
        lost_run(figures)? >= MIN_POLICED_RUN
    };
    // An interval in which a loss is repaired delivers the data behind the loss too, so the peak is above the rate.
    is_policed.then_some(middle)
}

/// Returns the goodput as a share of the goodput that BBR keeps with this random loss. Measured over 10 to 100 ms: 99 %
/// of the capacity with a loss of 1 %, 96 % with 5 %, 93 % with 8 %.
fn share_of_bbr(figures: &Figures, lost: f64) -> f64 {
    let Some(path) = figures.path else { return 1.0 };
    let kept = (1.0 - 1.5 * lost).max(0.5) * path.payload_capacity().as_f64();
    figures.steady_goodput().as_f64() / kept.max(1.0)
}

/// Returns the longest wait of the data in a queue, without the waits of the acknowledgements.
fn data_delay(figures: &Figures) -> Option<Duration> {
    let course = &figures.course;
    let risen = course.max_rtt().checked_sub(figures.base_rtt)?;
    let Some(waits) = course.waits() else { return Some(risen) };
    // The acknowledgements wait in a queue of their own.
    if waits.acknowledgements > waits.data.max(0.0) && waits.acknowledgements > risen.as_secs_f64() / 4.0 {
        return None;
    }
    Some(risen)
}

/// Returns the goodput of a sender that paces its packets, with their headers, at a rate.
fn paced_goodput(figures: &Figures, paced: BitRate) -> BitRate {
    let mss = figures.streams.iter().map(|flow| flow.mss).max().filter(|mss| *mss > 0).unwrap_or(USUAL_MSS);
    let payload = f64::from(mss) / f64::from(mss.saturating_add(MSS_HEADERS + ETHERNET_HEADER));
    BitRate((paced.as_f64() * payload) as u64)
}

fn bucket(figures: &Figures, cause: Cause, summary: String, rate: BitRate, confidence: Confidence) -> Finding {
    let paced = rate_below(rate);
    // Both fq and TCP pace each stream by itself.
    let of_stream = BitRate((paced.0 / u64::from(figures.stream_count().max(1))).max(1)).to_argument();
    let remedy = match &figures.sender.interface {
        Some(interface) => Remedy {
            command: format!(
                "tc qdisc replace dev {} root fq maxrate {of_stream}   # or order a higher rate",
                interface.name
            ),
            host: Some(figures.sender.name.clone()),
        },
        None => figures.repeat_command(&format!("--pacing {of_stream}")),
    };
    // The gain is the goodput that the bucket costs. Pacing keeps the rate of the bucket, without losses.
    let mut finding = finding(figures, cause, summary, remedy, figures.possible_goodput());
    finding.predicted = Some(paced_goodput(figures, paced));
    finding.confidence = Some(confidence);
    finding.evidence = figures_map([
        ("rate_bits_per_second", json!(rate.0)),
        ("goodput_bits_per_second", json!(figures.steady_goodput().0)),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
        ("max_rtt_seconds", json!(figures.course.max_rtt().as_secs_f64())),
        ("retransmitted_segments", json!(figures.counters.retransmitted)),
    ]);
    if let Some(plateau) = figures.trains.as_ref().and_then(|trains| trains.plateau) {
        finding.evidence.extend(figures_map([
            ("trains", json!(plateau.trains)),
            ("train_rate_bits_per_second", json!(plateau.rate.0)),
            ("dropped_excess_share", json!(plateau.dropped_excess)),
            ("max_train_delay_seconds", json!(plateau.max_delay.as_secs_f64())),
            ("burst_bytes", json!(plateau.burst_bytes)),
        ]));
    }
    finding
}
