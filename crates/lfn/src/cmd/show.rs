//! `lfn show`: prints a stored result as its command printed it, or compares several.

use std::io::Write;
use std::path::PathBuf;

use lfn_api::documents::{CopyDocument, EmulateDocument};
use lfn_api::show::{Shown, ShownResults};
use lfn_results::report::{self, StoredResult};

use crate::cli::output::{OutputArgs, PlotArgs, TextOrTable};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::copy::CopyReport;
use crate::print::output::{Output, OutputFormat};
use crate::print::{show, test};

/// Print stored results, or compare them
///
/// One result of `lfn test`, `sweep`, `doctor`, `copy`, `emulate` or `trace` is printed as after its command. Several
/// results of tests, or several sweeps, are printed side by side, with their differences from the first and with settings
/// that were not the same. Accepts the files of --report, the output of --output json, the output of --output ndjson of
/// tests and sweeps, the state file of a sweep, and the output of iperf3 -J and --json-stream.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// Files with results; - reads standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print a table (CSV) with one row for each interval and stream, as `lfn test --output csv` does
    #[arg(long, conflicts_with_all = ["output", "json"])]
    intervals: bool,
    #[command(flatten)]
    output: OutputArgs<TextOrTable>,
    #[command(flatten)]
    plot: PlotArgs,
}

const EXAMPLES: &str = "Examples:
  lfn test far.example --report before.json
  lfn show before.json                     as after the test
  lfn show before.json after.json          side by side
  iperf3 -c far.example -J | lfn show before.json -
  lfn show before.json after.json --plot both.svg   draws both in the same charts
  lfn show sweep.json --plot pictures      a sweep with its charts
  lfn show cubic.json bbr.json --plot sweeps.svg    two sweeps, point by point
  lfn show lfn-sweep-1a2b3c4d.ndjson       the runs of an interrupted sweep

Exit codes: 0 printed; 1 a file cannot be read, or is not a result; 2 usage, also if results of several commands are \
given.";

/// Runs `lfn show` and returns its exit code.
pub fn run(args: ShowArgs) -> Result<Exit, Failure> {
    let mut output = args.output.open()?;
    let shown = lfn_api::show(&args.files)?;
    args.check(&shown, output.format())?;
    let pictures = args.plot.create()?;
    let album = pictures.as_ref().and_then(|_| shown.album());
    output.set_album(|| shown.album().unwrap_or_default());
    print_result(shown, args.intervals, output)?;
    if let Some((pictures, album)) = pictures.zip(album) {
        pictures.write_one(album, "no result has intervals")?;
    }
    Ok(Exit::Ok)
}

impl ShowArgs {
    /// Refuses flags that these results do not have.
    fn check(&self, shown: &Shown, format: OutputFormat) -> Result<(), Failure> {
        let is_one_test = |shown: &ShownResults| {
            matches!(shown.results.as_slice(), [(_, StoredResult::Test(_) | StoredResult::Tuning(_))])
        };
        if self.intervals && !matches!(shown, Shown::Tests(tests) if is_one_test(tests)) {
            return Err(Failure::usage("--intervals needs exactly one result of lfn test")
                .hint("to compare several results, use --output csv"));
        }
        if format == OutputFormat::Csv && !shown.has_table() {
            let text = format!("a result of lfn {} has no table (CSV)", shown.command());
            return Err(Failure::usage(text).hint("use --output json"));
        }
        match shown {
            Shown::Copy(_) if self.plot.plot.is_some() => {
                Err(Failure::usage("--plot: a stored result of lfn copy has no samples over time")
                    .hint("draw the copy when it runs: lfn copy SOURCE DESTINATION --plot copy.svg"))
            }
            Shown::Trace(_) if self.plot.plot.is_some() => {
                Err(Failure::usage("--plot: a stored result of lfn trace has no packets")
                    .hint("draw the capture: lfn trace capture.pcap --plot pictures"))
            }
            _ => Ok(()),
        }
    }
}

/// Prints the results in the format of the output.
fn print_result(shown: Shown, intervals: bool, output: Output) -> Result<(), Failure> {
    let format = output.format();
    match shown {
        Shown::Tests(tests) => print_tests(tests, intervals, output),
        Shown::Sweep(document) => output.finish(&*document, || match format {
            OutputFormat::Csv => print::csv().write_all(document.csv().as_bytes()),
            _ => print::result(&print::sweep::page(&document)),
        }),
        Shown::Sweeps { comparison, .. } => output.finish(&comparison, || match format {
            OutputFormat::Csv => print::csv().write_all(comparison.csv().as_bytes()),
            _ => print::result(&print::sweep::comparison_page(&comparison)),
        }),
        Shown::Doctor(document) => output.finish(&*document, || print::result(&print::doctor::page(&document))),
        Shown::Copy(document) => output.finish(&*document, || print::result(&copy_page(&document))),
        Shown::Emulation(document) => output.finish(&*document, || print::result(&emulation_page(&document))),
        Shown::Trace(document) => output.finish(&*document, || print::result(&print::trace::page(&document))),
    }
}

fn emulation_page(document: &EmulateDocument) -> String {
    let outcome = &document.outcome;
    print::emulate::accuracy::page(&outcome.accuracy_report, outcome.link_failure.is_some())
}

/// Returns the text of a copy with its failed entries, or the error of a copy without a result.
fn copy_page(document: &CopyDocument) -> String {
    let document = match document {
        CopyDocument::Finished(document) => document,
        CopyDocument::Failed(failed) => {
            let hint = failed.hint.as_ref().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
            return format!("failed: {}\n{hint}", failed.error);
        }
    };
    let failed = document.failures.iter().map(|failure| {
        let (name, reason, end) = (&failure.name, &failure.reason, failure.end);
        format!("failed: {name}: {reason} (at {end})\n")
    });
    CopyReport { document }.page() + &failed.collect::<String>()
}

fn print_tests(tests: ShownResults, intervals: bool, output: Output) -> Result<(), Failure> {
    let ShownResults { results: mut files, comparison } = tests;
    let format = output.format();
    output.finish(&comparison, || match files.as_mut_slice() {
        [(_, StoredResult::Test(document))] if intervals => {
            print::csv().write_all(report::interval_csv(document).as_bytes()).map_err(Failure::from)
        }
        [(_, StoredResult::Tuning(document))] if intervals => {
            let document = std::mem::take(document.as_mut()).into_test_document();
            print::csv().write_all(report::interval_csv(&document).as_bytes()).map_err(Failure::from)
        }
        _ if format == OutputFormat::Csv => Ok(print::csv().write_all(comparison.csv().as_bytes())?),
        [(_, StoredResult::Test(document))] => Ok(test::show(std::mem::take(document.as_mut()))?),
        [(_, StoredResult::Tuning(document))] => Ok(test::tuning::show(document)?),
        _ => Ok(print::out().write_all(show::side_by_side(&comparison).as_bytes())?),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use lfn_plot::MIN_SIZE;
    use serde_json::{Value, json};

    use super::*;

    /// Adds a changed document for each value and each replacement.
    fn change_each(
        document: &mut Value,
        pointer: &str,
        part: &Value,
        replacements: &[Value],
        check: &mut dyn FnMut(&Value),
    ) {
        for replacement in replacements {
            let Some(place) = document.pointer_mut(pointer) else { continue };
            let before = std::mem::replace(place, replacement.clone());
            check(document);
            if let Some(place) = document.pointer_mut(pointer) {
                *place = before;
            }
        }
        let inner: Vec<(String, &Value)> = match part {
            Value::Object(fields) => fields.iter().map(|(name, part)| (name.replace('~', "~0"), part)).collect(),
            // The further items are alike.
            Value::Array(items) => items.iter().take(2).enumerate().map(|(at, part)| (at.to_string(), part)).collect(),
            _ => return,
        };
        for (name, part) in inner {
            change_each(document, &format!("{pointer}/{}", name.replace('/', "~1")), part, replacements, check);
        }
    }

    fn page(shown: &Shown) -> String {
        match shown {
            Shown::Sweep(document) => print::sweep::page(document) + &document.csv(),
            Shown::Copy(document) => copy_page(document),
            Shown::Emulation(document) => emulation_page(document),
            Shown::Trace(document) => print::trace::page(document),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_changed_document_is_an_error_or_is_printed() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("changed.json");
        let replacements = [
            json!(null),
            json!(0),
            json!(u64::MAX),
            json!(1u64 << 56),
            json!(-1),
            json!(1e12),
            json!(-1e12),
            json!(5e-324),
            json!(""),
            json!([]),
            json!({}),
        ];
        for name in ["sweep", "copy", "emulate", "trace"] {
            let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/stored/{name}.json"));
            let whole: Value = serde_json::from_slice(&fs::read(stored).unwrap()).unwrap();
            let (mut shown_count, mut refused_count) = (0, 0);
            change_each(&mut whole.clone(), "", &whole, &replacements, &mut |changed| {
                fs::write(&file, changed.to_string()).unwrap();
                match lfn_api::show(std::slice::from_ref(&file)) {
                    Ok(shown) => {
                        assert!(!page(&shown).is_empty() || name == "trace");
                        shown.album().into_iter().for_each(|album| drop(album.overview().draw(MIN_SIZE).svg()));
                        shown_count += 1;
                    }
                    Err(error) => {
                        assert!(!error.to_string().contains('\n') && error.hint().is_some(), "{error}");
                        refused_count += 1;
                    }
                }
            });
            assert!(shown_count > 100 && refused_count > 100, "{name}: {shown_count} shown, {refused_count} refused");
        }
    }
}
