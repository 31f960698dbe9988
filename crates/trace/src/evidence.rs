//! The evidence of one direction of a finished connection.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::time::Instant;
use lfn_base::units::Bytes;
use lfn_packet::TcpFlags;
use lfn_results::evidence::capture::{
    ApplicationEvidence, CaptureEvidence, CaptureFaults, CapturePathEvidence, CapturePoint, CaptureRtt,
    DeliveryEvidence, Handshake, LossEvidence, WindowEvidence,
};

use crate::bucket::{self, Tolerance};
use crate::connection::{ConnectionState, End, Hello};
use crate::half::{Arrival, LossEvent, MIN_UNANSWERED, Round, Silence};
use crate::judge::{self, JudgedDirection};
use crate::queue;
use crate::report::Connection;
use crate::sent_packets::{SendClock, SentPacket, likely_tick, sent_packets};

/// Share of a round trip's RTT to one side, from which the capture is at the other side.
const MIN_SIDE_SHARE: f64 = 0.9;

/// Difference of two packet sizes that is not an option.
const MIN_SIZE_STEP: u32 = 20;
/// Minimum payload of a packet that is too big for a path. Each IPv4 path carries 576 bytes (RFC 791 §3.2), with 40 to 80 bytes
/// of headers.
const MIN_BLACK_HOLE: u32 = 496;
/// Minimum data packets for a judgement of their ECN field.
const MIN_ECN_PACKETS: u64 = 20;
/// Minimum delay of a short queue: bursts of a sender delay less. Nanoseconds, and as a divisor of the base RTT.
const MIN_QUEUE: u64 = 1_000_000;
const MIN_QUEUE_DIVISOR: u64 = 50;
/// Minimum share of the active time in waits of lock-step, for a connection whose round trips the application limits.
const MIN_LOCKSTEP_SHARE: f64 = 0.3;
/// Share of losses that follow an RTT above the 80th percentile by chance: 0.2, with a margin for losses at the start of a burst.
const RANK_SHARE: f64 = 0.25;
/// Maximum probability that this many losses follow a high RTT by chance.
const MAX_CHANCE: f64 = 0.01;

/// Ends a connection. Returns also its packets, for connections that share a path.
pub(crate) fn finish(mut state: ConnectionState) -> (Connection, Vec<SentPacket>) {
    for number in 0..2 {
        let rtt = state.path_rtt(number);
        state.ends[number].half.finish(state.last, &rtt);
    }
    let ports = [&state.ends[0], &state.ends[1]].map(|end| end.endpoint.port);
    let client = state.client.unwrap_or_else(|| usize::from(ports[0] < ports[1]));
    let payload = |end: &End| end.half.counts.payload.max(end.half.acknowledged_payload);
    let sender = usize::from(payload(&state.ends[1]) > payload(&state.ends[0]));
    let (evidence, packets) = evidence(&mut state, sender);
    let series = state.ends[sender].half.series.take().map(|series| *series);
    let connection = Connection {
        client: state.ends[client].endpoint,
        server: state.ends[1 - client].endpoint,
        is_client_sender: sender == client,
        start: Instant::from_nanos(state.start),
        evidence,
        mptcp: state.mptcp,
        series,
    };
    (connection, packets)
}

/// Returns the evidence of the data from one end, and its packets if some were lost.
fn evidence(state: &mut ConnectionState, sender: usize) -> (CaptureEvidence, Vec<SentPacket>) {
    let rtt = rtt(state, sender);
    let handshake = handshake(state, sender);
    let arrivals = std::mem::take(&mut state.ends[sender].half.arrivals);
    let (own, other) = (&state.ends[sender], &state.ends[1 - sender]);
    let half = &own.half;
    let rounds = half.rounds.as_slice();
    let active: u64 = rounds.iter().map(Round::time).sum();
    let application = application(own, other);
    let base = nanos(rtt.base);
    let has_window = other.pure_acks + other.half.counts.packets > 0 && half.windows.max > 0;
    let direction = JudgedDirection {
        start: state.start,
        end: state.last,
        base_rtt: base,
        mss: half.counts.mss,
        is_lockstep: application.lockstep.as_nanos() as f64 > MIN_LOCKSTEP_SHARE * active as f64,
        has_window,
    };
    let judged = judge::judge(rounds, &direction);
    let arrivals = arrivals.into_sorted();
    let tolerance = Tolerance { mss: half.counts.mss, rtt: rtt.base.as_secs_f64() };
    let packets = sent_packets(&arrivals, send_clock(own, &rtt, &arrivals));
    let policer = bucket::fit(&packets, 1, &tolerance);
    let loss = loss(own, &direction, &rtt, judged.startup_loss);
    let duration = state.last.saturating_sub(state.start);
    let evidence = CaptureEvidence {
        sender: endpoint(own),
        receiver: endpoint(other),
        point: point(&rtt),
        duration: Duration::from_nanos(duration),
        // The last acknowledgement reaches a distant sender after the last packet.
        active: Duration::from_nanos(active.min(duration)),
        payload: Bytes(delivered(own, other)),
        reverse_payload: Bytes(delivered(other, own)),
        packets: state.packets,
        data_packets: half.counts.path_packets,
        mss_bytes: half.counts.mss,
        window: window(own, &direction, active),
        queue: queue::evidence(half, &direction, active, judged.startup_loss),
        delivery: delivery(own, other, state, point(&rtt)),
        path: path(own, other, state, point(&rtt)),
        faults: faults(state, sender),
        handshake,
        rtt,
        loss,
        application,
        startup: judged.startup,
        policer,
        periods: judged.periods,
    };
    (evidence, packets)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the payload, without data at the end that a silent receiver never acknowledged. Other data without an
/// acknowledgement was in flight at the end of the capture.
fn delivered(sender: &End, receiver: &End) -> u64 {
    let half = &sender.half;
    let is_silent = receiver.packets > 0 && half.counts.unanswered_timeouts >= MIN_UNANSWERED;
    if is_silent { half.acknowledged_payload } else { half.counts.payload.max(half.acknowledged_payload) }
}

fn endpoint(end: &End) -> String {
    match end.endpoint.address {
        core::net::IpAddr::V4(address) => format!("{address}:{}", end.endpoint.port),
        core::net::IpAddr::V6(address) => format!("[{address}]:{}", end.endpoint.port),
    }
}

fn rtt(state: &ConnectionState, sender: usize) -> CaptureRtt {
    let usual = |number: usize| state.ends[number].rtt.usual_min().unwrap_or(0);
    let (receiver_min, sender_min) = (usual(1 - sender), usual(sender));
    let (own, other) = (&state.ends[sender].rtt, &state.ends[1 - sender].rtt);
    let whole = |share: f64| {
        // A quantile is the middle of a bin, which can be above the maximum.
        let of = |end: &crate::round_trip::EndRtt, min: u64| end.quantile(share).unwrap_or(min).min(end.max).max(min);
        Duration::from_nanos(of(other, receiver_min) + of(own, sender_min))
    };
    CaptureRtt {
        base: Duration::from_nanos(receiver_min + sender_min),
        receiver_side: Duration::from_nanos(receiver_min),
        sender_side: Duration::from_nanos(sender_min),
        median: whole(0.5),
        p80: whole(0.8),
        p95: whole(0.95),
        max: Duration::from_nanos(other.max.max(receiver_min) + own.max.max(sender_min)),
    }
}

fn point(rtt: &CaptureRtt) -> CapturePoint {
    if rtt.base.is_zero() {
        return CapturePoint::Unknown;
    }
    let share = rtt.receiver_side.as_secs_f64() / rtt.base.as_secs_f64();
    if share >= MIN_SIDE_SHARE {
        CapturePoint::Sender
    } else if share <= 1.0 - MIN_SIDE_SHARE {
        CapturePoint::Receiver
    } else {
        CapturePoint::Middle
    }
}

/// Returns the clock that shows when packets were sent.
fn send_clock(own: &End, rtt: &CaptureRtt, arrivals: &[Arrival]) -> SendClock {
    match own.clock.tick().or_else(|| likely_tick(arrivals)) {
        _ if !rtt.base.is_zero() && rtt.receiver_side >= rtt.sender_side => {
            SendClock::Capture { base_rtt: nanos(rtt.base) }
        }
        Some(tick) => SendClock::Timestamps { tick },
        None => SendClock::Unknown,
    }
}

fn handshake(state: &ConnectionState, sender: usize) -> Handshake {
    let (own, other) = (&state.ends[sender], &state.ends[1 - sender]);
    let hello = (own.hello, other.hello);
    let syn = own.hello.into_iter().chain(other.hello).min_by_key(|hello| hello.first_at);
    let lost = [own.hello, other.hello].into_iter().flatten().map(|hello| hello.at - hello.first_at).max();
    let scale = state.window_scale(1 - sender);
    Handshake {
        is_complete: matches!(hello, (Some(a), Some(b)) if !a.is_truncated && !b.is_truncated),
        rtt: syn.zip(state.established).map(|(syn, at)| Duration::from_nanos(at.saturating_sub(syn.at))),
        lost_syn: Duration::from_nanos(lost.unwrap_or(0)),
        window_scale: scale.or((other.inferred_scale > 0).then_some(other.inferred_scale)),
        is_scale_inferred: scale.is_none(),
        sender_offers_scaling: own.hello.is_some_and(|hello| hello.window_scale.is_some()),
        receiver_offers_scaling: other.hello.is_some_and(|hello| hello.window_scale.is_some()),
        sack: matches!(hello, (Some(a), Some(b)) if a.sack_permitted && b.sack_permitted),
        timestamps: matches!(hello, (Some(a), Some(b)) if a.has_timestamps && b.has_timestamps),
        receiver_mss: other.hello.and_then(|hello| hello.mss),
        sender_mss: own.hello.and_then(|hello| hello.mss),
        ecn: matches!(hello, (Some(a), Some(b)) if offers_ecn(&a) && offers_ecn(&b)),
    }
}

fn application(own: &End, other: &End) -> ApplicationEvidence {
    let rounds = own.half.rounds.as_slice();
    // Both ends of an exchange wait. The waits of the end with the smaller answers are the clearer ones.
    let [own_exchanges, other_exchanges] = [own, other].map(|end| &end.half.exchanges);
    let is_own = own_exchanges.lockstep_wait >= other_exchanges.lockstep_wait;
    let exchanges = if is_own { own_exchanges } else { other_exchanges };
    let has_more = own_exchanges.delayed_ack >= other_exchanges.delayed_ack;
    let delayed = if has_more { own_exchanges } else { other_exchanges };
    let sum = |of: fn(&Round) -> u64| Duration::from_nanos(rounds.iter().map(of).sum());
    ApplicationEvidence {
        receiver_waits: sum(|round| round.pause.receiver),
        sender_waits: sum(|round| round.pause.sender),
        idle: sum(|round| round.pause.idle),
        pauses: rounds.iter().filter(|round| round.pause.application() > 1_000_000).count() as u64,
        lockstep_blocks: exchanges.lockstep_blocks,
        lockstep: Duration::from_nanos(exchanges.lockstep_wait),
        // A request or an answer is short; the block of the data is the larger one.
        lockstep_block: Bytes(own_exchanges.median_block().max(other_exchanges.median_block())),
        delayed_ack_stalls: delayed.delayed_acks,
        delayed_ack: Duration::from_nanos(delayed.delayed_ack),
        full_packets: u64::from(own.half.counts.sizes.largest_usual().packets),
        pushed_share: own.half.counts.pushed_share(),
        short_packet_share: own.half.counts.short_packets as f64 / own.half.counts.path_packets.max(1) as f64,
    }
}

/// Returns the maximum RTT before a loss at which no queue is assumed. The delay of a short queue is small, so the function
/// tests if the losses follow the highest fifth of the RTTs more often than by chance.
fn flat_limit(events: &[LossEvent], base: u64, rtt: &CaptureRtt) -> u64 {
    let near = base + base / 10 + 1_000_000;
    let usual = nanos(rtt.p80).max(base + MIN_QUEUE.max(base / MIN_QUEUE_DIVISOR));
    let above = events.iter().filter(|event| event.rtt > usual).count();
    let is_ranked = above * 2 >= events.len() && binomial_tail(events.len(), above, RANK_SHARE) < MAX_CHANCE;
    if is_ranked { near.min(usual) } else { near }
}

/// Returns the probability of `min_successes` or more successes in `trials`, each with probability `share`.
fn binomial_tail(trials: usize, min_successes: usize, share: f64) -> f64 {
    let mut term = (1.0 - share).powi(i32::try_from(trials).unwrap_or(i32::MAX));
    let mut below = 0.0;
    for successes in 0..min_successes {
        below += term;
        term *= (trials - successes) as f64 / (successes + 1) as f64 * share / (1.0 - share);
    }
    1.0 - below
}

fn loss(own: &End, direction: &JudgedDirection, rtt: &CaptureRtt, startup_loss: Option<u64>) -> LossEvidence {
    let counts = &own.half.counts;
    let lost = counts.lost_before + counts.lost_after;
    let flat_limit = flat_limit(&counts.events, direction.base_rtt, rtt);
    // Slow start overflows a queue once; the other losses show the path.
    let is_startup = |event: &&LossEvent| startup_loss.is_some_and(|end| event.at <= end) && event.rtt > flat_limit;
    let others = || counts.events.iter().filter(|event| !is_startup(event));
    let losses: u64 = others().map(|event| event.losses).sum();
    let flat = || others().filter(|event| event.rtt <= flat_limit);
    let flat_losses: u64 = flat().map(|event| event.losses).sum();
    let spurious = counts.spurious.max(counts.duplicate_reports.min(counts.resent));
    LossEvidence {
        before_capture: counts.lost_before,
        after_capture: counts.lost_after.saturating_sub(spurious - counts.spurious),
        spurious,
        retransmissions: counts.resent + counts.lost_before,
        events: counts.event_count,
        largest_event: counts.events.iter().map(|event| event.losses).max().unwrap_or(0),
        single_events: counts.events.iter().filter(|event| event.losses == 1).count() as u64,
        startup_losses: counts.events.iter().filter(is_startup).map(|event| event.losses).sum(),
        flat_losses,
        flat_events: flat().count() as u64,
        timeouts: counts.timeouts,
        timeout: Duration::from_nanos(counts.timeout),
        share: (lost as f64 / counts.path_packets.max(1) as f64).min(1.0),
        at_flat_rtt_share: if losses == 0 { 0.0 } else { flat_losses as f64 / losses as f64 },
    }
}

fn window(own: &End, direction: &JudgedDirection, active: u64) -> WindowEvidence {
    let rounds = own.half.rounds.as_slice();
    let (counts, windows) = (&own.half.counts, &own.half.windows);
    let share = |time: u64| if active == 0 { 0.0 } else { time as f64 / active as f64 };
    let full: u64 = rounds.iter().map(|round| round.full).sum();
    let binding = rounds.iter().filter(|round| direction.is_window_limited(round)).map(Round::time).sum();
    let limited = rounds.iter().filter(|round| direction.is_window_limited(round) && round.window < u64::MAX);
    let mut binding_windows: Vec<u64> = limited.map(|round| round.window).collect();
    binding_windows.sort_unstable();
    WindowEvidence {
        typical: Bytes(binding_windows.get(binding_windows.len() / 2).copied().unwrap_or(windows.max)),
        max: Bytes(windows.max),
        max_in_flight: Bytes(counts.max_in_flight),
        full_share: share(full),
        binding_share: share(binding),
        zero: Duration::from_nanos(rounds.iter().map(|round| round.closed).sum::<u64>() + counts.closed_while_idle),
        zero_windows: windows.closings,
        unread_share: (windows.unread as f64 / own.half.acknowledged_payload.max(1) as f64).min(1.0),
        shrunk_share: share(rounds.iter().map(|round| round.shrunk).sum()),
    }
}

fn delivery(own: &End, other: &End, state: &ConnectionState, point: CapturePoint) -> DeliveryEvidence {
    let counts = &own.half.counts;
    DeliveryEvidence {
        // A sender does not reorder its own packets: the capture does.
        reordered: if point == CapturePoint::Sender { counts.overtaken } else { counts.late.max(counts.overtaken) },
        max_lateness: Duration::from_nanos(counts.max_lateness),
        duplicated: if is_captured_twice(state) { 0 } else { own.copies.max(counts.network_duplicates) },
        duplicate_reports: counts.duplicate_reports,
        lost_acknowledgements: other.ids.missing(),
        acknowledgements: other.pure_acks,
        acknowledgement_delay_share: return_delay(own, other, point).and_then(Figure::new),
    }
}

/// Returns the share of the acknowledgements that waited on the way back, as far as the clocks of the timestamps show it.
fn return_delay(own: &End, other: &End, point: CapturePoint) -> Option<f64> {
    match point {
        CapturePoint::Sender | CapturePoint::Middle => other.clock.delayed_share(),
        CapturePoint::Receiver | CapturePoint::Unknown => own.clock.delayed_share().map(|_| 0.0),
    }
}

/// Returns true if most packets stand in the capture twice.
fn is_captured_twice(state: &ConnectionState) -> bool {
    let copies: u64 = state.ends.iter().map(|end| end.copies).sum();
    copies >= 3 && copies * 5 >= state.packets * 2
}

fn faults(state: &ConnectionState, sender: usize) -> CaptureFaults {
    let (own, other) = (&state.ends[sender], &state.ends[1 - sender]);
    CaptureFaults {
        captured_twice: if is_captured_twice(state) { state.ends.iter().map(|end| end.copies).sum() } else { 0 },
        missed: Bytes(own.half.counts.missed),
        pure_acknowledgements: other.pure_acks,
        is_one_way: own.packets == 0 || other.packets == 0,
        truncated_options: state.truncated_options,
        time_steps_back: state.steps_back,
    }
}

fn path(own: &End, other: &End, state: &ConnectionState, point: CapturePoint) -> CapturePathEvidence {
    let counts = &own.half.counts;
    let mss = counts.mss;
    let stuck = own.half.oldest().filter(|_| counts.unanswered_timeouts >= MIN_UNANSWERED);
    let unanswered = own.half.oldest().filter(|(_, resends, _)| *resends >= 3);
    let stuck_size = unanswered.map_or(0, |(_, _, size)| size.min(mss));
    let largest_lost = stuck_size.max(if counts.lost_after >= 3 { counts.lost_size } else { 0 });
    let has_message = state.too_big > 0;
    let has_silence = unanswered.is_some() || counts.outage.time() > 0;
    // Without any acknowledged data, only lost full packets can show a small MTU.
    let full = own.half.counts.mss_limit.unwrap_or(mss).min(mss);
    let is_large = largest_lost >= if counts.passed_size > 0 { MIN_BLACK_HOLE } else { full.max(MIN_BLACK_HOLE) };
    let is_hidden = !has_message && other.packets > 0;
    let black_hole = is_hidden && has_silence && is_large && largest_lost > counts.passed_size + MIN_SIZE_STEP;
    let last_answer = Silence { start: other.last_at.max(state.start), end: state.last };
    let jump = if own.ids.is_counter() { counts.jump } else { Silence::default() };
    let silence = if stuck.is_some() { last_answer } else { counts.outage.longer(jump) };
    let agreed_on_ecn = [own, other].iter().all(|end| end.hello.is_some_and(|hello| offers_ecn(&hello)));
    CapturePathEvidence {
        outage: Duration::from_nanos(silence.time()),
        outage_start: Duration::from_nanos(silence.start.saturating_sub(state.start)),
        is_silent_peer: stuck.is_some(),
        black_hole: black_hole.then(|| Bytes(u64::from(largest_lost))),
        largest_passed_bytes: counts.passed_size,
        too_big_messages: state.too_big,
        reported_mtu: state.reported_mtu,
        ecn_marked: own.ecn.marked,
        ecn_echoes: other.ecn.echoes,
        ecn_capable: own.ecn.capable,
        is_ecn_bleached: agreed_on_ecn
            && point != CapturePoint::Sender
            && own.ecn.data >= MIN_ECN_PACKETS
            && own.ecn.capable * 10 < own.ecn.data,
        is_proxied: is_proxied(other),
    }
}

fn offers_ecn(hello: &Hello) -> bool {
    hello.flags.0 & (TcpFlags::ECE.0 | TcpFlags::CWR.0 | TcpFlags::AE.0) != 0
}

/// Returns true if the handshake of an end comes from another host than its data: it has another TTL, or its answer is far
/// faster than each answer to data.
fn is_proxied(end: &End) -> bool {
    let Some(hello) = end.hello else { return false };
    let has_other_ttl = end.packets >= 10 && !end.has_other_ttl && end.ttl.is_some_and(|ttl| ttl != hello.ttl);
    has_other_ttl || end.rtt.has_faster_handshake()
}
