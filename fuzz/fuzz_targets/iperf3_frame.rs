//! Any bytes as messages of an iperf3 peer: parameters, results, the text of a token, a file of users, datagrams.

#![no_main]

use std::time::Duration;

use lfn_measure::proto::iperf3::auth::{IperfCredentials, Users};
use lfn_measure::proto::iperf3::datagram::{self, CounterWidth, DatagramCounts, LoadHeader};
use lfn_measure::proto::iperf3::{Parameters, Results, TestState, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    if let Ok(state) = TestState::from_wire(first) {
        assert_eq!(state.wire(), first);
    }
    control(bytes);
    datagrams(bytes);
    if let Some(credentials) = IperfCredentials::read(bytes) {
        assert_eq!(IperfCredentials::read(credentials.text().expect("words").as_bytes()), Some(credentials));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(Users::parse(text).map_err(|error| error.to_string()));
    }
});

fn control(bytes: &[u8]) {
    if let Some((header, _)) = bytes.split_first_chunk() {
        let length = frame::length(*header, frame::MAX_PARAMETERS);
        assert!(length.is_err() || length.is_ok_and(|length| length <= frame::MAX_PARAMETERS));
    }
    let Ok(value) = frame::decode(bytes) else { return };
    match Parameters::read(&value) {
        Ok(parameters) => assert_eq!(Parameters::read(&parameters.write()).as_ref(), Ok(&parameters)),
        Err(error) => drop(error.to_string()),
    }
    match Results::read(&value, &[1, 3]) {
        Ok(results) => {
            let read_back = Results::read(&results.write(), &[1, 3]).expect("valid results");
            assert_eq!(read_back.streams.len(), results.streams.len());
        }
        Err(error) => drop(error.to_string()),
    }
}

fn datagrams(bytes: &[u8]) {
    for width in [CounterWidth::Narrow, CounterWidth::Wide] {
        let mut counts = DatagramCounts::default();
        for (number, datagram) in bytes.chunks(17).enumerate() {
            if let Some(header) = LoadHeader::read(datagram, width) {
                counts.record(&header, Duration::from_millis(number as u64));
            }
            let _ = (datagram::is_connect(datagram), datagram::is_reply(datagram));
        }
        assert!(counts.jitter.is_finite());
    }
}
