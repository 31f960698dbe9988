//! Properties of the iperf3 bytes: any input from a peer gives a value or an error, and written values are read back.

use std::time::Duration;

use lfn_measure::proto::iperf3::auth::{IperfCredentials, Users};
use lfn_measure::proto::iperf3::datagram::{CounterWidth, DatagramCounts, LoadHeader};
use lfn_measure::proto::iperf3::frame::{self, Iperf3FrameError, MAX_PARAMETERS};
use lfn_measure::proto::iperf3::{Cookie, Parameters, Results, ServerOutput, StreamResult, TestState, stream_id};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Any JSON value of a few levels.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map("[a-z_]{1,12}", inner, 0..6).prop_map(Value::from_iter),
        ]
    })
}

/// Objects with iperf3's keys and any values.
fn with_keys(keys: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop::collection::vec((prop::sample::select(keys), any_json()), 0..12)
        .prop_map(|pairs| Value::from_iter(pairs.into_iter().map(|(key, value)| (key.to_owned(), value))))
}

const PARAMETERS: &[&str] = &[
    "tcp",
    "udp",
    "sctp",
    "omit",
    "time",
    "num",
    "blockcount",
    "parallel",
    "reverse",
    "bidirectional",
    "len",
    "window",
    "bandwidth",
    "fqrate",
    "burst",
    "MSS",
    "TOS",
    "congestion",
    "authtoken",
    "title",
    "udp_counters_64bit",
];

const STREAM: &[&str] = &[
    "id",
    "bytes",
    "retransmits",
    "jitter",
    "errors",
    "packets",
    "omitted_errors",
    "omitted_packets",
    "start_time",
    "end_time",
];

proptest! {
    #[test]
    fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), limit in 1usize..9000) {
        if let Some((header, rest)) = bytes.split_first_chunk::<{ frame::HEADER }>() {
            match frame::length(*header, limit) {
                Ok(length) => prop_assert!((1..=limit).contains(&length)),
                Err(error) => prop_assert!(matches!(error, Iperf3FrameError::Length { .. }), "{error}"),
            }
            let _ = frame::decode(rest);
        }
        let _ = bytes.first().map(|&byte| TestState::from_wire(byte).map(TestState::wire));
        let _ = IperfCredentials::read(&bytes);
        let _ = String::from_utf8(bytes).map(|text| Users::parse(&text).map_err(|error| error.to_string()));
    }

    #[test]
    fn any_parameters_are_within_bounds_or_rejected(value in with_keys(PARAMETERS)) {
        match Parameters::read(&value) {
            Ok(parameters) => {
                prop_assert!((1..=128).contains(&parameters.streams));
                prop_assert!((1..=1 << 20).contains(&parameters.length.0));
                prop_assert!(parameters.time().is_none_or(|time| time <= Duration::from_secs(87_000)));
                prop_assert_eq!(Parameters::read(&parameters.write()).unwrap(), parameters);
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn any_results_match_the_test_or_are_rejected(
        streams in prop::collection::vec(with_keys(STREAM), 0..4),
        text in any::<Option<String>>(),
    ) {
        let mut value = json!({
            "cpu_util_total": 1, "cpu_util_user": 1, "cpu_util_system": 0, "sender_has_retransmits": -1,
            "streams": streams,
        });
        if let Some(text) = text {
            value["server_output_text"] = text.into();
        }
        if let Ok(results) = Results::read(&value, &[1, 3]) {
            prop_assert_eq!(results.streams.len(), 2);
            prop_assert_eq!(Results::read(&results.write(), &[1, 3]).unwrap(), results);
        }
    }

    #[test]
    fn figures_survive_json(
        bytes in 0..=i64::MAX as u64, retransmits in prop::option::of(0..=i64::MAX as u64),
        micros in 0u64..1 << 40, output in ".{0,200}",
    ) {
        let stream = |index| StreamResult {
            id: stream_id(index).into(), bytes, retransmits, time: Some(Duration::from_micros(micros)), ..Default::default()
        };
        let results = Results {
            output: Some(ServerOutput::Text(output)), streams: vec![stream(0), stream(1)], ..Results::default()
        };
        let frame = frame::encode(&results.write(), MAX_PARAMETERS).unwrap();
        let read = Results::read(&frame::decode(&frame[frame::HEADER..]).unwrap(), &[1, 3]).unwrap();
        prop_assert_eq!(read.streams[1].bytes, bytes);
        prop_assert_eq!(read.streams[0].retransmits, retransmits);
        prop_assert!(read.streams[0].time.unwrap().abs_diff(Duration::from_micros(micros)) < Duration::from_micros(1));
    }

    #[test]
    fn any_datagrams_are_counted(
        datagrams in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), any::<u64>()), 0..40),
        wide: bool,
    ) {
        let width = if wide { CounterWidth::Wide } else { CounterWidth::Narrow };
        let mut arrivals = DatagramCounts::default();
        for (bytes, now) in &datagrams {
            if let Some(header) = LoadHeader::read(bytes, width) {
                arrivals.record(&header, Duration::from_micros(*now));
            }
        }
        prop_assert!(arrivals.jitter.is_finite() && arrivals.jitter >= 0.0);
        prop_assert!(arrivals.received as usize <= datagrams.len());
    }

    #[test]
    fn received_plus_lost_equals_sent(lost in prop::collection::vec(any::<bool>(), 1..200), swaps: u64) {
        let mut numbers: Vec<u64> = (1..).zip(&lost).filter(|(_, lost)| !**lost).map(|(number, _)| number).collect();
        // Neighbours change places: they are late, not lost.
        for at in 1..numbers.len() {
            if swaps >> (at % 64) & 1 == 1 && at % 2 == 1 {
                numbers.swap(at - 1, at);
            }
        }
        let mut arrivals = DatagramCounts::default();
        for &number in &numbers {
            arrivals.record(&LoadHeader { sent: Duration::ZERO, number }, Duration::ZERO);
        }
        prop_assert_eq!(arrivals.received + arrivals.lost, arrivals.highest);
        prop_assert_eq!(arrivals.highest, numbers.iter().max().copied().unwrap_or(0));
    }

    #[test]
    fn cookies_differ_with_their_random_bytes(a: [u8; 32], b: [u8; 32]) {
        let cookie = |random: [u8; 32]| Cookie::from_random(std::array::from_fn(|n| random.get(n).map_or(0, |r| r % 32)));
        prop_assert_eq!(cookie(a) == cookie(b), a.map(|x| x % 32) == b.map(|x| x % 32));
    }
}
