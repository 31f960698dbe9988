//! Virtual packets of one range that do not all fare alike.

use crate::link::Packet;

/// Takes `packet` apart where fates change: `next(most)` says how the next virtual packets fare, and how many of them
/// (at least one, at most `most`) do so; `tell` is given the longest ranges of one fate.
pub(super) fn apart<Fate: Copy + PartialEq>(
    packet: Packet,
    mut next: impl FnMut(u32) -> (Fate, u32),
    mut tell: impl FnMut(Fate, Packet),
) {
    let (mut begin, mut end) = (0, 0);
    let mut before = None;
    while end < packet.count {
        let (fate, count) = next(packet.count - end);
        debug_assert!((1..=packet.count - end).contains(&count));
        if let Some(before) = before.filter(|before| *before != fate) {
            tell(before, packet.part(begin, end - begin));
            begin = end;
        }
        before = Some(fate);
        end += count.max(1);
    }
    if let Some(fate) = before {
        tell(fate, packet.part(begin, packet.count - begin));
    }
}

/// As [`apart`], for fates that are known beforehand; of no virtual packet is well.
pub(super) fn apart_as<Fate: Copy + PartialEq, const RUNS: usize>(
    packet: Packet,
    fates: [(Fate, u32); RUNS],
    tell: impl FnMut(Fate, Packet),
) {
    debug_assert_eq!(fates.iter().map(|(_, count)| count).sum::<u32>(), packet.count);
    let mut runs = fates.into_iter().filter(|(_, count)| *count > 0);
    let last = fates[RUNS - 1].0;
    apart(packet, |most| runs.next().unwrap_or((last, most)), tell);
}
