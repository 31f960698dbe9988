//! Settings as text: written text is read as the same value, and invalid text is refused.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::{
    Gilbert, LossExtent, LossModel, Outage, Outages, PathMtu, Policer, ScheduledLoss, SettingError, Shaper, Timetable,
};
use proptest::prelude::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn ratio(value: f64) -> Ratio {
    Ratio::new(value).unwrap()
}

/// Strategy for times from one nanosecond to six days in any unit. (Beyond 2^53 ns, a hundred days, some durations
/// cannot be typed.)
fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![1_u64..10_000, 1_u64..1_000_000_000, 1_u64..500_000_000_000_000].prop_map(Duration::from_nanos)
}

fn share() -> impl Strategy<Value = Ratio> {
    prop_oneof![Just(0.0), Just(1.0), 0.0..1.0, (0.0..1.0).prop_map(|x: f64| x.powi(30))].prop_map(ratio)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![1_u64..100, 1_u64..1_000_000_000, 1_u64..10_000_000_000_000]
}

/// Strategy for times in order, each with a duration before the next.
fn timetable() -> impl Strategy<Value = Vec<(Duration, Duration)>> {
    prop::collection::vec((time(), time()), 1..8).prop_map(|list| {
        let mut now = Duration::ZERO;
        let mut next = |(before, lasts)| {
            let at = now + before;
            now = at + lasts;
            (at, lasts)
        };
        list.into_iter().map(&mut next).collect()
    })
}

fn loss() -> impl Strategy<Value = LossModel> {
    let gilbert = (share(), 1e-9..1.0, share(), share()).prop_map(|(p, r, h, k)| {
        LossModel::Gilbert(Gilbert { to_bad: p, to_good: ratio(r), pass_bad: h, pass_good: k })
    });
    let schedule = (timetable(), prop::collection::vec(prop::option::of(number()), 8)).prop_map(|(list, counts)| {
        let what = |lasts, count: Option<u64>| count.map_or(LossExtent::Duration(lasts), LossExtent::Packets);
        let each = |((at, lasts), count)| ScheduledLoss { start: at, extent: what(lasts, count) };
        LossModel::Schedule(list.into_iter().zip(counts).map(each).collect())
    });
    let steps =
        (timetable(), prop::collection::vec(share(), 9), prop::option::of(time())).prop_map(|(list, ratios, more)| {
            let times = std::iter::once(Duration::ZERO).chain(list.iter().map(|(at, _)| *at));
            let steps: Vec<_> = times.zip(ratios).collect();
            let last = steps.last().unwrap().0;
            LossModel::Independent(Timetable::new(steps, more.map(|more| last + more)).unwrap())
        });
    prop_oneof![
        Just(LossModel::None),
        (1e-300..1.0).prop_map(|value| LossModel::from(ratio(value))),
        gilbert,
        number().prop_map(LossModel::Nth),
        (share(), number()).prop_map(|(probability, length)| LossModel::Bursts { probability, length }),
        schedule,
        steps,
    ]
}

fn outages() -> impl Strategy<Value = Outages> {
    let list = |list: Vec<(Duration, Duration)>| {
        Outages::At(list.into_iter().map(|(at, lasts)| Outage { start: at, duration: lasts }).collect())
    };
    prop_oneof![
        Just(Outages::None),
        timetable().prop_map(list),
        (time(), time()).prop_map(|(up, down)| Outages::Periodic { period: up + down, down }),
        (time(), time()).prop_map(|(up, down)| Outages::Flapping { up: up + ms(1), down: down + ms(1) }),
    ]
}

fn path_mtu() -> impl Strategy<Value = PathMtu> {
    (68_u16.., any::<bool>()).prop_map(|(mtu, black_hole)| PathMtu { mtu, is_black_hole: black_hole })
}

fn bucket() -> impl Strategy<Value = (BitRate, Bytes)> {
    (1_u64..10_000_000_000_000, number()).prop_map(|(rate, burst)| (BitRate(rate), Bytes(burst)))
}

/// Checks that the text has no separators of a list of settings, and that it is read as the same value.
fn round_trip<T: FromStr<Err = SettingError> + Display + PartialEq + Debug>(value: T) -> Result<(), TestCaseError> {
    let text = value.to_string();
    prop_assert!(!text.contains([',', ' ']), "{text}");
    prop_assert_eq!(text.parse::<T>(), Ok(value), "{}", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn setting_text_round_trips(loss in loss(), outages in outages(), mtu in path_mtu(), (rate, burst) in bucket()) {
        round_trip(loss)?;
        round_trip(outages)?;
        round_trip(mtu)?;
        round_trip(Policer { rate, burst })?;
        // The limit is at most an hour at the rate.
        let limit = Bytes(burst.0.min(rate.0.saturating_mul(450)));
        round_trip(Shaper { rate, burst, limit })?;
    }

    #[test]
    fn gilbert_text_keeps_its_form(loss in 1_u32..5000, burst in 10_u32..1000, p in 1_u32..10_000) {
        let per_cent = f64::from(loss) / 100.0;
        let loss = ratio(f64::from(loss) / 10_000.0).to_argument();
        let burst = f64::from(burst) / 10.0;
        if let Ok(model) = format!("gilbert:loss={per_cent}%:burst={burst}").parse::<LossModel>() {
            // The other form is allowed if p and r are as short.
            let text = model.to_string();
            let is_as_typed = text == format!("gilbert:loss={loss}:burst={burst}");
            prop_assert!(is_as_typed || text.starts_with("gilbert:p=") && text.len() < 30, "{}", text);
        }
        let p = ratio(f64::from(p) / 10_000.0).to_argument();
        let text = format!("gilbert:p={p}:r=0.3");
        prop_assert_eq!(text.parse::<LossModel>().unwrap().to_string(), text);
    }

    #[test]
    fn any_text_parses_or_fails_on_one_line(text in "(at|every|flap|gilbert|nth|burst|steps|none|1)?(:?[-+=.%a-z0-9µ∞]{0,6}){0,5}") {
        let errors = [
            text.parse::<LossModel>().err(),
            text.parse::<Outages>().err(),
            text.parse::<PathMtu>().err(),
            text.parse::<Policer>().err(),
            text.parse::<Shaper>().err(),
        ];
        for error in errors.into_iter().flatten() {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}

#[test]
fn documented_forms_are_accepted() {
    let gilbert = |p, r| Gilbert::simple(ratio(p), ratio(r));
    let from = Duration::from_secs;
    for (text, model) in [
        ("1e-4", LossModel::from(ratio(1e-4))),
        ("0.01%", LossModel::from(ratio(1e-4))),
        ("0", LossModel::None),
        ("none", LossModel::None),
        ("gilbert:p=1%:r=25%", LossModel::Gilbert(gilbert(0.01, 0.25))),
        ("gilbert:r=25%:p=1%:k=0.99", LossModel::Gilbert(Gilbert { pass_good: ratio(0.99), ..gilbert(0.01, 0.25) })),
        // r = 1/4, and p/(p + r) = 20 %.
        ("gilbert:loss=20%:burst=4", LossModel::Gilbert(gilbert(0.0625, 0.25))),
        ("nth:100", LossModel::Nth(100)),
        ("burst:1e-4:10", LossModel::Bursts { probability: ratio(1e-4), length: 10 }),
        (
            "at:10s:3+20s:500ms",
            LossModel::Schedule(vec![
                ScheduledLoss { start: from(10), extent: LossExtent::Packets(3) },
                ScheduledLoss { start: from(20), extent: LossExtent::Duration(ms(500)) },
            ]),
        ),
        (
            "steps:0s=0+10s=1%:every=15s",
            LossModel::Independent(
                Timetable::new(vec![(from(0), Ratio::ZERO), (from(10), ratio(0.01))], Some(from(15))).unwrap(),
            ),
        ),
    ] {
        assert_eq!(text.parse(), Ok(model), "{text}");
    }
    for (text, outages) in [
        ("none", Outages::None),
        ("every:15s:200ms", Outages::Periodic { period: from(15), down: ms(200) }),
        ("flap:down=500ms:up=10s", Outages::Flapping { up: from(10), down: ms(500) }),
        (
            "at:10s:500ms+1min:1s",
            Outages::At(vec![
                Outage { start: from(10), duration: ms(500) },
                Outage { start: from(60), duration: from(1) },
            ]),
        ),
    ] {
        assert_eq!(text.parse(), Ok(outages), "{text}");
    }
    assert_eq!("1400:black-hole".parse(), Ok(PathMtu { mtu: 1400, is_black_hole: true }));
    let (rate, burst) = (BitRate(10_000_000), Bytes(64_000));
    assert_eq!("10mbit:64kB".parse(), Ok(Policer { rate, burst }));
    assert_eq!("10mbit:64kB:1MB".parse(), Ok(Shaper { rate, burst, limit: Bytes(1_000_000) }));
    // Half a second at 10 Mb/s.
    assert_eq!("10mbit:64kB".parse(), Ok(Shaper { rate, burst, limit: Bytes(625_000) }));
}

#[test]
fn invalid_texts_are_refused() {
    fn refused<T: FromStr<Err = SettingError> + Debug>(cases: &[(&str, &str)]) {
        for (text, words) in cases {
            let error = text.parse::<T>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
    refused::<LossModel>(&[
        ("", "'' is not a loss model"),
        ("heavy", "'heavy' is not a loss model: expected a ratio"),
        ("2", "too large for a ratio"),
        ("-1%", "cannot be negative"),
        ("gilbert", "'gilbert' is not a loss model"),
        ("gilbert:p=1%", "'gilbert:p=1%' lacks r"),
        ("gilbert:p=1%:r=0", "stays in the bad state for ever"),
        ("gilbert:p=1%:r=2", "'2': too large"),
        ("gilbert:p=1%:r=2%:q=3", "unexpected 'q=3'"),
        ("gilbert:p=1%:p=2%:r=1%", "unexpected 'p=2%'"),
        ("gilbert:loss=60%:burst=1", "in bursts of 1 packets on average is impossible"),
        ("gilbert:loss=1%:burst=0.5", "impossible"),
        ("gilbert:loss=1%:burst=nan", "impossible"),
        ("gilbert:loss=100%:burst=4", "impossible"),
        ("gilbert:loss=1%:burst=4:h=1%", "unexpected 'h=1%'"),
        ("nth:0", "every 0th packet"),
        ("nth:1.5", "'1.5' is not a count of packets"),
        ("nth:", "lacks the packet count"),
        ("burst:1e-4:0", "bursts of 0 packets"),
        ("burst:1e-4", "lacks the length of a burst"),
        ("at:10s", "'10s' lacks the number of packets or the time to lose"),
        ("at:10s:lots", "'lots' is not a duration"),
        ("at:10s:1.5", "'1.5' is not a count of packets or duration"),
        ("at:10s:3+5s:3", "the schedule entry at 5 s begins before"),
        ("at:10s:500ms+10.4s:3", "the schedule entry at 10.4 s begins before"),
        ("steps:1s=0", "the first step is not at zero"),
        ("steps:0s=0+5s=1%:every=5s", "repeats before its last step"),
        ("steps:0s", "'' is not a ratio"),
    ]);
    refused::<Outages>(&[
        ("often", "'often' is not an outage: expected at:10s:500ms"),
        ("every:15s", "lacks the duration of an outage"),
        ("every:15s:15s", "an outage of 15 s every 15 s never ends"),
        ("every:0:0", "never ends"),
        ("every:15s:1s:1s", "unexpected '1s'"),
        ("flap:up=1s", "lacks down"),
        ("flap:up=1us:down=1s", "the minimum is 1 ms"),
        ("at:10s:5s+12s:1s", "the schedule entry at 12 s begins before"),
        ("at:10s:-5s", "cannot be negative"),
        ("at:10:5s", "'10'"),
    ]);
    refused::<PathMtu>(&[
        ("", "lacks the MTU"),
        ("67", "a path MTU of 67 is below 68"),
        ("65536", "the maximum is 65535"),
        ("1400:blackhole", "unexpected 'blackhole'"),
        ("1400:black-hole:1", "unexpected '1'"),
    ]);
    refused::<Policer>(&[
        ("10mbit", "lacks the burst"),
        ("0:64KB", "a policer at 0 b/s passes nothing"),
        ("10mbit:0", "a policer with a burst of 0 bytes"),
        ("10MB/s:64KB", "unknown unit 'MB/s' for a bit rate"),
        ("100tbit:64KB", "above 10 Tb/s"),
        ("10mbit:64KB:1MB", "unexpected '1MB'"),
    ]);
    refused::<Shaper>(&[
        ("10mbit:0", "a shaper with a burst of 0 bytes"),
        ("1kbit:64KB:1GB", "takes more than 24 h to send"),
        ("10mbit:64KB:1MB:2", "unexpected '2'"),
    ]);
}
