//! The pages in Chromium: no violation of accessibility rules in light, dark and print, at 200 % zoom and at 320 pixels,
//! and without script. `LFN_PICTURES=DIR` keeps pictures of all pages.

#[path = "../../lfn/tests/support/skip.rs"]
#[allow(dead_code, reason = "this program uses a part of the module")]
mod skip;
mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use skip::Missing;
use support::browser::{Browser, axe};
use support::{Page, TOKEN, start, vbns_week};

/// Key codes of WebDriver.
const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const LEFT: &str = "\u{e012}";

const PAGES: [(&str, &str); 4] =
    [("matrix", "/"), ("pair", "/pair/aztec/c90-psc"), ("site", "/site/NCAR"), ("search", "/?q=sdsc")];

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

#[test]
fn pages_have_no_accessibility_violation() {
    if let Some(missing) = missing_program() {
        return skip::skip("pages_have_no_accessibility_violation", &missing);
    }
    let (page, directory) = (start(&vbns_week()), tempfile::tempdir().unwrap());
    let (browser, axe) = (Browser::start(), axe(directory.path()));
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
