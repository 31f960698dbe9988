//! The systemd units.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn each_systemd_unit_has_its_own_state_directory() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
    let mut found = BTreeSet::new();
    for unit in ["lfn-serve", "lfn-mesh-hub", "lfn-mesh-agent"] {
        let text = fs::read_to_string(directory.join(format!("{unit}.service"))).unwrap();
        let state = text.lines().find_map(|line| line.strip_prefix("StateDirectory=")).unwrap().to_owned();
        // `lfn serve` appends lfn to XDG_STATE_HOME.
        let is_used = text.contains(&format!("state /var/lib/{state}\n")) || text.contains("XDG_STATE_HOME=/var/lib\n");
        assert!(is_used, "{unit}");
        assert!(found.insert(state), "{unit} shares its directory");
    }
}
