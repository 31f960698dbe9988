//! The path of a test: its known figures, and its discovery before the load.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::BitRate;
use lfn_measure::path::{self, MtuTimeLimits};
use lfn_measure::tester::TestError;
use lfn_results::evidence::{Evidence, HostNames, Side};
use lfn_results::measure::{EndReport, TestDirection};
use lfn_results::path_report::PathReport;
use lfn_session::SessionError;
use lfn_session::dial::Target;
use lfn_sys::names::lookup;

use super::error::TestVerbError;
use super::options::{PathDiscovery, TestOptions};
use crate::emulator_env::EmulatorEnvironment;
use crate::hosts::HostError;

/// Known figures of the path in both directions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownPaths([Option<PathProfile>; 2]);

impl KnownPaths {
    /// Returns the figures of the path in this direction.
    pub(crate) fn get(&self, direction: TestDirection) -> Option<PathProfile> {
        self.0[usize::from(direction == TestDirection::Reverse)]
    }

    /// Reports whether the figures of one direction are unknown.
    pub(super) fn is_incomplete(&self) -> bool {
        self.0.iter().any(Option::is_none)
    }
}

/// Returns the figures of the path: those of the emulator, with this capacity if one is given.
pub(crate) fn known_paths(rate: Option<BitRate>, emulator: &EmulatorEnvironment) -> Result<KnownPaths, HostError> {
    let known = |emulated: Option<PathProfile>| match (rate, emulated) {
        (Some(capacity), Some(path)) => Some(PathProfile { capacity, ..path }),
        (Some(capacity), None) => Some(PathProfile::new(capacity, Duration::ZERO)),
        (None, emulated) => emulated,
    };
    Ok(KnownPaths([known(emulator.path()?), known(emulator.return_path()?)]))
}

/// Discovers the path to a server, if requested.
pub(super) fn discover(options: &TestOptions, target: &Target) -> Result<Option<PathReport>, TestVerbError> {
    let Some(PathDiscovery { names }) = options.path else { return Ok(None) };
    path::discover(target, names).map(Some).map_err(TestVerbError::Path)
}

/// Maximum payload of a load that is stuck: what a sender has in flight at first, and small blocks that still pass.
const MAX_STUCK_BYTES: u64 = 64 << 10;
/// Minimum retransmitted segments of a load that is stuck.
const MIN_STUCK_RETRANSMITS: u32 = 2;
/// Maximum time of the search of the path MTU after a load that is stuck.
const STUCK_SEARCH_TIME: Duration = Duration::from_secs(6);

/// Returns true if a TCP load delivered almost nothing although its sender repeats its data: large packets may get lost.
pub(super) fn is_stuck(evidence: &Evidence) -> bool {
    let infos = evidence.sender().streams.iter().filter_map(|stream| stream.tcp_info.as_ref());
    let repeated: u32 = infos.map(|info| info.retransmitted_segments).fold(0, u32::saturating_add);
    evidence.receiver().bytes < MAX_STUCK_BYTES && repeated >= MIN_STUCK_RETRANSMITS
}

/// Searches the path MTU of both directions after a load that is stuck. A failed search has no result: the load has one.
pub(super) fn search_mtu(target: &Target) -> Option<PathReport> {
    let limits = MtuTimeLimits { search: STUCK_SEARCH_TIME, ..MtuTimeLimits::default() };
    let mtu = path::search_mtus(target, limits).ok()?;
    Some(PathReport { mtu, ..PathReport::default() })
}

/// Returns the error of a test. If its streams carried no data, the path MTU is searched: large packets may get lost.
pub(super) fn explain(error: TestError, target: &Target, direction: TestDirection, hosts: &HostNames) -> TestVerbError {
    let passed =
        is_silent(&error).then(|| search_mtu(target)).flatten().and_then(|report| report.black_hole(direction));
    match passed {
        Some(passed) => {
            let sender = hosts.name(Side::sender_and_receiver(direction).0).to_owned();
            TestVerbError::BlackHole { passed, sender }
        }
        None => error.into(),
    }
}

/// Returns true if a stream or the server was silent for too long.
fn is_silent(error: &TestError) -> bool {
    match error {
        TestError::Stream { source, .. } => {
            matches!(source.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        }
        TestError::Session(SessionError::Timeout { .. }) => true,
        _ => false,
    }
}

/// Discovers the path to a host without lfn, if requested.
pub(super) fn discover_alone(options: &TestOptions, host: &str) -> Result<Option<PathReport>, TestVerbError> {
    let Some(discovery) = options.path else { return Ok(None) };
    let unknown = |source| TestVerbError::UnknownHost { host: host.to_owned(), source };
    let addresses = lookup(host, 0).map_err(|error| unknown(Some(error)))?;
    let to = addresses.first().ok_or_else(|| unknown(None))?;
    Ok(Some(path::discover_alone(to.ip(), discovery.names)))
}

/// Combines the discovered path with the path MTU that TCP used in the test.
pub(crate) fn with_tcp_mtu(found: Option<&PathReport>, evidence: &Evidence) -> Option<PathReport> {
    let mut report = found.cloned()?;
    let pmtu = |end: &EndReport| {
        let info = end.streams.iter().filter_map(|stream| stream.tcp_info.as_ref());
        info.map(|info| info.pmtu_bytes).filter(|&pmtu| pmtu > 0).min()
    };
    report.mtu.near_tcp_pmtu_bytes = pmtu(&evidence.near);
    report.mtu.far_tcp_pmtu_bytes = pmtu(&evidence.far);
    Some(report)
}
