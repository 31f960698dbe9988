//! Choice of the kind of test, and its result.

use std::io;

use lfn_api::pictures::{Album, of_test, of_tuning};
use lfn_api::test::{TestEvent, TestFailure};
use lfn_measure::tester::TestProgress;
use lfn_results::report::Run;

use super::TestArgs;
use crate::cmd::interrupt::Interrupt;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::pictures::PictureFiles;
use crate::print::test::Printer;

/// Runs `lfn test` and returns its exit code.
pub fn run(args: TestArgs) -> Result<Exit, Failure> {
    if args.report.list_findings {
        return print::findings::print(args.report.output.open()?).map(|()| Exit::Ok);
    }
    if let Some(host) = &args.stamp.stamp {
        return args.stamp.run(host, args.report.output.open()?);
    }
    run_load(&args)
}

/// Runs the tests of a load, and prints their events and their result.
fn run_load(args: &TestArgs) -> Result<Exit, Failure> {
    let (mut options, resolver) = (args.options()?, args.resolver());
    args.check(&options, &resolver)?;
    let interrupt = Interrupt::listen()?;
    if let Some(iperf3) = &mut options.iperf3 {
        iperf3.login = args.iperf3.login()?;
    }
    let output = args.report.output.open()?;
    let pictures = args.report.plot.create()?;
    let mut printer = Printer::new(output, args.report.live_enabled(), args.tuning.compare);
    let mut unprinted: Option<io::Error> = None;
    let mut on_event = |event: &TestEvent<'_>| {
        if let TestEvent::Progress { progress: TestProgress::Connected(..), .. } = event {
            interrupt.begin_load();
        }
        if let Err(error) = printer.event(event) {
            interrupt.end_load();
            unprinted.get_or_insert(error);
        }
    };
    let ended = if args.tuning.compare {
        let compared = lfn_api::test::compare(&options, &resolver, &interrupt.stop, &mut on_event);
        let (document, failure) = split(args, &interrupt, compared)?;
        let failure = unprinted.map(Failure::from).or(failure);
        let is_unreliable = document
            .comparisons
            .iter()
            .any(|pair| pair.now.is_unreliable() || pair.tuned.as_ref().is_some_and(|tuned| tuned.is_unreliable()));
        let album = pictures.is_some().then(|| of_tuning(&document));
        let printed = printer.finish_comparison(document, failure.as_ref());
        let printed = printed.and(write_pictures(pictures, album));
        failure.map_or(printed, Err).map(|()| is_unreliable)
    } else {
        let tested = lfn_api::test(&options, &resolver, &interrupt.stop, &mut on_event);
        let (document, failure) = split(args, &interrupt, tested)?;
        let failure = unprinted.map(Failure::from).or(failure);
        let is_unreliable = document.runs.iter().any(Run::is_unreliable);
        let album = pictures.is_some().then(|| of_test(&document));
        let printed = printer.finish(document, failure.as_ref());
        let printed = printed.and(write_pictures(pictures, album));
        failure.map_or(printed, Err).map(|()| is_unreliable)
    };
    ended.map(|is_unreliable| match (interrupt.is_interrupted(), is_unreliable) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Unreliable,
        _ => Exit::Ok,
    })
}

/// Writes the pictures, if they are requested. A test without a finished run has none.
fn write_pictures(pictures: Option<PictureFiles>, album: Option<Album>) -> Result<(), Failure> {
    pictures.zip(album).map_or(Ok(()), |(pictures, album)| pictures.write_one(album, "no test has finished"))
}

/// Returns the document with the failure, if there is one. A failure without a document ends the command.
fn split<D: std::fmt::Debug>(
    args: &TestArgs,
    interrupt: &Interrupt,
    tested: Result<D, TestFailure<D>>,
) -> Result<(D, Option<Failure>), Failure> {
    match tested {
        Ok(document) => Ok((document, None)),
        Err(TestFailure { error, document }) => {
            let failure = interrupt.with_exit_code(args.failure(error));
            match document {
                Some(document) => Ok((*document, Some(failure))),
                None => Err(failure),
            }
        }
    }
}
