//! The list of permitted skips, and the decision about a skip.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::support::skip::{Missing, PERMITTED, decide, entries, is_strict};

const LIST: &str = "# a comment\n\na_test | Multipath TCP | the kernel is built without CONFIG_MPTCP\n";

#[test]
fn only_ci_true_is_strict() {
    for (ci, is) in [(Some("true"), true), (Some("1"), false), (Some("TRUE"), false), (Some(""), false), (None, false)]
    {
        assert_eq!(is_strict(ci.map(OsStr::new)), is, "{ci:?}");
    }
}

#[test]
fn listed_skip_is_permitted() {
    assert_eq!(decide(LIST, true, "a_test", &Missing::Feature("Multipath TCP")), Ok(()));
}

#[test]
fn skip_that_is_not_listed_fails_under_ci() {
    let message = |test, missing| decide(LIST, true, test, &missing).unwrap_err();
    assert_eq!(
        message("other_test", Missing::Feature("Multipath TCP")),
        "other_test is skipped, and .ci/permitted-skips does not permit this: this system has no Multipath TCP"
    );
    assert!(message("a_test", Missing::Feature("BBR")).contains("this system has no BBR"));
    // A missing program and a wrong user are never a reason, whatever the list permits.
    for missing in [Missing::Program("Multipath TCP".to_owned()), Missing::User("Multipath TCP")] {
        assert!(message("a_test", missing).starts_with("a_test is skipped, and .ci/permitted-skips"));
    }
    for missing in [Missing::Feature("BBR"), Missing::Program("tc".to_owned()), Missing::User("root")] {
        assert_eq!(decide(LIST, false, "other_test", &missing), Ok(()));
    }
}

/// An entry for a test that was renamed or deleted permits nothing.
#[test]
fn every_permitted_skip_names_a_test() {
    let sources = sources();
    for entry in entries(PERMITTED) {
        let names = [format!("fn {}(", entry.test), format!("\"{}\"", entry.test)];
        let is_test = names.iter().any(|name| sources.contains(name));
        assert!(is_test, ".ci/permitted-skips: no test has the name {}", entry.test);
        let feature = format!("Missing::Feature(\"{}\")", entry.feature);
        assert!(sources.contains(&feature), ".ci/permitted-skips: no test needs {}", entry.feature);
        assert!(!entry.reason.is_empty(), ".ci/permitted-skips: {} has no reason", entry.test);
    }
}

/// All decisions are in `support::skip`.
#[test]
fn no_other_code_decides_about_skips() {
    let sources = sources();
    for words in [["var_os(\"", "CI\")"], ["println!(\"", "SKIPPED"], ["println!(\"", "skipped:"]] {
        // The function itself reads `CI` once.
        let most = usize::from(words[1].starts_with("CI"));
        assert_eq!(sources.matches(&words.concat()).count(), most, "{words:?}");
    }
}

/// Returns the text of all sources of this workspace.
fn sources() -> String {
    let mut text = String::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut text);
    text
}

fn collect(directory: &Path, text: &mut String) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *text += &fs::read_to_string(&path).unwrap();
        }
    }
}
