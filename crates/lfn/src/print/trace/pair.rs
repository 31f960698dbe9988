//! Comparison of two captures as text.

use lfn_base::units::{Bytes, show_duration};
use lfn_results::evidence::pair::{PairDelay, PairDirection, PairEvidence, PairLoss};

use crate::print::label_columns::Page;

/// Groups of lost packets that a line names.
const MAX_LOSSES: usize = 3;

/// Adds the comparison of both captures.
pub(super) fn add(page: &mut Page, pair: &PairEvidence) {
    page.row(
        "both captures",
        format!("{} connections, {} packets near, {} far", pair.connections, pair.near_packets, pair.far_packets),
    );
    direction(page, "near to far", &pair.forward);
    direction(page, "far to near", &pair.reverse);
    match &pair.clock {
        Some(clock) => {
            let offset = clock.offset_seconds.get() * 1e3;
            page.row(
                "clocks",
                format!(
                    "far minus near {offset:+.3} ms if both directions have the same minimum delay, else ±{}; minimum RTT \
                     between the captures {}",
                    show_duration(clock.uncertainty),
                    show_duration(clock.min_rtt)
                ),
            );
        }
        None => page.row("clocks", "offset unknown: no packet of either direction is in both captures"),
    }
    page.gap();
}

fn direction(page: &mut Page, label: &str, direction: &PairDirection) {
    page.row(label, loss(direction));
    if let Some(first) = first_losses(&direction.losses) {
        page.row("", first);
    }
    if direction.missed_by_first + direction.missed_by_second > 0 {
        let (first, second) = (direction.missed_by_first, direction.missed_by_second);
        page.row("", format!("missed by the captures: {first} packets by the first, {second} by the second"));
    }
    if direction.reordered > 0 {
        let late = show_duration(direction.max_lateness);
        page.row("", format!("{} packets reordered, late by up to {late}", direction.reordered));
    }
    if let Some(delay) = &direction.delay {
        page.row("", delays(delay));
    }
}

fn loss(direction: &PairDirection) -> String {
    let acks = match direction.lost_acknowledgements {
        0 => String::new(),
        lost => format!(", {lost} acknowledgements"),
    };
    if direction.lost == 0 {
        return format!("{} packets sent, no data lost{acks}", direction.sent);
    }
    let share = direction.lost_share * 100.0;
    format!(
        "{} packets sent, {} lost between the captures ({share:.2} %, {}) in {} groups of up to {}{acks}",
        direction.sent,
        direction.lost,
        Bytes(direction.lost_bytes).decimal(),
        direction.loss_bursts,
        direction.largest_burst
    )
}

fn first_losses(losses: &[PairLoss]) -> Option<String> {
    let shown: Vec<String> = losses.iter().take(MAX_LOSSES).map(one_loss).collect();
    let more = if losses.len() > MAX_LOSSES { " …" } else { "" };
    (!shown.is_empty()).then(|| format!("first: {}{more}", shown.join("; ")))
}

fn one_loss(loss: &PairLoss) -> String {
    let time = loss.time.map(|time| format!("after {}: ", show_duration(time))).unwrap_or_default();
    format!("{time}{} at byte {}", loss.packets, loss.offset_bytes)
}

fn delays(delay: &PairDelay) -> String {
    let total = |queueing| show_duration(delay.total(queueing));
    format!(
        "delay {} minimum, {} median, {} p95, {} maximum",
        show_duration(delay.min),
        total(delay.median_queueing),
        total(delay.p95_queueing),
        total(delay.max_queueing)
    )
}
