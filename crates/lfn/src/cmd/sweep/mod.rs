//! `lfn sweep`: converts the flags and the settings file to the options of `lfn_api::sweep`, calls it and prints its
//! progress and its result.

mod factors;
mod file;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use lfn_api::pictures::of_sweep;
use lfn_api::sweep::{RETRY_FOR, SweepFailure, SweepOptions, SweepProgress};
use lfn_api::test::{TestEvent, TestOptions};
use lfn_base::units::Ratio;
use lfn_campaign::design::{Design, Part};
use lfn_campaign::document::SweepDocument;
use lfn_campaign::factor::Factor;
use lfn_campaign::published;
use lfn_campaign::schedule::{Goals, MIN_RUNS, SweepEnd};
use lfn_measure::tester::TestProgress;
use lfn_results::measure::{MIN_INTERVAL, TestLoad, TestRequest};

use super::interrupt::Interrupt;
use super::values::{count, duration, read, value_error};
use crate::cli::output::{OutputArgs, PlotArgs, SweepFormats};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::{Output, OutputFormat, print_document};
use crate::print::sweep::{SweepPrinter, page};
use crate::server_flags::{ServerArgs, emulator};
use crate::typed;

/// Run a set of tests over lists of settings, and find the best values
///
/// Runs a test for each point, which is a combination of the values, in random order. A block runs every point once, so
/// that a slow drift of the path affects all points alike. Prints each point with its goodput, the 95 % confidence
/// interval, the prediction and the limit, and the optimum. An interrupted sweep resumes: run the same command again.
///
/// VALUES are a list (1,4,16), a geometric range (1MB..16MB:x2) or a range with a step (1..9:+2).
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, mut_arg("host", |host| host.required_unless_present("list_findings")))]
pub struct SweepArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    factors: factors::FactorArgs,
    /// Read the values from a TOML file; the keys are the names of the flags
    #[arg(long, value_name = "FILE", help_heading = "Factors")]
    file: Option<PathBuf>,
    /// Repeat the sweeps of Figures 16 to 19 of the ACTS report (1995), or of Figure 21 on an emulated path with an RTT below 50 ms
    #[arg(long, help_heading = "Factors", conflicts_with = "file")]
    acts: bool,
    /// Transmit for this long in each test [default: 10s; with --acts 20s, for Figure 21 5s]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    time: Option<String>,
    /// Run a point until half its 95 % confidence interval is within this percentage of its mean, such as 5%
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    until: Option<String>,
    /// Run each point at most N times [default: 3; with --until or --budget 100, except with --acts]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    repeat: Option<String>,
    /// End the sweep before it takes longer than this [default: no limit; with --acts 25min]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    budget: Option<String>,
    /// Set the seed of the random order [default: random; a resumed sweep keeps its seed]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seed: Option<String>,
    /// Store finished runs in FILE and resume from it [default: lfn-sweep-ID.ndjson; ID follows from the settings]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Repeat failed runs until no run has finished for this long [default: 10min]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    retry_for: Option<String>,
    /// Set the capacity of the bottleneck, if known; used for the predictions and the findings
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// Use the congestion control and the buffers of the plan, except where a factor sets them
    ///
    /// The plan is for the capacity of --rate, or for the emulated path. See `lfn plan`. --acts implies --tuned on a known
    /// path.
    #[arg(long)]
    tuned: bool,
    /// Print the plan and its time, and run no test
    #[arg(long)]
    dry_run: bool,
    /// List all findings with their thresholds, evidence and sources, and exit
    #[arg(long, conflicts_with = "host")]
    list_findings: bool,
    #[command(flatten)]
    output: OutputArgs<SweepFormats>,
    #[command(flatten)]
    plot: PlotArgs,
}

const EXAMPLES: &str = "Examples:
  lfn sweep far.example --window 1MB..16MB:x2 --streams 1,4,16
  lfn sweep far.example --congestion cubic,bbr --until 5%
  lfn sweep far.example --window 1MB..16MB:x2 --rate 1gbit --budget 20min
  lfn sweep far.example --file sweep.toml --dry-run
  lfn emulate --profile acts -- lfn sweep far --acts --plot figures

Exit codes: 0 measured, also if the budget ended the sweep; 1 a point failed or has no run; 3 the server did not come back, or the disk is full (the same command \
resumes); 2 usage, also if the budget is too short for one run of each point; 130 interrupted (the same \
command resumes).";

const DEFAULT_TIME: Duration = Duration::from_secs(10);
const ACTS_TIME: Duration = Duration::from_secs(20);
const TERRESTRIAL_TIME: Duration = Duration::from_secs(5);
const ACTS_BUDGET: Duration = Duration::from_secs(25 * 60);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// Runs of a point, if another goal ends the sweep.
const MANY_RUNS: u64 = 100;
/// Maximum runs of a point.
const MAX_REPEAT: u64 = 10_000;

/// Runs `lfn sweep` and returns its exit code.
pub fn run(mut args: SweepArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    if args.list_findings {
        return print::findings::print(output).map(|()| Exit::Ok);
    }
    let options = args.options()?;
    let pictures = args.plot.create()?;
    let resolver = args.server.resolver();
    let interrupt = Interrupt::listen()?;
    let mut printer = SweepPrinter::new(output.format());
    let mut unprinted: Option<io::Error> = None;
    let mut on_progress = |progress: &SweepProgress<'_>| {
        if let SweepProgress::Test(TestEvent::Progress { progress: TestProgress::Connected(..), .. }) = progress {
            interrupt.begin_load();
        }
        if let Err(error) = printer.progress(progress) {
            interrupt.end_load();
            unprinted.get_or_insert(error);
        }
    };
    let swept = lfn_api::sweep(&options, &resolver, &interrupt.stop, &mut on_progress);
    printer.finish();
    let (document, failure) = match swept {
        Ok(document) => (document, None),
        Err(SweepFailure { error, document: Some(document) }) => (*document, Some(Failure::new(*error))),
        Err(SweepFailure { error, document: None }) => return Err(interrupt.with_exit_code(Failure::new(*error))),
    };
    let failure = unprinted.map(Failure::from).or(failure);
    let printed = print_result(&document, output).and_then(|()| {
        pictures.map_or(Ok(()), |pictures| pictures.write_one(of_sweep(&document), "the sweep has no part"))
    });
    failure.map_or(printed, |failure| Err(interrupt.with_exit_code(failure)))?;
    let is_measured = !matches!(document.ended, SweepEnd::DryRun);
    let has_failed = document.points.iter().any(|point| point.error.is_some() || (is_measured && point.runs == 0));
    Ok(match document.ended {
        SweepEnd::Interrupted => Exit::Interrupted,
        _ if has_failed => Exit::Failed,
        _ => Exit::Ok,
    })
}

/// Prints the result in the format of the output.
fn print_result(document: &SweepDocument, mut output: Output) -> Result<(), Failure> {
    output.set_album(|| of_sweep(document));
    match output.format() {
        OutputFormat::Ndjson => {
            output.write_report(document)?;
            let result = Box::new(document.clone());
            print_document(&lfn_campaign::document::SweepEvent::End { result }, OutputFormat::Ndjson)?;
            Ok(())
        }
        OutputFormat::Csv => output.finish(document, || print::csv().write_all(document.csv().as_bytes())),
        _ => output.finish(document, || print::result(&page(document))),
    }
}

impl SweepArgs {
    fn options(&mut self) -> Result<SweepOptions, Failure> {
        let server = self.server.host().unwrap_or_default().to_owned();
        let design = self.design()?;
        let time = self.test_time(&design)?;
        let rate = read("rate", &self.rate, "--rate 1gbit")?;
        let request = TestRequest {
            load: TestLoad::TimeSeconds(time),
            interval: (time / 10).clamp(MIN_INTERVAL, DEFAULT_INTERVAL),
            ..TestRequest::default()
        };
        let command = typed::without_secrets(typed::words());
        let is_known = rate.is_some() || emulator().path()?.is_some();
        let tuned = self.tuned || (self.acts && is_known);
        Ok(SweepOptions {
            test: TestOptions { request, rate, tuned, command, ..TestOptions::new(server) },
            design,
            goals: self.goals()?,
            seed: self.seed()?,
            state: self.state.clone(),
            dry_run: self.dry_run,
            retry_for: duration("retry-for", &self.retry_for)?.unwrap_or(RETRY_FOR),
        })
    }

    /// Returns the factors of the flags and of the file. The file also sets flags that are not given.
    fn design(&mut self) -> Result<Design, Failure> {
        if self.acts {
            if let Some(factor) = self.factors.first() {
                let name = factor.name();
                let text = format!("--acts and --{name} cannot be combined: --acts sets all values");
                return Err(Failure::usage(text).hint(format!("remove --acts or --{name}")));
            }
            let is_short = self.is_terrestrial()?;
            return Ok(if is_short { published::terrestrial_design() } else { published::satellite_design() });
        }
        let Some(path) = self.file.clone() else { return self.factors.design(Design::default()) };
        let settings = file::read_settings(&path)?;
        for (flag, text) in settings.flags {
            let own = match flag {
                "time" => &mut self.time,
                "until" => &mut self.until,
                "repeat" => &mut self.repeat,
                "budget" => &mut self.budget,
                "seed" => &mut self.seed,
                _ => &mut self.rate,
            };
            own.get_or_insert(text);
        }
        self.factors.design(settings.design)
    }

    /// Reports whether the emulated path is as short as that of Figure 21.
    fn is_terrestrial(&self) -> Result<bool, Failure> {
        let path = emulator().path()?;
        Ok(path.is_some_and(|path| path.base_rtt < published::MAX_TERRESTRIAL_RTT))
    }

    fn test_time(&self, design: &Design) -> Result<Duration, Failure> {
        let is_counted = |part: &Part| part.factors.iter().any(|given| given.factor == Factor::Count);
        if self.time.is_some() && design.parts.iter().all(is_counted) {
            return Err(Failure::usage("--time and --count cannot be combined").hint("remove one of the two"));
        }
        let usual = match (self.acts, design.parts.len()) {
            (false, _) => DEFAULT_TIME,
            (true, 1) => TERRESTRIAL_TIME,
            (true, _) => ACTS_TIME,
        };
        Ok(duration("time", &self.time)?.unwrap_or(usual))
    }

    fn goals(&self) -> Result<Goals, Failure> {
        let until: Option<Ratio> = read("until", &self.until, "--until 5%")?;
        if until.is_some_and(|until| until.get() < 0.001) {
            return Err(value_error("until", "the minimum is 0.1 %", "--until 5%"));
        }
        let budget = duration("budget", &self.budget)?;
        let has_other_goal = until.is_some() || budget.is_some();
        let usual = if has_other_goal && !self.acts { MANY_RUNS } else { 3 };
        let repeat = count("repeat", &self.repeat, "--repeat 5")?.unwrap_or(usual);
        if repeat > MAX_REPEAT {
            return Err(value_error(
                "repeat",
                format!("{repeat} runs: at most {MAX_REPEAT} are allowed"),
                "--repeat 5",
            ));
        }
        if until.is_some() && repeat < MIN_RUNS.into() {
            let text = format!("--until needs at least {MIN_RUNS} runs of each point");
            return Err(Failure::usage(text).hint(format!("--repeat {MIN_RUNS}")));
        }
        let repeat = u32::try_from(repeat).unwrap_or(u32::MAX);
        Ok(Goals { until, repeat, budget: budget.or(self.acts.then_some(ACTS_BUDGET)) })
    }

    fn seed(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.seed else { return Ok(None) };
        let invalid = |_| value_error("seed", format!("'{text}' is not an integer"), "--seed 1");
        text.trim().parse().map(Some).map_err(invalid)
    }
}
