//! Any bytes as a stored result of lfn or iperf3, and all that is made of one that can be read.

#![no_main]

use lfn_core::report::{Stored, compare, csv, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let stored = match read(bytes) {
        Ok(stored) => stored,
        Err(error) => return drop(error.to_string()),
    };
    if let Stored::Test(document) = &stored {
        drop(csv(document));
        // What is written is read again.
        let text = serde_json::to_vec(document).unwrap();
        match read(&text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text))) {
            Stored::Test(again) => assert_eq!(again.runs.len(), document.runs.len()),
            Stored::Iperf3(_) => panic!("lfn's result became iperf3's"),
        }
    }
    let files = [("a".to_owned(), stored.clone()), ("b".to_owned(), stored)];
    let comparison = compare(&files);
    drop(comparison.csv());
    let text = serde_json::to_string(&comparison).unwrap();
    serde_json::from_str::<lfn_core::report::Comparison>(&text).unwrap();
});
