//! Any bytes as a file of `lfn mesh import`. Readable entries are written, read again and compared.

#![no_main]

use lfn_mesh::compare::{DayLog, compare};
use lfn_mesh::csv::csv_row;
use lfn_mesh::from_result::ResultHosts;
use lfn_mesh::import_file::read_entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let hosts = ResultHosts { near: Some("near"), far: Some("far") };
    let entries = match read_entries(bytes, hosts) {
        Ok(entries) => entries,
        Err(error) => return drop(error.to_string()),
    };
    let text: String = entries.iter().map(|entry| serde_json::to_string(entry).unwrap() + "\n").collect();
    if entries.is_empty() {
        return;
    }
    let again = read_entries(text.as_bytes(), hosts).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(again.len(), entries.len());
    entries.iter().map(csv_row).for_each(drop);
    let (first, last) = (&entries[0], &entries[entries.len() - 1]);
    let log = |time| DayLog::of(&entries, &first.from, &first.to, time);
    drop(serde_json::to_string(&compare(&log(first.time), &log(last.time))).unwrap());
});
