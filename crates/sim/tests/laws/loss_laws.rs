//! Properties of loss models: loss share, gaps and burst lengths match the model for any traffic.
//!
//! Each case has a million packets in virtual time, from fixed seeds. A statistic fails beyond the 99.99 % quantile. A
//! correct model passes with almost any seed, and a slightly wrong model fails.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::{DropCause, Gilbert, Link, LinkConfig, LinkEvent, LossModel, Packet};
use lfn_sim::{ScriptedArrival, run_link};
use proptest::prelude::*;

use crate::statistics::*;
use crate::support::{self, link, singles};

const COUNT: usize = 1_000_000;

/// Returns a link that is faster than the arrivals, so that only the loss decides.
fn config(model: LossModel, seed: u64) -> LinkConfig {
    LinkConfig {
        rate: BitRate(1_000_000_000_000).into(),
        queue: Bytes(1 << 40).into(),
        slice: Duration::from_secs(1),
        loss: model,
        seed,
        ..LinkConfig::default()
    }
}

/// Returns for each virtual packet in order whether it is lost.
fn lost(link: &mut Link, arrivals: &[ScriptedArrival]) -> Vec<bool> {
    let events = run_link(link, arrivals.iter().copied());
    support::outcomes(arrivals, &events, |event, _| match event {
        LinkEvent::Drop { cause, .. } => *cause == DropCause::Loss || panic!("{event:?}"),
        LinkEvent::Forward { .. } => false,
        LinkEvent::Duplicate { .. } => panic!("{event:?}"),
    })
}

/// Returns a super-packet of `size` every millisecond.
fn steady(count: usize, size: u32) -> Vec<ScriptedArrival> {
    let each = |id: u64| ScriptedArrival {
        at: Instant::from_nanos(id * 1_000_000),
        packet: Packet::super_packet(id, size, 1514, 1514),
    };
    (0..(count as u64).div_ceil(u64::from(size))).map(each).collect()
}

fn outcomes(text: &str, seed: u64) -> Vec<bool> {
    let model: LossModel = text.parse().unwrap();
    let mut link = link(&config(model, seed));
    lost(&mut link, &steady(COUNT, 40))
}

/// Returns the upper ends of about 20 bins with an equal number of `lengths`. The last bin has no end.
fn bins(lengths: &[u64]) -> Vec<u64> {
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let mut ends: Vec<_> = (1..20).map(|part| sorted[sorted.len() * part / 20]).collect();
    ends.dedup();
    ends.push(u64::MAX);
    ends
}

/// Checks that both samples come from the same distribution.
fn assert_alike(some: &[u64], others: &[u64], what: &str) {
    let all: Vec<_> = some.iter().chain(others).copied().collect();
    let ends = bins(&all);
    if ends.len() == 1 {
        return;
    }
    let (a, b) = (some.len() as f64, others.len() as f64);
    let (first, second) = (histogram(some, &ends), histogram(others, &ends));
    let term = |(x, y): (&f64, &f64)| {
        if x + y > 0.0 { (x * (b / a).sqrt() - y * (a / b).sqrt()).powi(2) / (x + y) } else { 0.0 }
    };
    let statistic: f64 = first.iter().zip(&second).map(term).sum();
    let limit = chi_square_limit(ends.len() - 1);
    assert!(statistic < limit, "{what}: chi-square {statistic:.1} of {} bins is above {limit:.1}", ends.len());
}

#[test]
fn chi_square_limits_match_published_tables() {
    for (freedom, limit) in [(2, 18.421), (5, 25.745), (10, 35.564), (19, 50.795), (30, 67.633)] {
        let actual = chi_square_limit(freedom);
        assert!((0.99..1.05).contains(&(actual / limit)), "{freedom}: {actual}");
    }
}

#[test]
fn independent_loss_gaps_are_geometric() {
    for (p, seed) in [(1e-4, 1), (1e-3, 2), (0.01, 3), (0.1, 4), (0.5, 5), (0.9, 6)] {
        let outcomes = outcomes(&p.to_string(), seed);
        let what = format!("loss {p}");
        assert_binomial(share(&outcomes) * COUNT as f64, COUNT as f64, p, &what);
        assert_geometric(&gaps(&outcomes), p, &what);
    }
}

#[test]
fn gilbert_bursts_and_gaps_match_settings() {
    for (p, r, seed) in
        [(0.001, 0.25, 1), (0.01, 0.5, 2), (0.005, 0.1, 3), (0.05, 0.9, 4), (0.3, 0.2, 5), (0.002, 1.0, 6)]
    {
        let outcomes = outcomes(&format!("gilbert:p={p}:r={r}"), seed);
        let what = format!("p = {p}, r = {r}");
        let (bursts, between) = (runs(&outcomes, true), runs(&outcomes, false));
        assert!((mean(&bursts) * r - 1.0).abs() < 0.05, "{what}: bursts of {}", mean(&bursts));
        assert!((mean(&between) * p - 1.0).abs() < 0.12, "{what}: {} between bursts", mean(&between));
        if r < 1.0 {
            assert_geometric(&bursts, r, &format!("{what}, bursts"));
        } else {
            assert!(bursts.iter().all(|length| *length == 1));
        }
        assert_geometric(&between, p, &format!("{what}, between"));
    }
}

#[test]
fn gilbert_loss_and_burst_length_match_settings() {
    for (loss, burst, seed) in [(0.01, 4.0, 1), (0.05, 10.0, 2), (0.2, 1.5, 3), (0.5, 3.0, 4)] {
        let outcomes = outcomes(&format!("gilbert:loss={loss}:burst={burst}"), seed);
        let seen = mean(&runs(&outcomes, true));
        assert!((seen / burst - 1.0).abs() < 0.05, "bursts of {seen}, not {burst}");
        // Losses come in bursts, so the deviation of their number is larger by the burst length.
        let deviation = NORMAL * (2.0 * burst * loss / COUNT as f64).sqrt();
        assert!((share(&outcomes) - loss).abs() < deviation, "{} of {loss}", share(&outcomes));
    }
}

/// Chain of netem, packet by packet (net/sched/sch_netem.c, `loss_gilb_ell`): one draw for the state of the next
/// packet, another for this packet.
fn netem(gilbert: &Gilbert, mut coin: impl FnMut() -> f64) -> Vec<bool> {
    let mut is_bad = false;
    let mut step = || {
        let (leave, pass) =
            if is_bad { (gilbert.to_good, gilbert.pass_bad) } else { (gilbert.to_bad, gilbert.pass_good) };
        let is_lost = coin() >= pass.get();
        is_bad ^= coin() < leave.get();
        is_lost
    };
    (0..COUNT).map(|_| step()).collect()
}

/// A different generator from the link's: xorshift64* (Vigna, 2016).
fn coins(mut state: u64) -> impl FnMut() -> f64 {
    move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[test]
fn gilbert_elliott_matches_netem() {
    for (text, seed) in [
        ("gilbert:p=1%:r=10%:h=50%:k=99.9%", 1),
        ("gilbert:p=5%:r=30%:h=20%:k=98%", 2),
        ("gilbert:p=30%:r=60%:h=70%:k=90%", 3),
        ("gilbert:p=1%:r=100%:h=0:k=99%", 4),
        ("gilbert:p=100%:r=100%:h=25%:k=75%", 5),
    ] {
        let LossModel::Gilbert(gilbert) = text.parse().unwrap() else { panic!("{text}") };
        let (ours, theirs) = (outcomes(text, seed), netem(&gilbert, coins(seed + 7)));
        assert!((share(&ours) / share(&theirs) - 1.0).abs() < 0.03, "{text}: {} of {}", share(&ours), share(&theirs));
        for of in [true, false] {
            assert_alike(&runs(&ours, of), &runs(&theirs, of), &format!("{text}, runs of {of}"));
        }
    }
}

#[test]
fn gilbert_starts_in_its_long_term_state() {
    // 20 % lost in bursts of 4: over many links, the first packet is lost as often as any other packet.
    let model: LossModel = "gilbert:loss=20%:burst=4".parse().unwrap();
    let first = |seed| lost(&mut Link::new(&config(model.clone(), seed)).unwrap(), &steady(1, 1))[0];
    let seen = (0..20_000).filter(|seed| first(*seed)).count();
    assert_binomial(seen as f64, 20_000.0, 0.2, "first packets");
}

#[test]
fn burst_length_is_exact_and_starts_are_random() {
    for (p, length, seed) in [(1e-4, 10, 1), (1e-3, 100, 2), (0.01, 3, 3), (0.2, 2, 4), (0.5, 1, 5)] {
        let outcomes = outcomes(&format!("burst:{p}:{length}"), seed);
        let what = format!("bursts of {length} at {p}");
        // A burst may follow another burst immediately. Together they look like one burst of twice the length.
        let lengths = runs(&outcomes, true);
        assert!(lengths.iter().all(|lost| lost % length == 0), "{what}");
        let bursts: Vec<_> = lengths.iter().map(|lost| lost / length).collect();
        assert_geometric(&bursts, 1.0 - p, &what);
        assert_geometric(&runs(&outcomes, false), p, &what);
    }
}

#[test]
fn model_mean_equals_measured_loss() {
    for text in [
        "none",
        "1e-3",
        "gilbert:p=1%:r=10%:h=50%:k=99.9%",
        "nth:7",
        "burst:0.01:3",
        "burst:1:5",
        "steps:0s=0+1s=10%+2s=50%:every=5s",
        "at:1s:3",
    ] {
        let expected = text.parse::<LossModel>().unwrap().mean().get();
        let seen = share(&outcomes(text, 1));
        assert!((seen - expected).abs() < 0.02 * expected + 1e-5, "{text}: {seen}, not {expected}");
    }
}

#[test]
fn nth_model_loses_every_nth_packet() {
    for nth in [1, 2, 7, 100, 1_000_000] {
        let outcomes = outcomes(&format!("nth:{nth}"), 1);
        assert!(outcomes.iter().zip(1..).all(|(lost, count)| *lost == (count % nth == 0)), "every {nth}th");
    }
}

/// The traffic has 40 packets per millisecond.
#[test]
fn schedule_loses_exactly_its_entries() {
    let outcomes = outcomes("at:0s:1+1s:3+2s:100+2s:5+3s:1ms+4s:2500us+5s:2+5.001s:0", 1);
    let mut expected = vec![false; COUNT];
    for (second, count) in [(0, 1), (1, 3), (2, 105), (3, 40), (4, 120), (5, 2)] {
        expected[second * 40_000..][..count].fill(true);
    }
    assert_eq!(gaps(&outcomes), gaps(&expected));
    assert_eq!(outcomes, expected);
}

#[test]
fn loss_timetable_changes_on_time() {
    // Every 4 s: nothing, 1 %, 50 %, everything.
    let outcomes = outcomes("steps:0s=0+1s=1%+2s=50%+3s=1:every=4s", 1);
    let mut seconds = [0.0; 4];
    for (lost, index) in outcomes.iter().zip(0..) {
        seconds[index / 40_000 % 4] += f64::from(u8::from(*lost));
    }
    // In 25 s the first second occurs seven times, the others six times.
    assert_eq!((seconds[0], seconds[3]), (0.0, 240_000.0));
    assert_binomial(seconds[1], 240_000.0, 0.01, "the second at 1 %");
    assert_binomial(seconds[2], 240_000.0, 0.5, "the second at 50 %");
}

#[test]
fn super_packets_without_loss_are_cheap() {
    // Draws for each packet would take minutes.
    for text in ["none", "1e-15", "gilbert:p=1e-15:r=1", "nth:9000000000000", "burst:1e-15:5", "at:1h:3", "at:1h:1s"] {
        let config =
            LinkConfig { loss: text.parse().unwrap(), queue: Bytes(1 << 42).into(), ..config(LossModel::None, 1) };
        let mut link = link(&config);
        for id in 0..200 {
            let packet = Packet::super_packet(id, u32::MAX, 10, 10);
            let at = Instant::from_nanos(id * 1_000_000_000);
            let events = run_link(&mut link, [ScriptedArrival { at, packet }]);
            assert!(
                matches!(events[..], [LinkEvent::Forward { packet: forwarded, .. }] if forwarded == packet),
                "{text}"
            );
        }
    }
}

/// Strategy for models of every kind that have an effect within a few hundred packets in a second.
fn model() -> impl Strategy<Value = LossModel> {
    let share = || prop_oneof![Just(0.0), Just(1.0), 0.0..1.0_f64, 0.0..0.05];
    let text = prop_oneof![
        share().prop_map(|p| p.to_string()),
        (share(), 0.01..1.0_f64, share(), share()).prop_map(|(p, r, h, k)| format!("gilbert:p={p}:r={r}:h={h}:k={k}")),
        (1_u64..100).prop_map(|nth| format!("nth:{nth}")),
        (share(), 1_u64..100).prop_map(|(p, length)| format!("burst:{p}:{length}")),
        (0_u64..500, 0_u64..100, 0_u64..500, 0_u64..100)
            .prop_map(|(at, count, later, time)| format!("at:{at}ms:{count}+{}ms:{time}ms", at + later)),
        (share(), 1_u64..500, share(), 1_u64..500)
            .prop_map(|(p, at, q, more)| format!("steps:0s={p}+{at}ms={q}:every={}ms", at + more)),
    ];
    text.prop_map(|text| text.parse().unwrap())
}

fn arrivals() -> impl Strategy<Value = Vec<ScriptedArrival>> {
    let packet = (prop_oneof![Just(1_u32), 1_u32..64], 0_u64..50);
    prop::collection::vec(packet, 1..60).prop_map(|packets| {
        let mut at = Instant::ZERO;
        let mut next = |((count, gap), id)| {
            at += Duration::from_millis(gap);
            ScriptedArrival { at, packet: Packet::super_packet(id, count, 1514, 60) }
        };
        packets.into_iter().zip(0..).map(&mut next).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn super_packets_and_singles_have_equal_outcomes(model in model(), arrivals in arrivals(), seed: u64) {
        let config = config(model, seed);
        let together = lost(&mut link(&config), &arrivals);
        let alone = lost(&mut link(&config), &singles(&arrivals));
        prop_assert_eq!(together, alone);
    }

    #[test]
    fn super_packets_are_cut_only_where_loss_changes(model in model(), arrivals in arrivals(), seed: u64) {
        let mut link = link(&config(model, seed));
        let mut ranges: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for event in run_link(&mut link, arrivals.iter().copied()) {
            let (LinkEvent::Forward { packet, .. } | LinkEvent::Drop { packet, .. } | LinkEvent::Duplicate { packet, .. }) = event;
            ranges.entry(packet.id).or_default().push((packet.first, matches!(event, LinkEvent::Drop { .. })));
        }
        for ranges in ranges.values_mut() {
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 != pair[1].1), "{ranges:?}");
        }
    }

    #[test]
    fn setting_the_same_model_changes_nothing(model in model(), arrivals in arrivals(), seed: u64, often in 1_usize..10) {
        let config = config(model, seed);
        let expected = lost(&mut link(&config), &arrivals);
        let mut link = link(&config);
        let mut actual = Vec::new();
        for (arrival, index) in arrivals.iter().zip(0..) {
            if index % often == 0 {
                // Another delay must not change the lost packets.
                let delay = Duration::from_micros(index as u64);
                link.set(0, &LinkConfig { delay: delay.into(), ..config.clone() }, arrival.at).unwrap();
            }
            actual.extend(lost(&mut link, &[*arrival]));
        }
        prop_assert_eq!(actual, expected);
    }

    /// A changed model does not depend on earlier losses. A model without loss loses nothing.
    #[test]
    fn changed_model_starts_from_its_beginning(model in model(), arrivals in arrivals(), seed: u64, nth in 1_usize..50) {
        let set = LossModel::Nth(nth as u64);
        prop_assume!(model != set);
        let mut link = link(&config(model, seed));
        let (before, after) = arrivals.split_at(arrivals.len() / 2);
        lost(&mut link, before);
        let now = after[0].at;
        link.set(0, &config(set, seed), now).unwrap();
        let outcomes = lost(&mut link, after);
        prop_assert!(outcomes.iter().zip(1..).all(|(lost, count)| *lost == (count % nth == 0)));
    }
}

#[test]
fn late_schedule_skips_entries_in_the_past() {
    let mut link = link(&config(LossModel::None, 1));
    let second = |second: u64, id| ScriptedArrival {
        at: Instant::from_nanos(second * 1_000_000_000),
        packet: Packet::single(id, 60),
    };
    assert_eq!(lost(&mut link, &[second(1, 0)]), [false]);
    let late: LossModel = "at:1s:3+2s:10s+20s:1".parse().unwrap();
    link.set(0, &config(late, 1), Instant::from_nanos(5_000_000_000)).unwrap();
    let outcomes =
        lost(&mut link, &[second(6, 1), second(11, 2), second(12, 3), second(19, 4), second(21, 5), second(22, 6)]);
    assert_eq!(outcomes, [true, true, false, false, true, false]);
}
