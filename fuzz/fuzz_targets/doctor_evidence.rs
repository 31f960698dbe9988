//! Any bytes as an evidence file of lfn doctor. Readable evidence is diagnosed again, masked, and read again.

#![no_main]

use lfn_results::report::read_doctor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let document = match read_doctor(bytes) {
        Ok(document) => document.diagnosed_again(),
        Err(error) => return drop(error.to_string()),
    };
    let text = serde_json::to_vec(&document).unwrap();
    let again = read_doctor(&text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text)));
    assert_eq!(again.runs.len(), document.runs.len());
    drop(document.masked());
});
