//! The pages in Chromium: no violation of accessibility rules in light, dark and print, at 200 % zoom and at 320 pixels,
//! and without script. `LFN_PICTURES=DIR` keeps pictures of all pages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../lfn/tests/support/skip.rs"]
#[allow(dead_code, reason = "this program uses a part of the module")]
mod skip;
mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use skip::Missing;
use support::browser::{Browser, axe};
use support::{Page, TOKEN, start, vbns_week};

/// Key codes of WebDriver.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const LEFT: &str = "\u{e012}";

const PAGES: [(&str, &str); 6] = [
    ("matrix", "/"),
    ("pair", "/pair/aztec/c90-psc"),
    ("days", "/pair/aztec/c90-psc?day=2026-11-18&against=2026-11-20"),
    ("site", "/site/NCAR"),
    ("plan", "/plan"),
    ("search", "/?q=sdsc"),
];

/// Returns the program that is missing, with the command that installs it.
fn missing_program() -> Option<Missing> {
    [("chromedriver", "apt-get install chromium chromium-driver"), ("npm", "apt-get install npm")]
        .into_iter()
        .find(|(program, _)| {
            let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            !found.is_ok_and(|status| status.success())
        })
        .map(|(program, install)| Missing::Program(format!("{program} is missing: {install}")))
}

/// Returns an address with the token as the password, as a browser has it after its question.
fn url(page: &Page, address: &str) -> String {
    format!("http://reader:{TOKEN}@{}{address}", page.server.address())
}

fn pictures() -> Option<PathBuf> {
    std::env::var_os("LFN_PICTURES").map(PathBuf::from)
}

/// Returns the programs of a test, or skips it.
fn start_browser(test: &str) -> Option<(Page, Browser)> {
    if let Some(missing) = missing_program() {
        skip::skip(test, &missing);
        return None;
    }
    Some((start(&vbns_week()), Browser::start()))
}

#[test]
fn pages_have_no_accessibility_violation() {
    let Some((page, browser)) = start_browser("pages_have_no_accessibility_violation") else { return };
    let directory = tempfile::tempdir().unwrap();
    let axe = axe(directory.path());
    for (name, address) in PAGES {
        for (look, medium, scheme, width, zoom) in [
            ("light", "screen", "light", 1280, 1),
            ("dark", "screen", "dark", 1280, 1),
            ("print", "print", "light", 800, 1),
            ("zoom", "screen", "light", 640, 2),
            ("narrow", "screen", "dark", 320, 1),
        ] {
            browser.set_media(medium, scheme);
            browser.set_width(width, zoom);
            browser.open(&url(&page, address));
            if let Some(directory) = pictures() {
                browser.picture(&directory.join(format!("{name}-{look}.png")));
            }
            let violations = browser.violations(&axe);
            assert!(violations.is_empty(), "{name} {look}: {violations:#?}");
            let overflow = browser.run("return document.documentElement.scrollWidth - innerWidth");
            assert!(medium == "print" || overflow.as_i64().unwrap() <= 0, "{name} {look}: {overflow} px too wide");
        }
    }
}

#[test]
fn page_works_by_keyboard_without_script() {
    let Some((page, browser)) = start_browser("page_works_by_keyboard_without_script") else { return };
    browser.tools("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.open(&url(&page, "/"));
    // Skip link, two links of the navigation, then the search.
    for key in [TAB, TAB, TAB, TAB, "s", "d", "s", "c", ENTER] {
        browser.press(key);
    }
    browser.wait_for_address("/?q=sdsc");
    // Skip link, navigation, search and its button, the table, and its first pair.
    for key in [TAB, TAB, TAB, TAB, TAB, TAB, TAB, ENTER] {
        browser.press(key);
    }
    browser.wait_for_address("/pair/origin/c90-sdsc");
}

#[test]
fn arrow_keys_read_values_of_the_line() {
    let Some((page, browser)) = start_browser("arrow_keys_read_values_of_the_line") else { return };
    browser.open(&url(&page, "/pair/aztec/c90-psc"));
    browser.run("document.getElementById('goodput').focus()");
    browser.press(LEFT);
    let text = browser.run("return document.getElementById('goodput-readout').textContent");
    let text = text.as_str().unwrap();
    assert!(text.starts_with("2026-11-20 06:") && text.contains("UTC: about 9.8") && text.ends_with("Mb/s"), "{text}");
    assert_eq!(browser.run("return document.querySelectorAll('#goodput .cross').length"), 1);
}

#[test]
fn script_replaces_the_figures_and_nothing_else() {
    let Some((page, browser)) = start_browser("script_replaces_the_figures_and_nothing_else") else { return };
    let hold_timer = "window.setInterval = run => { window.turn = run; }";
    browser.tools("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": hold_timer }));
    browser.open(&url(&page, "/pair/aztec/c90-psc"));
    browser.run("window.before = document.querySelector('main'); document.querySelector('details').open = true");
    browser.wait_for("const done = arguments[arguments.length - 1]; turn().then(done, done)");
    let state = browser.run(
        "const main = document.querySelector('main'); return [main !== before, document.querySelector('details').open, \
         document.querySelectorAll('main').length, document.getElementById('goodput').getAttribute('tabindex')]",
    );
    assert_eq!(state, json!([true, true, 1, "0"]));
}

#[test]
fn page_loads_nothing_from_other_hosts() {
    let Some((page, browser)) = start_browser("page_loads_nothing_from_other_hosts") else { return };
    browser.open(&url(&page, "/pair/aztec/c90-psc"));
    let origins =
        browser.run("return [...new Set(performance.getEntriesByType('resource').map(r => new URL(r.name).host))]");
    assert_eq!(origins, json!([page.server.address().to_string()]));
    let inline = browser.run("return document.querySelectorAll('[style], style, script:not([src]), [onclick]').length");
    assert_eq!(inline, 0);
}
