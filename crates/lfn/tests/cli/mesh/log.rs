//! `lfn mesh log` over the records of the vBNS of 1997.

use std::fs;

use serde_json::Value;

use super::{archive_of_records, mesh, printed};
use crate::support::schema::assert_valid;
use crate::support::server::assert_refused;
use crate::support::stderr;

const DAYS: [&str; 4] = ["--day", "1997-03-03", "--against", "1997-03-04"];

#[test]
fn missing_window_scale_is_the_answer_for_1997() {
    let home = archive_of_records();
    for host in ["sdsc", "psc"] {
        let page = printed(&home, &[&["log", "ncar", host], &DAYS[..]].concat());
        assert!(page.contains("result: The test changed. In both directions, window_scale (none → 4)"), "{page}");
        assert!(page.contains("No figure of the path differs."), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
    }
    let text = printed(&home, &[&["log", "ncar", "sdsc", "--json"], &DAYS[..]].concat());
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_valid("lfn.mesh.log.1", &document);
    assert_eq!(document["comparison"]["conclusion"], "test_changed");
    let cause = &document["comparison"]["forward"]["differences"][0];
    assert_eq!(
        (&cause["name"], &cause["effect"]["limit_bits_per_second"]),
        (&"window_scale".into(), &13_107_000.into())
    );
}

#[test]
fn both_days_are_drawn_with_their_predictions() {
    let home = archive_of_records();
    let flags = ["--plot", "pictures", "--report", "log.html"];
    let text = printed(&home, &[&["log", "ncar", "sdsc"], &DAYS[..], &flags].concat());
    let svg = fs::read_to_string(home.path().join("pictures/goodput-forward.svg")).unwrap();
    for part in ["Goodput ncar → sdsc", "1997-03-03: measured", "1997-03-04: predicted 129.1 Mb/s (capacity)"] {
        assert!(svg.contains(part), "{part}");
    }
    let mut names: Vec<_> =
        fs::read_dir(home.path().join("pictures")).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    let expected = ["goodput-forward.png", "goodput-forward.svg", "goodput-reverse.png", "goodput-reverse.svg"];
    assert_eq!(names, expected);
    let page = fs::read_to_string(home.path().join("log.html")).unwrap();
    assert!(page.contains(text.lines().next().unwrap()) && page.matches("<svg").count() == 2, "{page}");
    assert!(page.contains("<h2>Loads ncar → sdsc, 1997-03-03</h2>"), "{page}");
}

#[test]
fn sites_are_found_in_the_copy_of_the_hub() {
    let home = archive_of_records();
    let unknown = mesh(&home, &["log", "boulder", "sdsc"]);
    assert_refused(&unknown, 2, "the archive has no host 'boulder'");
    assert!(stderr(&unknown).contains("names of sites need --sites FILE"));
    let sites = "name = \"x\"\n[[site]]\nname = \"boulder\"\nhost = [{ name = \"ncar\", address = \"192.0.2.1\" }]\n";
    let plan = serde_json::json!({ "sites": sites, "valid_from_seconds": 0.0 });
    fs::write(home.path().join("plan.json"), plan.to_string()).unwrap();
    let page = printed(&home, &["log", "boulder", "sdsc"]);
    assert!(page.contains("ncar → sdsc"), "{page}");
    assert_refused(&mesh(&home, &["log", "denver", "sdsc"]), 2, "no host of a site with this name");
}

#[test]
fn newest_day_is_shown_without_a_day() {
    let page = printed(&archive_of_records(), &["log", "ncar", "sdsc"]);
    assert!(page.contains("1997-03-04") && page.contains("204.147.129.9"), "{page}");
}

#[test]
fn day_without_entries_is_an_error() {
    let home = archive_of_records();
    let output = mesh(&home, &["log", "ncar", "sdsc", "--day", "1997-03-05"]);
    assert_refused(&output, 1, "ncar and sdsc have no entry on 1997-03-05 (UTC)");
    assert!(stderr(&output).contains("hint: show the newest day: lfn mesh log ncar sdsc"), "{}", stderr(&output));
}

#[test]
fn a_day_is_not_compared_with_itself() {
    let home = archive_of_records();
    let output = mesh(&home, &["log", "ncar", "sdsc", "--day", "1997-03-03", "--against", "1997-03-03"]);
    assert_refused(&output, 2, "both days are 1997-03-03");
}

#[test]
fn export_of_an_unknown_host_lists_near_names() {
    let output = mesh(&archive_of_records(), &["export", "--from", "ncra"]);
    assert_refused(&output, 2, "the archive has no host 'ncra'");
    assert!(stderr(&output).contains("hint: use one of ncar"), "{}", stderr(&output));
}

#[test]
fn unknown_host_lists_near_names() {
    let home = archive_of_records();
    assert_refused(&mesh(&home, &["log", "ncra", "sdsc"]), 2, "the archive has no host 'ncra'");
    assert!(stderr(&mesh(&home, &["log", "ncra", "sdsc"])).contains("hint: use one of ncar"));
}
