//! The evidence of one direction of a finished connection.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_packet::TcpFlags;
use lfn_results::evidence::capture::{
    ApplicationEvidence, CaptureEvidence, CaptureFaults, CapturePathEvidence, CapturePoint, CaptureRtt,
    DeliveryEvidence, Handshake, LossEvidence, QueueEvidence, WindowEvidence,
};

use crate::bucket;
use crate::connection::{ConnectionState, End};
use crate::half::{PathRtt, Round};
use crate::judge::{self, Direction};

/// Share of a round trip's RTT to one side, from which the capture is at the other side.
const MIN_SIDE_SHARE: f64 = 0.9;

/// Returns the evidence of the data from one end.
pub(crate) fn evidence(state: &mut ConnectionState, sender: usize) -> CaptureEvidence {
    let rtt = rtt(state, sender);
    let handshake = handshake(state, sender);
    let arrivals = std::mem::take(&mut state.ends[sender].half.arrivals);
    let (own, other) = (&state.ends[sender], &state.ends[1 - sender]);
    let half = &own.half;
    let rounds = half.rounds.as_slice();
    let active: u64 = rounds.iter().map(Round::time).sum();
    let application = application(own);
    let base = nanos(rtt.base);
    let has_window = other.pure_acks + other.half.counts.packets > 0 && half.counts.max_window > 0;
    let direction = Direction {
        start: state.start,
        base_rtt: base,
        mss: half.counts.mss,
        is_lockstep: application.lockstep.as_nanos() as f64 > 0.5 * active as f64,
        has_window,
    };
    let judged = judge::judge(rounds, &direction);
    let loss = loss(own, &direction, judged.startup_end);
    let policer = if loss.before_capture + loss.after_capture > 0 {
        bucket::fit(&arrivals.into_sorted(), 1, half.counts.mss)
    } else {
        None
    };
    CaptureEvidence {
        sender: endpoint(own),
        receiver: endpoint(other),
        point: point(&rtt),
        duration: Duration::from_nanos(state.last.saturating_sub(state.start)),
        active: Duration::from_nanos(active),
        payload: Bytes(half.counts.payload.max(half.counts.acknowledged)),
        reverse_payload: Bytes(other.half.counts.payload.max(other.half.counts.acknowledged)),
        packets: state.packets,
        data_packets: half.counts.packets,
        mss_bytes: half.counts.mss,
        window: window(own, &direction, active),
        queue: queue(rounds, &direction, active, half),
        delivery: delivery(own, other, state),
        path: path(own, other, state),
        faults: faults(state, sender),
        handshake,
        rtt,
        loss,
        application,
        startup: judged.startup,
        policer,
        periods: judged.periods,
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn endpoint(end: &End) -> String {
    match end.endpoint.address {
        core::net::IpAddr::V4(address) => format!("{address}:{}", end.endpoint.port),
        core::net::IpAddr::V6(address) => format!("[{address}]:{}", end.endpoint.port),
    }
}

fn rtt(state: &ConnectionState, sender: usize) -> CaptureRtt {
    let PathRtt { receiver_min, sender_min, .. } = state.path_rtt(sender);
    let (own, other) = (&state.ends[sender].rtt, &state.ends[1 - sender].rtt);
    let whole = |share: f64| {
        let of = |end: &crate::round_trip::EndRtt, min: u64| end.quantile(share).unwrap_or(min).max(min);
        Duration::from_nanos(of(other, receiver_min) + of(own, sender_min))
    };
    CaptureRtt {
        base: Duration::from_nanos(receiver_min + sender_min),
        receiver_side: Duration::from_nanos(receiver_min),
        sender_side: Duration::from_nanos(sender_min),
        median: whole(0.5),
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

fn handshake(state: &ConnectionState, sender: usize) -> Handshake {
    let (own, other) = (&state.ends[sender], &state.ends[1 - sender]);
    let hello = (own.hello, other.hello);
    let syn = own.hello.into_iter().chain(other.hello).min_by_key(|hello| hello.first_at);
    let lost = [own.hello, other.hello].into_iter().flatten().map(|hello| hello.at - hello.first_at).max();
    let scale = state.window_scale(1 - sender);
    let ecn =
        |hello: crate::connection::Hello| hello.flags.0 & (TcpFlags::ECE.0 | TcpFlags::CWR.0 | TcpFlags::AE.0) != 0;
    Handshake {
        is_complete: matches!(hello, (Some(_), Some(_))),
        rtt: syn.zip(state.established).map(|(syn, at)| Duration::from_nanos(at.saturating_sub(syn.at))),
        lost_syn: Duration::from_nanos(lost.unwrap_or(0)),
        window_scale: scale.or((other.inferred_scale > 0).then_some(other.inferred_scale)),
        is_scale_inferred: scale.is_none(),
        sender_offers_scaling: own.hello.is_some_and(|hello| hello.options.window_scale.is_some()),
        receiver_offers_scaling: other.hello.is_some_and(|hello| hello.options.window_scale.is_some()),
        sack: matches!(hello, (Some(a), Some(b)) if a.options.sack_permitted && b.options.sack_permitted),
        timestamps: matches!(hello, (Some(a), Some(b)) if a.options.timestamps.is_some() && b.options.timestamps.is_some()),
        receiver_mss: other.hello.and_then(|hello| hello.options.mss),
        sender_mss: own.hello.and_then(|hello| hello.options.mss),
        ecn: matches!(hello, (Some(a), Some(b)) if ecn(a) && ecn(b)),
    }
}

fn application(own: &End) -> ApplicationEvidence {
    let rounds = own.half.rounds.as_slice();
    let exchanges = &own.half.exchanges;
    let sum = |of: fn(&Round) -> u64| Duration::from_nanos(rounds.iter().map(of).sum());
    ApplicationEvidence {
        receiver_waits: sum(|round| round.pause.receiver),
        sender_waits: sum(|round| round.pause.sender),
        idle: sum(|round| round.pause.idle),
        pauses: rounds.iter().filter(|round| round.pause.total() > 1_000_000).count() as u64,
        lockstep_blocks: exchanges.lockstep_blocks,
        lockstep: Duration::from_nanos(exchanges.lockstep_wait),
        lockstep_block: Bytes(exchanges.median_block()),
        delayed_ack_stalls: exchanges.delayed_acks,
        delayed_ack: Duration::from_nanos(exchanges.delayed_ack),
    }
}

fn loss(own: &End, direction: &Direction, startup_end: u64) -> LossEvidence {
    let counts = &own.half.counts;
    let lost = counts.lost_before + counts.lost_after;
    let losses: u64 = counts.events.iter().map(|event| event.losses).sum();
    let share = |selected: u64| if losses == 0 { 0.0 } else { selected as f64 / losses as f64 };
    let flat_limit = direction.base_rtt / 10 + 1_000_000;
    let flat = counts.events.iter().filter(|event| event.delay <= flat_limit).map(|event| event.losses).sum();
    let spurious = counts.spurious.max(counts.duplicate_reports.min(counts.resent));
    LossEvidence {
        before_capture: counts.lost_before,
        after_capture: counts.lost_after.saturating_sub(spurious - counts.spurious),
        spurious,
        events: counts.event_count,
        largest_event: counts.events.iter().map(|event| event.losses).max().unwrap_or(0),
        single_events: counts.events.iter().filter(|event| event.losses == 1).count() as u64,
        startup_losses: counts
            .events
            .iter()
            .filter(|event| event.at <= startup_end + direction.base_rtt)
            .map(|event| event.losses)
            .sum(),
        timeouts: counts.timeouts,
        timeout: Duration::from_nanos(counts.timeout),
        share: lost as f64 / counts.packets.max(1) as f64,
        at_flat_rtt_share: share(flat),
        at_full_rate_share: 0.0,
    }
}

fn window(own: &End, direction: &Direction, active: u64) -> WindowEvidence {
    let rounds = own.half.rounds.as_slice();
    let counts = &own.half.counts;
    let share = |time: u64| if active == 0 { 0.0 } else { time as f64 / active as f64 };
    let full: u64 = rounds.iter().map(|round| round.full).sum();
    let binding = rounds.iter().filter(|round| direction.is_window_limited(round)).map(Round::time).sum();
    let mut windows: Vec<u64> =
        rounds.iter().filter(|round| direction.is_window_limited(round)).map(|round| round.window).collect();
    windows.sort_unstable();
    WindowEvidence {
        typical: Bytes(windows.get(windows.len() / 2).copied().unwrap_or(counts.max_window)),
        max: Bytes(counts.max_window),
        max_in_flight: Bytes(counts.max_in_flight),
        full_share: share(full),
        binding_share: share(binding),
        zero: Duration::from_nanos(rounds.iter().map(|round| round.closed).sum::<u64>() + counts.closed_while_idle),
        zero_windows: counts.zero_windows,
        shrunk_share: share(rounds.iter().map(|round| round.shrunk).sum()),
    }
}

fn queue(rounds: &[Round], direction: &Direction, active: u64, half: &crate::half::Half) -> QueueEvidence {
    let share = |time: u64| if active == 0 { 0.0 } else { time as f64 / active as f64 };
    let standing: u64 = rounds.iter().filter(|round| !direction.is_flat(round.rtt)).map(Round::time).sum();
    let busy: Vec<&Round> = rounds
        .iter()
        .filter(|round| round.acknowledged >= 4 * u64::from(direction.mss) && !round.is_drained && round.time() > 0)
        .collect();
    let plateau = plateau(&busy);
    let at_plateau: u64 = busy
        .iter()
        .filter(|round| plateau.is_some_and(|plateau| round.rate() >= 0.85 * plateau))
        .map(|round| round.time())
        .sum();
    let mut delays: Vec<u64> = half.counts.events.iter().map(|event| event.delay).collect();
    delays.sort_unstable();
    let max = rounds.iter().map(|round| round.rtt.saturating_sub(direction.base_rtt)).max().unwrap_or(0);
    QueueEvidence {
        standing_share: share(standing),
        plateau: plateau.map(|plateau| BitRate((plateau * 8.0) as u64)),
        plateau_share: share(at_plateau),
        delay_at_loss: delays.get(delays.len() / 2).map(|delay| Duration::from_nanos(*delay)),
        max_delay: Duration::from_nanos(max),
        competing: None,
    }
}

/// Returns the rate that the fastest fifth of the time exceeds, bytes per second.
fn plateau(rounds: &[&Round]) -> Option<f64> {
    let mut rates: Vec<(f64, u64)> = rounds.iter().map(|round| (round.rate(), round.time())).collect();
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all: u64 = rates.iter().map(|(_, time)| time).sum();
    let mut seen = 0;
    for (rate, time) in rates {
        seen += time;
        if seen * 5 >= all {
            return Some(rate);
        }
    }
    None
}

fn delivery(own: &End, other: &End, state: &ConnectionState) -> DeliveryEvidence {
    let counts = &own.half.counts;
    DeliveryEvidence {
        reordered: counts.late,
        max_lateness: Duration::from_nanos(counts.max_lateness),
        duplicated: if is_captured_twice(state) { 0 } else { own.copies },
        duplicate_reports: counts.duplicate_reports,
        lost_acknowledgements: other.ids.missing(),
        acknowledgements: other.pure_acks,
        acknowledgement_burst_share: 0.0,
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

fn path(own: &End, other: &End, state: &ConnectionState) -> CapturePathEvidence {
    let half = &own.half;
    let oldest = half.oldest();
    let silent = oldest.is_some_and(|(_, resends, _)| resends >= 3);
    CapturePathEvidence {
        outage: Duration::ZERO,
        outage_start: Duration::ZERO,
        is_silent_peer: silent && other.last_at <= oldest.map_or(0, |(at, _, _)| at),
        black_hole: oldest
            .filter(|(_, resends, size)| *resends >= 3 && half.counts.passed_size < *size)
            .map(|(_, _, size)| Bytes(u64::from(size))),
        too_big_messages: state.too_big,
        reported_mtu: state.reported_mtu,
        ecn_marked: own.ecn.marked,
        ecn_echoes: other.ecn.echoes,
        ecn_capable: own.ecn.capable,
        is_ecn_bleached: false,
        is_proxied: false,
        fragments: 0,
    }
}
