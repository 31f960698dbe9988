//! Any bytes as what an iperf3 peer sends: parameters, results, a token's text, a users file, datagrams.

#![no_main]

use std::time::Duration;

use lfn_core::iperf3::auth::{Claim, Users};
use lfn_core::iperf3::datagram::{self, Arrivals, Header, Width};
use lfn_core::iperf3::{Parameters, Results, State, frame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    if let Ok(state) = State::from_wire(first) {
        assert_eq!(state.wire(), first);
    }
    control(bytes);
    datagrams(bytes);
    if let Some(claim) = Claim::read(bytes) {
        assert_eq!(Claim::read(claim.text().expect("words").as_bytes()), Some(claim));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(Users::parse(text).map_err(|error| error.to_string()));
    }
});

fn control(bytes: &[u8]) {
    if let Some((header, _)) = bytes.split_first_chunk() {
        let length = frame::length(*header, frame::PARAMETERS_LIMIT);
        assert!(length.is_err() || length.is_ok_and(|length| length <= frame::PARAMETERS_LIMIT));
    }
    let Ok(value) = frame::decode(bytes) else { return };
    match Parameters::read(&value) {
        Ok(parameters) => assert_eq!(Parameters::read(&parameters.write()).as_ref(), Ok(&parameters)),
        Err(error) => drop(error.to_string()),
    }
    match Results::read(&value, &[1, 3]) {
        Ok(results) => {
            let again = Results::read(&results.write(), &[1, 3]).expect("written by us");
            assert_eq!(again.streams.len(), results.streams.len());
        }
        Err(error) => drop(error.to_string()),
    }
}

fn datagrams(bytes: &[u8]) {
    for width in [Width::Narrow, Width::Wide] {
        let mut arrivals = Arrivals::default();
        for (number, datagram) in bytes.chunks(17).enumerate() {
            if let Some(header) = Header::read(datagram, width) {
                arrivals.take(&header, Duration::from_millis(number as u64));
            }
            let _ = (datagram::is_connect(datagram), datagram::is_reply(datagram));
        }
        assert!(arrivals.jitter.is_finite());
    }
}
