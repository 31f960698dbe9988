//! The account of a UDP receiver against one made afterwards with everything at hand.

use std::collections::{BTreeMap, BTreeSet};

use lfn_core::udp::receiver::{Arrival, MOST_RANGES, Receiver};
use lfn_core::udp::runs::Runs;
use proptest::prelude::*;

/// What RFC 4737, RFC 3357 and plain counting say of arrivals, by looking at all of them again and again.
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
    let mut receiver = Receiver::default();
    for (at, &sequence) in arrivals.iter().enumerate() {
        receiver.arrived(sequence, sequence * 1000, at as u64 * 1000);
    }
    receiver.finish(sent);
    let figures = receiver.figures();
    let exact = |counts: &[lfn_core::udp::runs::RunCount]| counts.iter().map(|c| (c.from, c.count)).collect();
    Account {
        received: figures.datagrams,
        lost: figures.lost,
        duplicates: figures.duplicates,
        reordered: figures.reordered,
        by_three: figures.reordered_by_three,
        extents: exact(&figures.extents),
        bursts: exact(&figures.loss_bursts),
    }
}

/// Lengths as they are counted: longer ones fall together.
fn binned(lengths: BTreeMap<u64, u64>) -> BTreeMap<u64, u64> {
    let mut runs = Runs::default();
    for (length, count) in lengths {
        (0..count).for_each(|_| runs.add(length));
    }
    runs.counts().iter().map(|c| (c.from, c.count)).collect()
}

/// Datagrams sent in order, of which the path loses, delays and doubles some.
fn crossed(sent: u64) -> impl Strategy<Value = Vec<u64>> {
    let fate = (0..10u8, 0..40u64, 0..40u64);
    proptest::collection::vec(fate, sent as usize).prop_map(|fates| {
        let mut arrivals: Vec<(u64, u64)> = Vec::new();
        for (sequence, (fate, delay, again)) in (0u64..).zip(fates) {
            match fate {
                0 | 1 => {}
                2 => arrivals.extend([(sequence + delay, sequence), (sequence + again, sequence)]),
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
    fn every_datagram_is_accounted_for(arrivals in crossed(300)) {
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

    /// Whatever numbers a peer makes up: no panic, and the sums hold.
    #[test]
    fn any_numbers_leave_an_account_that_adds_up(numbers in proptest::collection::vec(any::<u64>(), 0..200), sent: u64) {
        let mut receiver = Receiver::default();
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

/// A peer that leaves out every other number makes a range of each: the memory stays bounded, the sums stay right.
#[test]
fn more_gaps_than_there_is_room_for_are_given_up_as_lost() {
    let mut receiver = Receiver::default();
    let gaps = 3 * MOST_RANGES as u64;
    for number in 0..=gaps {
        receiver.arrived(2 * number, 0, 0);
    }
    assert_eq!(receiver.missing(), gaps);
    assert_eq!(receiver.arrived(1, 0, 0), Arrival::Unknown, "nobody knows any more");
    assert_eq!(receiver.arrived(2 * gaps - 1, 0, 0), Arrival::Late);
    assert_eq!(receiver.arrived(2 * gaps - 1, 0, 0), Arrival::Duplicate);
    let figures = receiver.figures();
    assert_eq!((figures.lost, figures.too_late, figures.duplicates, figures.reordered), (gaps - 1, 1, 1, 1));
    assert_eq!(figures.loss_bursts.iter().map(|c| c.count).sum::<u64>(), gaps - 1);
    assert_eq!(figures.most_extent, 1);
}
