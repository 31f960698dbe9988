//! The verb `doctor`: examines the path to a server and both hosts, and names what limits the path.
//!
//! [`doctor()`] runs its parts one after the other: the facts of both hosts and the path MTU, a TCP load in each direction,
//! and trains of datagrams in each direction at rates that follow from the goodput of TCP. All figures of a direction are
//! one [`Evidence`](lfn_results::evidence::Evidence), which is diagnosed as that of a test. A part that fails is listed in
//! the result, and the other parts still run. [`from_file`] diagnoses stored evidence again, without a network.

mod disks;
mod error;
mod event;
mod examination;
mod options;
mod server;
mod trains;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lfn_results::report::{DoctorDocument, MAX_DOCTOR_BYTES, read_doctor};

pub use disks::{DiskPathError, DiskPaths};
pub use error::{DoctorError, DoctorFailure, EvidenceError};
pub use event::{DoctorEvent, DoctorPart};
pub use options::DoctorOptions;

use crate::resolve::ServerResolver;
use crate::show::read_contents;
use crate::test::path::known_paths;
use crate::test::server as test_server;
use examination::Examination;
use options::{MAX_TIME, MIN_MAX_LOAD};
use server::ExaminedServer;

/// Examines the path to a server. A set `stop` ends the running part, and the result has the parts so far.
pub fn doctor(
    options: &DoctorOptions,
    resolver: &ServerResolver,
    stop: &Arc<AtomicBool>,
    on_event: &mut dyn FnMut(&DoctorEvent<'_>),
) -> Result<DoctorDocument, DoctorFailure> {
    options.check()?;
    let paths = known_paths(options.rate, &resolver.environment).map_err(DoctorError::from)?;
    let mut origin = test_server::origin_of(options.command.clone(), test_server::preliminary_name(&options.server));
    on_event(&DoctorEvent::Started(&origin));
    let reached = test_server::reach_name(&options.server, resolver, stop).map_err(DoctorError::from)?;
    origin.hosts.far = test_server::far_name(&options.server, &reached);
    let is_over_ssh =
        options.disks.far.is_some() && resolver.is_over_ssh(&options.server).map_err(DoctorError::from)?;
    let disks = options.disks.clone().at_home(is_over_ssh).map_err(DoctorError::from)?;
    let options = &DoctorOptions { disks, ..options.clone() };
    let arguments = test_server::server_arguments(&options.server, resolver);
    let server = ExaminedServer::new(&reached.target, options.quick);
    Examination { options, paths, server: &server, origin, arguments, stop, on_event }.run()
}

/// Diagnoses the evidence of a file of `lfn doctor --json` again. The path `-` reads standard input.
pub fn from_file(file: &Path) -> Result<DoctorDocument, EvidenceError> {
    let named = || file.to_owned();
    let bytes =
        read_contents(file, MAX_DOCTOR_BYTES).map_err(|source| EvidenceError::Read { file: named(), source })?;
    if bytes.len() as u64 > MAX_DOCTOR_BYTES {
        return Err(EvidenceError::TooLong { file: named() });
    }
    let read = read_doctor(&bytes).map_err(|source| EvidenceError::Content { file: named(), source })?;
    Ok(read.diagnosed_again())
}

impl DoctorOptions {
    fn check(&self) -> Result<(), DoctorError> {
        if let Some(time) = self.time.filter(|time| time.is_zero() || *time > MAX_TIME) {
            return Err(DoctorError::Time(time));
        }
        match self.max_load {
            Some(rate) if rate < MIN_MAX_LOAD => Err(DoctorError::MaxLoad(rate)),
            _ => Ok(()),
        }
    }
}
