//! Queues of the bottleneck: a queue that is too short, and a queue that others fill.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, show_duration};
use serde_json::json;

use super::bucket::{MAX_RATE_SHARE, MIN_CONSTANT_SHARE, MIN_DELAY, MIN_DELAY_SHARE, limiting_plateau};
use super::delivery::{MIN_REORDERED_SHARE, is_jittery};
use super::flat_rtt::has_flat_rtt;
use super::loss_kind::{MIN_LOST_DATAGRAMS, MIN_RUN, is_bbr, lost_run};
use crate::diagnose::path::{MAX_RETRANSMITTED_SHARE, retransmitted_later};
use crate::diagnose::remedy::rate_below;
use crate::diagnose::shortfall::Shortfall;
use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;
use crate::evidence::figures::trains::MIN_DROPPED_EXCESS;

/// Maximum size of a short queue in BDPs. CUBIC keeps a path busy with 0.43, Reno with 1.
pub(in crate::diagnose) const MAX_SHORT_QUEUE: f64 = 0.25;
/// Maximum packets of a queue that is short on any path: the initial window is a burst of ten (RFC 6928).
pub(in crate::diagnose) const MAX_SHORT_PACKETS: f64 = 10.0;
/// Minimum goodput as a share of the payload capacity, for a short queue that BBR overflows.
pub(in crate::diagnose) const MIN_BBR_GOODPUT: f64 = 0.75;
/// Minimum losses of a recovery, for a short queue that BBR overflows. Random loss of 5 % has 3.
pub(in crate::diagnose) const MIN_BBR_RUN: f64 = 6.0;
/// Maximum share of the intervals within 3 % of their median goodput on a path with other traffic.
pub(in crate::diagnose) const MAX_CONSTANT_SHARE: f64 = MIN_CONSTANT_SHARE;
/// Minimum delay of trains at a low rate in base RTTs, for a queue that others fill.
pub(in crate::diagnose) const MIN_SHARED_SHARE: f64 = 0.1;
/// Minimum lost share of these trains if the RTT changes from packet to packet: the queue is full.
pub(in crate::diagnose) const MIN_SHARED_LOSS: f64 = 0.03;
/// Minimum length in time of a test that shows other traffic, in round trips.
pub(in crate::diagnose) const MIN_SETTLED: usize = 4;

/// Finds a queue that overflows before the path is full for a round trip.
pub(in crate::diagnose) fn short_queue(figures: &Figures) -> Option<Finding> {
    let path = figures.path?;
    let bdp = path.bdp().0 as f64;
    let known = path.queue.map(|queue| queue.0 as f64 / bdp.max(1.0));
    // A longer queue would have delayed packets before it overflowed.
    let longest = figures.course.max_rtt().saturating_sub(figures.base_rtt);
    let seen = longest.as_secs_f64() / figures.base_rtt.as_secs_f64().max(f64::MIN_POSITIVE);
    let by_trains = queue_of_trains(figures);
    // Trains above the rate of the line fill its queue, so they show a longer one.
    let shows_more = figures.trains.as_ref().is_some_and(|trains| trains.plateau.is_some()) && by_trains.is_none();
    let is_short = !shows_more && known.unwrap_or(seen) <= MAX_SHORT_QUEUE && seen <= MAX_SHORT_QUEUE;
    if !(is_short || by_trains.is_some()) || !has_flat_rtt(figures) {
        return None;
    }
    let goodput = figures.steady_goodput();
    let (later, segments) = retransmitted_later(figures)?;
    let run = lost_run(figures).unwrap_or(0.0);
    let overflows = if by_trains.is_some() {
        // The line drops what does not fit: TCP below the capacity with losses meets the same queue.
        Shortfall::of(figures).is_some()
    } else if is_bbr(figures) {
        run >= MIN_BBR_RUN
            && goodput.as_f64() >= MIN_BBR_GOODPUT * path.payload_capacity().as_f64()
            && later > MAX_RETRANSMITTED_SHARE
    } else {
        let below = goodput.as_f64() < crate::evidence::figures::FULL_SHARE * path.payload_capacity().as_f64();
        // HyStart ends slow start at the first delay, but a short queue overflows before it delays a packet much.
        below && run >= MIN_RUN && (known.is_some() || figures.counters.hystart_exits == Some(0))
    };
    if !overflows || (segments == 0 && figures.counters.retransmitted == 0) {
        return None;
    }
    let size = Bytes((longest.as_secs_f64() * path.capacity.as_f64() / 8.0) as u64).min(Bytes(path.bdp().0));
    let summary = format!(
        "packets are lost in bursts before a queue grows: RTT {} without load, at most {} under load; the queue holds at \
         most {}, and the path needs {} in flight",
        show_duration(figures.base_rtt),
        show_duration(figures.course.max_rtt()),
        path.queue.map_or(size, |queue| queue.max(Bytes(1))),
        path.bdp(),
    );
    let remedy = if is_bbr(figures) {
        let each = goodput.as_f64() / f64::from(figures.stream_count().max(1));
        let paced = rate_below(BitRate(each as u64)).to_argument();
        figures.repeat_command(&format!("--pacing {paced}"))
    } else {
        figures.repeat_command("--congestion bbr")
    };
    let predicted = figures.possible_goodput().map(|possible| possible.max(path.payload_capacity()));
    let mut finding = finding(figures, Cause::ShortQueue, summary, remedy, predicted);
    finding.confidence = Some(match (known, by_trains) {
        (None, None) => Confidence::Low,
        _ => Confidence::High,
    });
    finding.evidence = figures_map([
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
        ("max_rtt_seconds", json!(figures.course.max_rtt().as_secs_f64())),
        ("retransmitted_share", json!(later)),
        ("known_queue_bytes", json!(path.queue.map(|queue| queue.0))),
        ("lost_run", json!(run)),
    ]);
    Some(finding)
}

/// Returns the delay of the queue of the line, if trains above its rate lose their excess and show a short queue.
fn queue_of_trains(figures: &Figures) -> Option<Duration> {
    let plateau = figures.trains.as_ref()?.plateau.filter(|at| at.dropped_excess >= MIN_DROPPED_EXCESS)?;
    let delay = plateau.max_delay.as_secs_f64();
    let packets = delay * plateau.rate.as_f64() / 8.0 / f64::from(figures.path?.mtu.max(1));
    let is_short = delay <= MAX_SHORT_QUEUE * figures.base_rtt.as_secs_f64() || packets <= MAX_SHORT_PACKETS;
    // A bucket drops its excess below the rate of the line.
    (is_short && limiting_plateau(figures).is_none()).then_some(plateau.max_delay)
}

/// Finds a queue that stays full while the test has only a varying part of the capacity.
pub(in crate::diagnose) fn shared_path(figures: &Figures) -> Option<Finding> {
    if figures.trains.is_some() {
        return shared_by_trains(figures);
    }
    let shortfall = Shortfall::of(figures)?;
    let waits = figures.course.waits()?;
    let (_, constant) = figures.course.plateau()?;
    let min = MIN_DELAY.as_secs_f64().max(MIN_DELAY_SHARE * figures.base_rtt.as_secs_f64());
    let settled = figures.course.settled();
    // The queue never empties, although the test alone would empty it after its losses.
    let always = settled.iter().filter(|at| at.rtt.saturating_sub(figures.base_rtt).as_secs_f64() >= min).count();
    if settled.len() < MIN_SETTLED
        || waits.data < min
        || waits.acknowledgements > waits.data / 2.0
        || constant > MAX_CONSTANT_SHARE
        || always < settled.len() * 3 / 4
    {
        return None;
    }
    let summary = format!(
        "the data waits {} in a queue all the time, but only {} of {} arrive: other traffic fills the queue",
        show_duration(Duration::try_from_secs_f64(waits.data).unwrap_or_default()),
        shortfall.goodput,
        shortfall.predicted.goodput,
    );
    Some(shared(figures, shortfall.goodput, summary, waits.data))
}

/// Finds a queue that delays trains below the goodput of the test: other traffic fills it. Such a queue changes slowly, and
/// jitter from packet to packet.
fn shared_by_trains(figures: &Figures) -> Option<Finding> {
    let trains = figures.trains.as_ref()?;
    if let Some((low, high)) = trains.rising {
        return shared_by_rising(figures, low, high);
    }
    let shortfall = Shortfall::of(figures)?;
    let varies = trains.delay_variation?.as_secs_f64();
    let min = MIN_DELAY.as_secs_f64().max(MIN_SHARED_SHARE * figures.base_rtt.as_secs_f64());
    let is_full = trains.quiet.1 >= MIN_LOST_DATAGRAMS && trains.quiet_loss() >= MIN_SHARED_LOSS;
    if varies < min || (is_jittery(figures, varies) && !is_full) || trains.reordered_share >= MIN_REORDERED_SHARE {
        return None;
    }
    let summary = format!(
        "datagrams at a low rate wait {}, and {} of {} of them were lost, while {} of {} arrive: other traffic fills the queue",
        show_duration(Duration::try_from_secs_f64(varies).unwrap_or_default()),
        trains.quiet.1,
        trains.quiet.0,
        shortfall.goodput,
        shortfall.predicted.goodput,
    );
    Some(shared(figures, shortfall.goodput, summary, varies))
}

/// Finds a queue in which faster trains get more, on a path that is not full: a limit of the hosts or of the test may keep its
/// goodput low too.
fn shared_by_rising(figures: &Figures, low: BitRate, high: BitRate) -> Option<Finding> {
    let capacity = figures.path?.payload_capacity();
    let goodput = figures.steady_goodput();
    if goodput.as_f64() >= MAX_RATE_SHARE * capacity.as_f64() {
        return None;
    }
    let summary = format!(
        "trains of datagrams wait in a queue and pass at {low} to {high}, the faster the more: they displace other traffic; \
         {goodput} of {capacity} arrive"
    );
    let wait = figures.rtt_under_load().saturating_sub(figures.base_rtt).as_secs_f64();
    let shortfall = Shortfall::of(figures);
    let mut finding = shared(figures, shortfall.as_ref().map_or(goodput, |shortfall| shortfall.goodput), summary, wait);
    if shortfall.is_none() {
        finding.predicted = Some(goodput);
        finding.gain = Some(BitRate(0));
    }
    Some(finding)
}

fn shared(figures: &Figures, goodput: BitRate, summary: String, wait: f64) -> Finding {
    let remedy = Remedy {
        command: format!("mtr -n {}   # repeat at another time of day", figures.far_network_name()),
        host: None,
    };
    let mut finding = finding(figures, Cause::SharedPath, summary, remedy, figures.possible_goodput());
    finding.confidence = Some(Confidence::Medium);
    finding.evidence = figures_map([
        ("data_wait_seconds", json!(wait)),
        ("goodput_bits_per_second", json!(goodput.0)),
        ("rtt_under_load_seconds", json!(figures.rtt_under_load().as_secs_f64())),
    ]);
    finding
}
