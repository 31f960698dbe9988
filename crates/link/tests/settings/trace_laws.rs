//! Traces: the timetable contains the values of the text, invalid text is refused with its line number, and no text
//! panics.

use std::time::Duration;

use lfn_base::framing::Layer;
use lfn_base::units::BitRate;
use lfn_link::Timetable;
use lfn_link::trace::{BUILT_IN, LinkTrace, MAX_STEPS, TraceError};
use proptest::prelude::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rate(text: &str) -> Timetable<BitRate> {
    LinkTrace::parse("test", text).unwrap().rate.unwrap()
}

/// Returns the bits that a line of this rate carries from the start to `end`.
fn carried(rate: &Timetable<BitRate>, end: Duration) -> u128 {
    let (mut at, mut bits) = (Duration::ZERO, 0);
    while at < end {
        let next = rate.next_step_after(at).unwrap_or(end).min(end);
        bits += u128::from(rate.value_at(at).0) * (next - at).as_nanos();
        at = next;
    }
    bits / 1_000_000_000
}

#[test]
fn opportunity_is_a_packet_in_the_millisecond_before() {
    let trace = LinkTrace::parse("test", "1\n1\n4\n").unwrap();
    assert_eq!(trace.layer, Some(Layer::Ip));
    let rate = trace.rate.unwrap();
    assert_eq!(rate.period(), Some(ms(4)));
    let expected = [24, 0, 0, 12, 24, 0, 0, 12, 24].map(|mbit| BitRate(mbit * 1_000_000));
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(|at| rate.value_at(ms(at))), expected);
    assert_eq!(carried(&rate, ms(4)), 3 * 1500 * 8);
}

#[test]
fn steady_trace_is_a_constant_rate() {
    let text: String = (1..=1000).map(|at| format!("{at}\n")).collect();
    assert_eq!(rate(&text).as_constant(), Some(BitRate(12_000_000)));
    // One opportunity at 1 ms, repeated every 1 ms, is the same rate.
    assert_eq!(rate("1").as_constant(), Some(BitRate(12_000_000)));
}

#[test]
fn opportunities_at_zero_count_at_the_end() {
    assert_eq!(rate("0\n0\n5\n").value_at(ms(4)), BitRate(36_000_000));
    assert_eq!(carried(&rate("0\n0\n5\n"), ms(5)), 3 * 1500 * 8);
}

#[test]
fn csv_units_are_in_header_or_cells() {
    let text =
        "\u{feff}# a drive\nTime[s], rate[mbit] ,delay,loss\r\n0,10,20ms,1%\n\n1.5,2.5gbit,, # faster\n2,,45ms,0.5\n";
    let trace = LinkTrace::parse("test", text).unwrap();
    let (rate, delay, loss) = (trace.rate.unwrap(), trace.delay.unwrap(), trace.loss.unwrap());
    assert_eq!(
        [0, 1499, 1500, 9999].map(|at| rate.value_at(ms(at)).0),
        [10, 10, 2500, 2500].map(|mbit| mbit * 1_000_000)
    );
    assert_eq!([1999, 2000].map(|at| delay.value_at(ms(at))), [ms(20), ms(45)]);
    assert_eq!([1999, 2000].map(|at| loss.value_at(ms(at)).get()), [0.01, 0.5]);
    assert_eq!((rate.period(), delay.period(), loss.period(), trace.layer), (None, None, None, None));
}

#[test]
fn row_with_only_a_time_repeats_the_trace() {
    let trace = LinkTrace::parse("test", "time[ms],delay[ms]\n0,5\n10,7\n20,\n").unwrap();
    let delay = trace.delay.unwrap();
    assert_eq!([0, 9, 10, 19, 20, 35].map(|at| delay.value_at(ms(at)).as_millis()), [5, 5, 7, 7, 5, 7]);
}

#[test]
fn invalid_traces_are_refused_with_line_number() {
    let cases = [
        ("", "the trace is empty"),
        ("\n\n# nothing\n", "the trace is empty"),
        ("hello\n1\n", "line 1: 'hello' is not a time in whole milliseconds (mahimahi) or"),
        ("-5\n", "line 1: '-5' is not a time in whole milliseconds"),
        ("5\n4\n", "line 2: the time is not later"),
        ("1\n2\n1.5\n", "line 3: '1.5' is not a time in whole milliseconds"),
        ("1\n\nx\n", "line 3: 'x' is not a time"),
        ("0\n0\n", "line 2: the trace ends at 0 ms"),
        ("1\n99999999999\n", "line 2: the time is above 7 days"),
        ("18446744073709551616\n", "line 1: '18446744073709551616' is not a time"),
        ("time[s]\n0\n", "line 1: the only column is the time"),
        ("time[s],speed\n0,1\n", "line 1: unknown column 'speed': use"),
        ("time[s],rate,rate\n0,1,1\n", "line 1: duplicate column rate"),
        ("time[s],rate[MB/s]\n0,1\n", "line 1: rate: '1MB/s': unknown unit"),
        ("time[s],rate[mbit\n0,1\n", "line 1: unknown column 'rate[mbit'"),
        ("time,rate\n1,5mbit\n", "line 2: time: '1' has no unit"),
        ("time[s],rate\n0,5\n", "line 2: rate: '5' has no unit: write rate[mbit] in the header, or 5mbit"),
        ("time[s],rate\n", "the trace is empty"),
        ("time[s],rate\n1,5mbit\n", "line 2: the first row must be at time 0"),
        ("time[s],rate\n0,\n", "line 2: the first row must be at time 0"),
        ("time[s],rate\n0,5mbit,7\n", "line 2: 3 cells, but the header has 2"),
        ("time[s],rate\n0,5mbit\n0\n", "line 3: 1 cells, but"),
        ("time[s],rate\n0,5mbit\n2,3mbit\n1,5mbit\n", "line 4: the time is not later"),
        ("time[s],rate\n0,5mbit\n0,6mbit\n", "line 3: the time is not later"),
        ("time[s],rate\n0,-5mbit\n", "line 2: rate: '-5mbit': a bit rate cannot be negative"),
        ("time[s],rate\n-1,5mbit\n", "line 2: time: '-1s': a duration cannot be negative"),
        ("time[s],loss\n0,2\n", "line 2: loss: '2'"),
        ("time[s],delay\n0,20\n", "line 2: delay: '20' has no unit"),
        ("time[s],rate\n0,5mbit\n5,\n6,1mbit\n", "line 4: a row after the end"),
        ("time[s],rate\n0,5mbit\n700000,1mbit\n", "line 3: the time is above 7 days"),
    ];
    for (text, said) in cases {
        let error = LinkTrace::parse("test", text).unwrap_err().to_string();
        assert!(error.starts_with(said), "{text:?}: {error}");
    }
}

#[test]
fn too_many_steps_are_refused_at_the_line() {
    // Every second millisecond: two steps each.
    let text: String = (1..=MAX_STEPS).map(|n| format!("{}\n", 2 * n)).collect();
    assert_eq!(LinkTrace::parse("test", &text), Err(TraceError::TooManySteps { line: MAX_STEPS / 2 + 1 }));
    let text = "7\n".repeat(1_000_000);
    assert_eq!(LinkTrace::parse("test", &text), Err(TraceError::TooFast { line: 1_000_000 }));
}

#[test]
fn error_message_length_is_limited() {
    let text = format!("time[s],rate\n0,{}mbit\n", "9".repeat(1_000_000));
    assert!(LinkTrace::parse("test", &text).unwrap_err().to_string().len() < 400);
    assert!(LinkTrace::parse("test", &"x".repeat(1_000_000)).unwrap_err().to_string().len() < 400);
    let wide = format!("time[s],rate\n0{}\n", ",".repeat(1_000_000));
    assert!(LinkTrace::parse("test", &wide).unwrap_err().to_string().contains("1000001 cells"));
}

#[test]
fn built_in_traces_round_trip_as_csv() {
    for built_in in BUILT_IN {
        let trace = built_in.load();
        assert_eq!(trace.period(), Some(Duration::from_secs(120)), "{}", built_in.name);
        // The traces have thousands of steps, so a failure must not print them.
        assert!(LinkTrace::parse(built_in.name, &trace.to_csv()) == Ok(trace.clone()), "{}", built_in.name);
        assert!(LinkTrace::built_in(built_in.name) == Some(trace), "{}", built_in.name);
    }
}

#[test]
fn starlink_trace_changes_every_15_seconds() {
    let delay = LinkTrace::built_in("starlink-handovers").unwrap().delay.unwrap();
    let mean = |from: u64, to: u64| {
        let samples: Vec<f64> = (from..to).step_by(20).map(|at| delay.value_at(ms(at)).as_secs_f64() * 1e3).collect();
        samples.iter().sum::<f64>() / samples.len() as f64
    };
    let satellites: Vec<f64> = (0..8).map(|slot| mean(slot * 15_000 + 200, (slot + 1) * 15_000)).collect();
    for (one, next) in satellites.iter().zip(satellites.iter().cycle().skip(1)) {
        assert!((one - next).abs() > 0.5, "{satellites:?}");
    }
    for slot in 0..8 {
        let handover = mean(slot * 15_000, slot * 15_000 + 200);
        // A handover adds 30 to 50 ms to the RTT.
        assert!((12.0..28.0).contains(&(handover - satellites[slot as usize])), "{slot}: {handover} {satellites:?}");
    }
    // Pings once per second, away from handovers, differ by 6.7 ms.
    let rtts: Vec<f64> = (0..120)
        .filter(|second| second % 15 != 0)
        .map(|second| (delay.value_at(ms(second * 1000)) + delay.value_at(ms(second * 1000 + 25))).as_secs_f64() * 1e3)
        .collect();
    let differences: Vec<f64> = rtts.windows(2).map(|pair| (pair[0] - pair[1]).abs()).collect();
    let mean = differences.iter().sum::<f64>() / differences.len() as f64;
    assert!((5.5..8.5).contains(&mean), "{mean}");
    assert!(rtts.iter().all(|rtt| (20.0..60.0).contains(rtt)), "{rtts:?}");
}

#[test]
fn lte_trace_moves_slowly_and_has_dead_spots() {
    let rate = LinkTrace::built_in("lte-drive").unwrap().rate.unwrap();
    let values: Vec<f64> = (0..120_000).step_by(20).map(|at| rate.value_at(ms(at)).0 as f64 / 1e6).collect();
    assert!(values.iter().all(|mbit| (0.0..=25.0).contains(mbit)));
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    assert!((12.0..14.0).contains(&mean), "{mean}");
    // 200 packets/s per root second over 20 ms is 28 packets/s, or 0.34 Mb/s.
    let moves: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).filter(|step| *step != 0.0).collect();
    let deviation = (moves.iter().map(|step| step * step).sum::<f64>() / moves.len() as f64).sqrt();
    assert!((0.3..0.38).contains(&deviation), "{deviation}");
    let dead_spots = values.windows(2).filter(|pair| pair[0] > 0.0 && pair[1] == 0.0).count();
    assert!((5..20).contains(&dead_spots), "{dead_spots}");
}

proptest! {
    /// All opportunities of a period are carried in it, and the maximum time is the period.
    #[test]
    fn mahimahi_trace_carries_all_opportunities(mut times in prop::collection::vec(0_u64..200, 1..100)) {
        times.sort_unstable();
        prop_assume!(times.last() != Some(&0));
        let text: String = times.iter().map(|at| format!("{at}\n")).collect();
        let rate = rate(&text);
        let period = times.last().copied().map(ms).unwrap();
        prop_assert_eq!(rate.period(), Some(period));
        prop_assert_eq!(carried(&rate, period), times.len() as u128 * 1500 * 8);
        // At any time the line has carried as many bytes as the opportunities of mm-link, except for those at 0.
        let at_zero = times.iter().filter(|at| **at == 0).count();
        for by in 1..period.as_millis() as u64 {
            let opportunities = times.iter().filter(|at| **at <= by).count() - at_zero;
            prop_assert_eq!(carried(&rate, ms(by)), opportunities as u128 * 1500 * 8);
        }
    }

    #[test]
    fn any_text_is_a_trace_or_a_one_line_error(text in "\\PC*|([0-9\\-., a-z%\\[\\]#\n\r]{0,80})") {
        if let Err(error) = LinkTrace::parse("test", &text) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn any_table_is_a_trace_or_an_error(
        header in prop::collection::vec("(time|rate|delay|loss)(\\[(s|ms|mbit|%)?\\])?", 1..5),
        rows in prop::collection::vec(prop::collection::vec("-?[0-9]{0,3}(\\.[0-9])?(s|ms|mbit|%)?", 1..5), 0..8),
    ) {
        let rows: Vec<String> = rows.iter().map(|cells| cells.join(",")).collect();
        let text = format!("{}\n{}\n", header.join(","), rows.join("\n"));
        if let Ok(trace) = LinkTrace::parse("test", &text) {
            prop_assert!(trace.is_loaded());
            prop_assert_eq!(LinkTrace::parse("test", &trace.to_csv()), Ok(trace));
        }
    }
}
