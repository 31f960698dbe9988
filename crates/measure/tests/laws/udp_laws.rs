//! Statistics of a UDP receiver against a reference that is computed afterwards from all arrivals.

use std::collections::{BTreeMap, BTreeSet};

use lfn_measure::proto::udp::receiver::{ArrivalKind, DatagramReceiver, MAX_RANGES};
use lfn_measure::proto::udp::runs::Runs;
use proptest::prelude::*;

/// Statistics by RFC 4737, RFC 3357 and plain counting, from repeated passes over all arrivals.
#[derive(Debug, PartialEq, Default)]
struct Account {
    received: u64,
    lost: u64,
    duplicates: u64,
    reordered: u64,
    by_three: u64,
    extents: BTreeMap<u64, u64>,
    bursts: BTreeMap<u64, u64>,
}

fn naive(arrivals: &[u64], sent: u64) -> Account {
    let mut account = Account::default();
    let mut seen: Vec<u64> = Vec::new();
    for &sequence in arrivals {
        if seen.contains(&sequence) {
            account.duplicates += 1;
            continue;
        }
        if let Some(first_later) = seen.iter().position(|&before| before > sequence) {
            account.reordered += 1;
            *account.extents.entry((seen.len() - first_later) as u64).or_default() += 1;
            if seen.len() >= 3 && seen[seen.len() - 3..].iter().all(|&before| before > sequence) {
                account.by_three += 1;
            }
        }
        seen.push(sequence);
    }
    let numbers: BTreeSet<u64> = seen.iter().copied().collect();
    account.received = numbers.len() as u64;
    let mut run = 0;
    for sequence in 0..=sent {
        if sequence < sent && !numbers.contains(&sequence) {
            run += 1;
            account.lost += 1;
        } else if run > 0 {
            *account.bursts.entry(run).or_default() += 1;
            run = 0;
        }
    }
    account
}

fn measured(arrivals: &[u64], sent: u64) -> Account {
    let mut receiver = DatagramReceiver::default();
    for (at, &sequence) in arrivals.iter().enumerate() {
        receiver.arrived(sequence, sequence * 1000, at as u64 * 1000);
    }
    receiver.finish(sent);
    let figures = receiver.figures();
    let exact = |counts: &[lfn_results::udp::figures::RunCount]| counts.iter().map(|c| (c.from, c.count)).collect();
    Account {
        received: figures.datagrams,
        lost: figures.lost,
        duplicates: figures.duplicates,
        reordered: figures.reordered,
        by_three: figures.reordered_by_three,
        extents: exact(&figures.reordering_extents),
        bursts: exact(&figures.loss_bursts),
    }
}

/// Returns the lengths in the bins of [`Runs`]: long lengths share a bin.
fn binned(lengths: BTreeMap<u64, u64>) -> BTreeMap<u64, u64> {
    let mut runs = Runs::default();
    for (length, count) in lengths {
        (0..count).for_each(|_| runs.add(length));
    }
    runs.counts().iter().map(|c| (c.from, c.count)).collect()
}

/// Datagrams sent in order over a path that loses, delays and duplicates some of them.
fn crossed(sent: u64) -> impl Strategy<Value = Vec<u64>> {
    let outcome = (0..10u8, 0..40u64, 0..40u64);
    proptest::collection::vec(outcome, sent as usize).prop_map(|outcomes| {
        let mut arrivals: Vec<(u64, u64)> = Vec::new();
        for (sequence, (outcome, delay, copy_delay)) in (0u64..).zip(outcomes) {
            match outcome {
                0 | 1 => {}
                2 => arrivals.extend([(sequence + delay, sequence), (sequence + copy_delay, sequence)]),
                3 | 4 => arrivals.push((sequence + delay, sequence)),
                _ => arrivals.push((sequence, sequence)),
            }
        }
        arrivals.sort_by_key(|(when, _)| *when);
        arrivals.into_iter().map(|(_, sequence)| sequence).collect()
    })
}

proptest! {
    #[test]
    fn every_datagram_is_counted(arrivals in crossed(300)) {
        let mut expected = naive(&arrivals, 300);
        expected.extents = binned(expected.extents);
        expected.bursts = binned(expected.bursts);
        prop_assert_eq!(measured(&arrivals, 300), expected);
    }

    #[test]
    fn a_shuffle_loses_nothing(arrivals in Just((0..200u64).collect::<Vec<_>>()).prop_shuffle()) {
        let mut expected = naive(&arrivals, 200);
        expected.extents = binned(expected.extents);
        prop_assert_eq!(measured(&arrivals, 200), expected);
    }

    /// With any numbers from a peer, nothing panics and the sums are correct.
    #[test]
    fn any_numbers_give_consistent_sums(numbers in proptest::collection::vec(any::<u64>(), 0..200), sent: u64) {
        let mut receiver = DatagramReceiver::default();
        for &number in &numbers {
            receiver.arrived(number, number, number.rotate_left(7));
        }
        receiver.finish(sent);
        let figures = receiver.figures();
        prop_assert_eq!(figures.datagrams + figures.lost, receiver.next());
        let kinds = figures.datagrams + figures.duplicates + figures.too_late;
        prop_assert_eq!(kinds, numbers.len() as u64);
        prop_assert!(serde_json::to_string(&figures).unwrap().len() < 20_000);
    }
}

/// A peer that skips every other number creates a range for each gap. The memory stays bounded and the sums stay
/// correct.
#[test]
fn excess_gaps_count_as_lost() {
    let mut receiver = DatagramReceiver::default();
    let gaps = 3 * MAX_RANGES as u64;
    for number in 0..=gaps {
        receiver.arrived(2 * number, 0, 0);
    }
    assert_eq!(receiver.missing(), gaps);
    assert_eq!(receiver.arrived(1, 0, 0), ArrivalKind::Unknown, "no longer known");
    assert_eq!(receiver.arrived(2 * gaps - 1, 0, 0), ArrivalKind::Late);
    assert_eq!(receiver.arrived(2 * gaps - 1, 0, 0), ArrivalKind::Duplicate);
    let figures = receiver.figures();
    assert_eq!((figures.lost, figures.too_late, figures.duplicates, figures.reordered), (gaps - 1, 1, 1, 1));
    assert_eq!(figures.loss_bursts.iter().map(|c| c.count).sum::<u64>(), gaps - 1);
    assert_eq!(figures.max_reordering_extent, 1);
}
