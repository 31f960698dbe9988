//! Any text as a profile in TOML.

#![no_main]

use lfn_link::profile::Profile;
use lfn_link::settings::{EmulatedPath, HopSettings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let profile = match Profile::parse("fuzz", text) {
        Ok(profile) => profile,
        Err(error) => return drop(error.to_string()),
    };
    let mut again = HopSettings::default();
    for (key, value) in profile.settings.entries() {
        again.set(&key, &value).unwrap_or_else(|error| panic!("{key}={value}: {error}"));
    }
    assert_eq!(again, profile.settings);
    if let Err(error) = EmulatedPath::new(&[profile.settings], profile.mtu.unwrap_or(1500)) {
        drop((error.to_string(), error.hint()));
    }
});
