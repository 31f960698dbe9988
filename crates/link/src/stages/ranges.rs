//! Splits a range into parts whose virtual packets have the same outcome.

use crate::packet::Packet;

/// Splits `packet` where outcomes change. `next(max)` returns the outcome of the next virtual packets and their number
/// (from 1 to `max`). `emit` receives the largest ranges with one outcome.
pub(super) fn split_by_outcome<Outcome: Copy + PartialEq>(
    packet: Packet,
    mut next: impl FnMut(u32) -> (Outcome, u32),
    mut emit: impl FnMut(Outcome, Packet),
) {
    let (mut begin, mut end) = (0, 0);
    let mut before = None;
    while end < packet.count {
        let (outcome, count) = next(packet.count - end);
        debug_assert!((1..=packet.count - end).contains(&count));
        if let Some(before) = before.filter(|before| *before != outcome) {
            emit(before, packet.part(begin, end - begin));
            begin = end;
        }
        before = Some(outcome);
        end += count.max(1);
    }
    if let Some(outcome) = before {
        emit(outcome, packet.part(begin, packet.count - begin));
    }
}

/// Splits `packet` like [`split_by_outcome`], with outcomes that are known in advance. A count of zero is allowed.
pub(super) fn split_by_known_outcomes<Outcome: Copy + PartialEq, const RUNS: usize>(
    packet: Packet,
    outcomes: [(Outcome, u32); RUNS],
    emit: impl FnMut(Outcome, Packet),
) {
    debug_assert_eq!(outcomes.iter().map(|(_, count)| count).sum::<u32>(), packet.count);
    let mut runs = outcomes.into_iter().filter(|(_, count)| *count > 0);
    let last = outcomes[RUNS - 1].0;
    split_by_outcome(packet, |max| runs.next().unwrap_or((last, max)), emit);
}
