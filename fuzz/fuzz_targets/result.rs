//! Any bytes as a stored result of lfn or iperf3. A readable result is compared and converted to every format.

#![no_main]

use lfn_results::report::{StoredResult, compare, interval_csv, read_result};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let stored = match read_result(bytes) {
        Ok(stored) => stored,
        Err(error) => return drop(error.to_string()),
    };
    if let StoredResult::Test(document) = &stored {
        drop(interval_csv(document));
        // A written result can be read again.
        let text = serde_json::to_vec(document).unwrap();
        match read_result(&text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text))) {
            StoredResult::Test(again) => assert_eq!(again.runs.len(), document.runs.len()),
            StoredResult::Iperf3(_) | StoredResult::Tuning(_) => panic!("the result became another kind"),
        }
    }
    let files = [("a".to_owned(), stored.clone()), ("b".to_owned(), stored)];
    let comparison = compare(&files);
    drop(comparison.csv());
    let text = serde_json::to_string(&comparison).unwrap();
    serde_json::from_str::<lfn_results::report::Comparison>(&text).unwrap();
});
