//! The verb `test`: measures the path to a server under load.
//!
//! [`test()`] runs one direction, or both in series or at the same time, with an lfn server or an iperf3 server
//! (`iperf3`). [`compare()`] runs each direction twice: with the host's own settings and with those of the plan. Both
//! check the options first (`check`), report events to a callback (`event`), and return one document. A failure has
//! the document with all figures up to the failure (`error`).

mod check;
mod compare;
mod error;
mod event;
mod iperf3;
mod iperf3_parameters;
mod option_error;
mod options;
pub(crate) mod path;
mod recorder;
mod run;
pub(crate) mod server;
mod settings;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lfn_results::report::TestDocument;

pub use compare::compare;
pub use error::{TestFailure, TestVerbError};
pub use event::TestEvent;
pub use option_error::{Iperf3Limit, TcpOption, TestOptionsError};
pub use options::{Iperf3Options, PathDiscovery, TestOptions};

use crate::resolve::{ReachedServer, ServerResolver};
use path::known_paths;
use recorder::TestRecorder;

/// Runs the tests, and returns the result with one run for each direction. A set `stop` ends the load of the running
/// test, whose figures up to then are its result; later tests do not start.
pub fn test(
    options: &TestOptions,
    resolver: &ServerResolver,
    stop: &Arc<AtomicBool>,
    on_event: &mut dyn FnMut(&TestEvent<'_>),
) -> Result<TestDocument, TestFailure> {
    test_on(options, resolver, None, stop, on_event)
}

/// Runs the tests as [`test()`] does. `reached` is the server if it is reached already.
pub(crate) fn test_on(
    options: &TestOptions,
    resolver: &ServerResolver,
    reached: Option<&ReachedServer>,
    stop: &Arc<AtomicBool>,
    on_event: &mut dyn FnMut(&TestEvent<'_>),
) -> Result<TestDocument, TestFailure> {
    let invalid = |error: TestVerbError| TestFailure::without_document(error);
    options.check(&resolver.environment).map_err(|error| invalid(error.into()))?;
    let paths = known_paths(options.rate, &resolver.environment).map_err(|error| invalid(error.into()))?;
    let arguments = server::arguments(options, resolver);
    let (recorder, tested) = match &options.iperf3 {
        Some(iperf3) => {
            let address = iperf3_parameters::host_and_port(&options.server).map_err(|error| invalid(error.into()))?;
            let parameters = iperf3_parameters::parameters(options, iperf3).map_err(|error| invalid(error.into()))?;
            let mut recorder = TestRecorder::new(server::origin(options, address.host.clone()), arguments, on_event);
            let run = iperf3::Iperf3Run { options, iperf3, address: &address, parameters, paths, stop };
            let tested = run.tests(&mut recorder);
            (recorder, tested)
        }
        None => {
            let origin = server::origin(options, server::preliminary_name(&options.server));
            let mut recorder = TestRecorder::new(origin, arguments, on_event);
            let tested = run::run_tests(options, resolver, reached, paths, stop, &mut recorder);
            (recorder, tested)
        }
    };
    match tested {
        Ok(()) => Ok(recorder.document(None)),
        Err(error) => {
            let document = recorder.document(Some(error.command_error()));
            Err(TestFailure { error, document: Some(Box::new(document)) })
        }
    }
}
