//! `lfn demo coop3d`: an atmosphere and a lake that are coupled over the emulated path, in lock-step and with a lag.
//!
//! The parent process ([`run`]) measures the lake, plans, starts the emulated path and prints the result. The processes
//! inside the path ([`component`]) run one model each. [`basin`] has the physics that the models share, [`atmosphere`] and
//! [`lake`] the synthetic models, [`anuga`] the real lake. [`exchange`] has the steps, with the channel or with copied [`files`].
//! [`plan`] writes the coupling files, [`result`] the document and the text, and [`map`] the picture.

mod anuga;
mod atmosphere;
mod basin;
mod component;
mod exchange;
mod fields;
mod files;
mod lake;
mod map;
mod plan;
mod result;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use lfn_api::documents::FileCoupling;
use lfn_base::path::PathProfile;
use lfn_base::units::{Bytes, show_duration};
use lfn_campaign::published;
use lfn_emulate::{AccuracyReport, CommandExit, EmulatedPath, FarSide, Setup};
use lfn_sys::process::Signals;

use super::emulation::{SEED, create_work_directory, exit_of_inner_process};
use super::wrap::wrap_paragraph;
use crate::cli::output::{OutputArgs, PlotArgs, TextOrJson};
use crate::cmd::interrupt::ending_signals;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::pictures::PictureFiles;
use crate::print::terminal::{columns, stderr_columns};
use anuga::{AnugaLake, AnugaVersion, INSTALL, is_installed};
use component::{ComponentSettings, RunSettings, WorkDirectory};
use exchange::Component;
use files::FILE_STEPS;
use plan::{PlannedCoupling, STEPS, SYNTHETIC_STEP, couplings};
use result::{FinishedDemo, FinishedRun, document, page};

/// Couple an atmosphere and a lake over the emulated satellite link, in lock-step and with a lag
///
/// Emulates the ACTS satellite path of 1995 (539 ms, OC-3c at 135 Mb/s). The atmosphere on the near side and the lake on
/// the far side exchange wind and current in each step: first in lock-step, then with the lag that the plan shows.
/// Prints the predicted and the measured times side by side, and draws the level of the lake and the wind to
/// lfn-coop3d.svg. The atmosphere is synthetic. The lake is ANUGA if Python has it, and otherwise synthetic too.
/// Takes about one minute and needs no root.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES)]
pub struct Coop3dArgs {
    /// Set the Python program that has ANUGA
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Set the model of the lake [default: anuga if it is installed]
    #[arg(long, value_name = "MODEL")]
    lake: Option<LakeModel>,
    /// Couple the models by copied files too, for comparison: lfn copy in each step
    #[arg(long)]
    files: bool,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
    #[command(flatten)]
    plot: PlotArgs,
    /// Set the number of coupling steps
    #[arg(long, hide = true, value_name = "NUMBER", default_value_t = STEPS, value_parser = clap::value_parser!(u64).range(2..=1000))]
    steps: u64,
    /// Run one component as the process inside the emulated path
    #[arg(long, hide = true, value_name = "NAME", requires = "work")]
    component: Option<Component>,
    /// Directory of the process inside the emulated path
    #[arg(long, hide = true, value_name = "DIR")]
    work: Option<PathBuf>,
}

/// Model of the lake.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LakeModel {
    /// ANUGA, a Python package
    Anuga,
    /// Linear shallow water in this program
    Synthetic,
}

const EXIT_CODES: &str =
    "Exit codes: 0 measured, 1 failed, 2 usage, 4 measured but the emulation was not accurate, 130 interrupted.";

/// Picture of a demo without `--plot`.
const PICTURE: &str = "lfn-coop3d.svg";

/// Space for the surfaces of the lake, the copied fields and the messages of ANUGA.
const SPACE: Bytes = Bytes(10_000_000);

/// Interval at which the measurement of ANUGA looks at its end.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `lfn demo coop3d` and returns its exit code.
pub fn run(args: &Coop3dArgs) -> Result<Exit, Failure> {
    if let (Some(component), Some(work)) = (args.component, &args.work) {
        component::run(&WorkDirectory(work), component)?;
        return Ok(Exit::Ok);
    }
    let mut output = args.output.open()?;
    let size = args.plot.size_or(map::SIZE);
    let pictures = PictureFiles::create(args.plot.plot.as_deref().unwrap_or(Path::new(PICTURE)), size)?;
    let python = python_with_anuga(args)?;
    let demo = match run_in_work_directory(args, python)? {
        Ok(demo) => demo,
        Err(exit) => return Ok(exit),
    };
    let document = document(&published::path(), &demo);
    let album = map::album(&document, &demo.runs);
    output.set_album(|| album.clone());
    output.finish(&document, || print::result(&page(&document, columns())))?;
    print_accuracy("", &demo.accuracy_report);
    if let Some(by_files) = &demo.by_files {
        print_accuracy("By files:\n", &by_files.accuracy_report);
    }
    print::message("\n");
    pictures.write_picture("level", &album.overview())?;
    Ok(if document.accurate { Exit::Ok } else { Exit::Unreliable })
}

fn print_accuracy(head: &str, report: &AccuracyReport) {
    print::message(format_args!("\n{head}{}", print::emulate::accuracy::for_stderr(report, false)));
}

/// Runs the demo in a temporary directory, which is deleted also after Ctrl-C.
fn run_in_work_directory(args: &Coop3dArgs, python: Option<PathBuf>) -> Result<Result<FinishedDemo, Exit>, Failure> {
    let ending: Vec<i32> = ending_signals().collect();
    let signals = Signals::block(&ending).context("cannot block signals")?;
    let work = create_work_directory(SPACE)?;
    let result = run_in(&WorkDirectory(&work), args, python, &signals);
    let _ = fs::remove_dir_all(&work);
    Ok(if is_interrupted(&signals, Duration::ZERO) { Err(Exit::Interrupted) } else { result? })
}

/// Waits for a signal that ends the demo, at most for this time.
fn is_interrupted(signals: &Signals, timeout: Duration) -> bool {
    signals.next(Some(timeout)).is_ok_and(|signal| signal.is_some())
}

/// Returns the Python program with ANUGA; none for the synthetic lake.
fn python_with_anuga(args: &Coop3dArgs) -> Result<Option<PathBuf>, Failure> {
    if args.lake == Some(LakeModel::Synthetic) {
        return Ok(None);
    }
    // The processes inside have another current directory.
    let python = match args.python.canonicalize() {
        // A link to Python selects its virtual environment, so that the link itself is used.
        Ok(_) if args.python.components().count() > 1 => std::path::absolute(&args.python)?,
        _ => args.python.clone(),
    };
    if is_installed(&python) {
        return Ok(Some(python));
    }
    let missing = format!("{} has no ANUGA", args.python.display());
    if args.lake == Some(LakeModel::Anuga) {
        return Err(Failure::msg(missing).hint(INSTALL));
    }
    print::message(format_args!(
        "{missing}: the lake is synthetic. Install ANUGA and run the demo with it:\n  {INSTALL}\n"
    ));
    Ok(None)
}

/// Measures the lake, plans, and runs both couplings over the emulated path. An inner error is the exit code after a signal,
/// or that of a process inside the path that has printed its error.
fn run_in(
    work: &WorkDirectory<'_>,
    args: &Coop3dArgs,
    python: Option<PathBuf>,
    signals: &Signals,
) -> Result<Result<FinishedDemo, Exit>, Failure> {
    let work_path = work.0.canonicalize()?;
    let work = WorkDirectory(&work_path);
    let path = published::path();
    let lake = match &python {
        Some(python) => match measure_anuga(python, &work, signals)? {
            Ok(lake) => Some(lake),
            Err(exit) => return Ok(Err(exit)),
        },
        None => None,
    };
    let (lake_step, anuga) = lake.map_or((SYNTHETIC_STEP, None), |(step, anuga)| (step, Some(anuga)));
    let plans = couplings(args.steps, lake_step, &path)?;
    print_introduction(&path, &plans, anuga.as_ref());
    for plan in &plans {
        fs::write(work.coupling(plan.name), &plan.text)?;
    }
    let expected = |plan: &PlannedCoupling| RunSettings { name: plan.name.to_owned(), expected: plan.predicted.run };
    let mut settings = ComponentSettings { python, runs: plans.iter().map(expected).collect(), is_by_files: false };
    let accuracy_report = match run_emulation(&work, &settings)? {
        Ok(accuracy_report) => accuracy_report,
        Err(exit) => return Ok(Err(exit)),
    };
    let runs = plans.into_iter().map(|plan| read_run(&work, plan)).collect::<Result<Vec<_>, Failure>>()?;
    let mut by_files = None;
    if args.files {
        print::message(format_args!("{FILE_STEPS} steps in lock-step by files, with lfn copy\n"));
        settings.is_by_files = true;
        match run_emulation(&work, &settings)? {
            Ok(accuracy_report) => by_files = Some(read_file_coupling(&work, accuracy_report)?),
            Err(exit) => return Ok(Err(exit)),
        }
    }
    Ok(Ok(FinishedDemo { accuracy_report, runs, anuga, by_files }))
}

/// Measures the time that ANUGA computes in one step on this machine. An inner error is the exit code after a signal.
fn measure_anuga(
    python: &Path,
    work: &WorkDirectory<'_>,
    signals: &Signals,
) -> Result<Result<(Duration, AnugaVersion), Exit>, Failure> {
    let (python, work) = (python.to_owned(), work.0.to_owned());
    let measurement = thread::spawn(move || -> anyhow::Result<(Duration, AnugaVersion)> {
        let mut lake = AnugaLake::start(&python, &work)?;
        Ok((lake.measure_step()?, lake.version.clone()))
    });
    while !measurement.is_finished() {
        if is_interrupted(signals, SIGNAL_INTERVAL) {
            // The end of this process ends ANUGA.
            return Ok(Err(Exit::Interrupted));
        }
    }
    // The emulation needs a process with one thread.
    let measured = measurement.join().map_err(|_| Failure::msg("the measurement of ANUGA panicked"))?;
    Ok(Ok(measured?))
}

fn print_introduction(path: &PathProfile, plans: &[PlannedCoupling], anuga: Option<&AnugaVersion>) {
    let lake = match anuga {
        Some(anuga) => format!("ANUGA {}", anuga.version),
        None => format!("synthetic, {} a step", show_duration(SYNTHETIC_STEP)),
    };
    let predicted_total: Duration = plans.iter().map(|plan| plan.predicted.run).sum();
    let steps = plans.first().map_or(0, |plan| plan.coupling.steps);
    let (synthetic_step, total) = (show_duration(SYNTHETIC_STEP), show_duration(predicted_total));
    let (capacity, rtt) = (path.capacity, show_duration(path.base_rtt));
    let lines = [
        format!("Two models over a satellite link on this machine: {capacity}, RTT {rtt}."),
        format!("Near: an atmosphere (synthetic, {synthetic_step} a step)."),
        format!("Far: a lake ({lake})."),
        format!("Two runs of {steps} steps: in lock-step, then with the planned lag."),
        format!("Predicted: {total} in total."),
    ];
    for line in lines {
        print::message(format_args!("{}\n", wrap_paragraph(&line, stderr_columns())));
    }
}

/// Runs both components over the emulated path. An inner error is the exit code of a process inside the path that has
/// printed its error.
fn run_emulation(
    work: &WorkDirectory<'_>,
    settings: &ComponentSettings,
) -> Result<Result<AccuracyReport, Exit>, Failure> {
    fs::write(work.settings(), serde_json::to_vec(settings).context("cannot write the settings")?)?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let arguments = |component: Component| -> Vec<OsString> {
        let words = ["--no-defaults", "demo", "coop3d", "--component", component.name(), "--work"];
        words.map(OsString::from).into_iter().chain([work.0.into()]).collect()
    };
    let far = FarSide::Server { program: program.clone(), arguments: arguments(Component::Lake), memory_root: None };
    let setup = Setup::new(EmulatedPath::symmetric(published::path()), SEED, far);
    let command: Vec<OsString> =
        [program.into_os_string()].into_iter().chain(arguments(Component::Atmosphere)).collect();
    let document = lfn_api::emulate::run_setup(&setup, &command).map_err(crate::cmd::emulate::emulate_error)?;
    let outcome = document.outcome;
    if let Some(broken) = &outcome.link_failure {
        return Err(Failure::msg(broken));
    }
    Ok(match outcome.near.filter(|ending| *ending != CommandExit::Exited(0)) {
        Some(ending) => Err(exit_of_inner_process(ending)),
        None => Ok(outcome.accuracy_report),
    })
}

/// Reads the times of the steps with copied files.
fn read_file_coupling(work: &WorkDirectory<'_>, accuracy_report: AccuracyReport) -> Result<FileCoupling, Failure> {
    let steps: Vec<Duration> = serde_json::from_slice(&fs::read(work.file_steps())?)?;
    Ok(result::file_coupling(&steps, accuracy_report))
}

/// Reads the figures of a run and the lake at its end.
fn read_run(work: &WorkDirectory<'_>, plan: PlannedCoupling) -> Result<FinishedRun, Failure> {
    let report = serde_json::from_slice(&fs::read(work.report(plan.name))?)?;
    let surface = serde_json::from_slice(&fs::read(work.surface(plan.name))?)?;
    Ok(FinishedRun { plan, report, surface })
}
