//! The page of a hub that has the records of the vBNS of 1997.

use std::fs;
use std::process::Command;

use super::RECORDS;
use super::running::{Hub, mesh};
use crate::support::skip::skip;
use crate::support::{missing_program, stderr, stdout};

#[test]
fn hub_shows_the_two_days_of_1997_side_by_side() {
    const NAME: &str = "hub_shows_the_two_days_of_1997_side_by_side";
    if let Some(missing) = missing_program(&["curl"]) {
        return skip(NAME, &missing);
    }
    let directory = tempfile::tempdir().unwrap();
    let sites = ["ncar", "sdsc"].map(|name| format!("[[site]]\nname = \"{name}\"\naddress = \"{name}.example\"\n"));
    fs::write(directory.path().join("sites.toml"), format!("name = \"vbns\"\n{}", sites.concat())).unwrap();
    fs::create_dir(directory.path().join("hub")).unwrap();
    let import = mesh(directory.path(), &["import", RECORDS, "--archive", "hub/archive.sqlite"]).output().unwrap();
    assert!(import.status.success(), "{}", stderr(&import));
    let hub = Hub::start(directory.path());
    let get = |query: &str, accept: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--user", &format!("lfn:{}", hub.password), "--header", accept]);
        let output = curl.arg(format!("{}pair/ncar/sdsc{query}", hub.page)).output().unwrap();
        assert!(output.status.success(), "{query}: {output:?}");
        stdout(&output)
    };
    let days = "?day=1997-03-03&against=1997-03-04";
    let text = get(days, "Accept: */*");
    let html = get(days, "Accept: text/html");
    assert!(html.starts_with("<!DOCTYPE html>") && !text.contains('<'), "{text}");
    for page in [&text, &html] {
        for part in ["1997-03-03", "1997-03-04", "The test changed", "window_scale"] {
            assert!(page.contains(part), "{part} is missing: {page}");
        }
    }
    assert!(text.contains("none → 4"), "{text}");
}
