//! Any bytes as the state file and as the settings file of a sweep, and as a stored sweep.

#![no_main]

use lfn_campaign::comparison::compare_sweeps;
use lfn_campaign::settings_file::parse_settings;
use lfn_campaign::state::{StateLine, read_state};
use lfn_campaign::stored::read_sweep;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match read_state(bytes) {
        Ok(Some(stored)) => {
            // A written file can be read again.
            let lines = stored.runs.iter().map(|run| StateLine::of_run(run));
            let lines = [StateLine::of_header(&stored.header)].into_iter().chain(lines);
            let text: String = lines.map(|line| line.text().unwrap()).collect();
            let again = read_state(text.as_bytes()).unwrap().unwrap();
            assert_eq!((again.header, again.runs.len()), (stored.header, stored.runs.len()));
        }
        Ok(None) => {}
        Err(error) => drop(error.to_string()),
    }
    match read_sweep(bytes, "file") {
        Ok(document) => {
            drop(document.csv());
            // A written document can be read again.
            let text = serde_json::to_vec(&document).unwrap();
            let again = read_sweep(&text, "file").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(again.points.len(), document.points.len());
            let compared = compare_sweeps(&[("a".to_owned(), document), ("b".to_owned(), again)]).unwrap();
            drop(compared.csv());
        }
        Err(error) => drop(error.to_string()),
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse_settings(text) {
        // The number of points is checked before they are created.
        Ok(settings) => drop(settings.design.points().map_err(|error| error.hint())),
        Err(error) => drop((error.to_string(), error.hint())),
    }
});
