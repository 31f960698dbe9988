//! `lfn doctor`: converts the flags to the options of `lfn_api::doctor`, calls it, and prints its progress and its result.

use std::ffi::OsString;
use std::path::PathBuf;

use lfn_api::doctor::{DiskPaths, DoctorError, DoctorEvent, DoctorFailure, DoctorOptions, from_file};
use lfn_api::pictures::of_doctor;
use lfn_measure::tester::TestProgress;
use lfn_results::report::DoctorDocument;

use super::interrupt::Interrupt;
use super::values::{duration, read};
use crate::cli::output::{OutputArgs, PlotArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::doctor::{DoctorProgress, page};
use crate::print::output::{Output, print_document};
use crate::print::pictures::PictureFiles;
use crate::server_flags::ServerArgs;
use crate::typed;

/// Find what limits the path to a server, with the evidence and the remedy
///
/// Examines both hosts, the path MTU, TCP in both directions, and trains of datagrams in both directions, within 60 s.
/// Prints the causes with the largest gain first. Each cause has its figures, the command that removes it with the host that
/// runs it, and the goodput predicted afterwards. A healthy path is reported as limited by the path.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, mut_arg("host", |host| {
    host.required_unless_present_any(["from", "list_findings"]).conflicts_with_all(["from", "list_findings"])
}))]
pub struct DoctorArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Set the time of the TCP load in each direction, at most 1h [default: by the RTT, 8 s to 15 s]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true, conflicts_with_all = ["quick", "from"])]
    time: Option<String>,
    /// Examine within 15 s, or within 30 s if the RTT is above 300 ms
    #[arg(long, conflicts_with = "from")]
    quick: bool,
    /// Limit the load on the path to RATE in each direction
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, conflicts_with = "from")]
    max_load: Option<String>,
    /// Set the capacity of the slowest link of the path, to predict the goodput
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, conflicts_with = "from")]
    rate: Option<String>,
    /// Also measure the disk of PATH, or of HOST:PATH on the server (give the flag once for each host)
    ///
    /// Reads and writes for 5 s each (2 s with --quick), after the loads and in addition to their time. A directory gets an
    /// unnamed file of at most a tenth of the free space, and at most 4 GiB. An existing file is only read.
    #[arg(long, value_name = "PATH", conflicts_with = "from")]
    disk: Vec<OsString>,
    /// Diagnose the evidence of FILE again, without a network; - reads standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Replace addresses, names, users, files and tickets in the result before you publish it
    #[arg(long)]
    mask: bool,
    /// List all findings with their thresholds, evidence and sources, and exit
    #[arg(long)]
    list_findings: bool,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
    #[command(flatten)]
    plot: PlotArgs,
}

const EXAMPLES: &str = "Examples:
  lfn doctor far.example
  lfn doctor me@there --quick                           starts the server over ssh
  lfn doctor far.example --rate 10gbit                  adds a prediction
  lfn doctor far.example --max-load 100mbit             on a path with other users
  lfn doctor far.example --disk /data --disk far.example:data
  lfn doctor far.example --mask --report evidence.json  writes evidence for a bug report
  lfn doctor --from evidence.json
  lfn doctor --from evidence.json --plot pictures       draws the loads of both directions
  lfn emulate --rtt 100ms --rate 50mbit --loss 1% -- lfn doctor far

Exit codes: 0 examined, with or without findings; 1 the server was not reached, no load had a result, or the file of \
--from cannot be read; 2 usage; 130 \
interrupted (SIGINT, SIGTERM, SIGHUP): the first signal ends the load and prints the result so far, the second ends the command.";

/// Runs `lfn doctor` and returns its exit code.
pub fn run(args: DoctorArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    if args.list_findings {
        return print::findings::print(output).map(|()| Exit::Ok);
    }
    if let Some(file) = &args.from {
        let pictures = args.plot.create()?;
        let document = args.masked(from_file(file)?)?;
        output.finish(&document, || print::result(&page(&document)))?;
        write_pictures(pictures, &document)?;
        return Ok(Exit::Ok);
    }
    examine(&args, output)
}

/// Examines the path, and prints its result.
fn examine(args: &DoctorArgs, mut output: Output) -> Result<Exit, Failure> {
    let options = args.options()?;
    let pictures = args.plot.create()?;
    let resolver = args.server.resolver();
    let interrupt = Interrupt::listen()?;
    let mut progress = DoctorProgress::new();
    let mut on_event = |event: &DoctorEvent<'_>| {
        if let DoctorEvent::Progress(TestProgress::Connected(..)) = event {
            interrupt.begin_load();
        }
        progress.event(event);
    };
    let examined = lfn_api::doctor(&options, &resolver, &interrupt.stop, &mut on_event);
    progress.finish();
    match examined {
        Ok(document) => {
            let document = args.masked(document)?;
            output.set_album(|| of_doctor(&document));
            output.finish(&document, || print::result(&page(&document)))?;
            write_pictures(pictures, &document)?;
            Ok(if interrupt.is_interrupted() { Exit::Interrupted } else { Exit::Ok })
        }
        Err(DoctorFailure { error, document }) => {
            if let Some(document) = document {
                print_failed(&args.masked(*document)?, output)?;
            }
            Err(interrupt.with_exit_code(Failure::new(error)))
        }
    }
}

/// Writes the pictures, if they are requested.
fn write_pictures(pictures: Option<PictureFiles>, document: &DoctorDocument) -> Result<(), Failure> {
    pictures.map_or(Ok(()), |pictures| pictures.write_one(of_doctor(document), "no load has finished"))
}

/// Prints the document of a failed examination as JSON if requested. The error itself is printed by the caller.
fn print_failed(document: &DoctorDocument, mut output: Output) -> Result<(), Failure> {
    output.write_report(document)?;
    if output.format().is_json() {
        print_document(document, output.format())?;
    }
    Ok(())
}

impl DoctorArgs {
    fn options(&self) -> Result<DoctorOptions, Failure> {
        let server = self.server.host().unwrap_or_default();
        Ok(DoctorOptions {
            time: duration("time", &self.time)?,
            quick: self.quick,
            max_load: read("max-load", &self.max_load, "--max-load 50mbit")?,
            disks: DiskPaths::parse(&self.disk, server).map_err(DoctorError::from)?,
            rate: read("rate", &self.rate, "--rate 10gbit")?,
            command: typed::without_secrets(typed::words()),
            ..DoctorOptions::new(server)
        })
    }

    fn masked(&self, document: DoctorDocument) -> Result<DoctorDocument, Failure> {
        if self.mask { Ok(document.masked()?) } else { Ok(document) }
    }
}
