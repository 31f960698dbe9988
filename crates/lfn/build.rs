//! Records the commit and its date for `lfn --version`: from git, or the date from SOURCE_DATE_EPOCH. Strips release binaries.
//!
//! Without git, for example in a source archive, the commit is unknown and the version has only its number.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    strip_release_binary();
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    // An archive below another repository must not show the commit of that repository.
    let is_own = git(&["ls-files", "--error-unmatch", "build.rs"]).is_some();
    let commit = git(&["rev-parse", "--short=9", "HEAD"]).filter(|_| is_own);
    let date = match env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) => Some(date_of(seconds)),
        None => git(&["log", "-1", "--format=%cs"]).filter(|_| is_own),
    };
    let details: Vec<String> = [commit, date].into_iter().flatten().collect();
    println!("cargo:rustc-env=BUILD_COMMIT_AND_DATE={}", details.join(" "));
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo:rerun-if-changed=build.rs");
    // HEAD names the branch, and the file of the branch has the commit.
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(file) = git(&["rev-parse", "--git-path", name]).filter(|file| is_own && Path::new(file).exists()) {
            println!("cargo:rerun-if-changed={file}");
        }
    }
}

/// Removes the symbols of a release binary without debug information, which is half of its size. Cargo ignores `strip` of a
/// profile for packages with their own settings in this profile, and rejects `strip` in these settings.
fn strip_release_binary() {
    let is_set = |name, value| env::var(name).is_ok_and(|found| found == value);
    if is_set("PROFILE", "release") && is_set("DEBUG", "false") {
        println!("cargo:rustc-link-arg-bins=-Wl,--strip-all");
    }
}

/// Returns the date of a time since 1970, as YYYY-MM-DD (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
fn date_of(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
