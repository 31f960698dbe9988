//! Options of an analysis of captures.

use std::path::PathBuf;
use std::time::Duration;

use lfn_trace::AnalysisOptions;

use super::filter::ConnectionFilter;

/// Options of an analysis.
#[derive(Debug, Clone)]
pub struct TraceOptions {
    pub input: TraceInput,
    /// Hosts and ports whose connections are analysed.
    pub filter: ConnectionFilter,
    /// Limits of the analysis, and the points of the pictures.
    pub analysis: AnalysisOptions,
}

/// Source of the packets.
#[derive(Debug, Clone)]
pub enum TraceInput {
    /// Parts of one capture; `-` is standard input.
    Files(Vec<PathBuf>),
    /// Two captures of the same packets.
    Pair { near: PathBuf, far: PathBuf },
    /// Packets of an interface of this host.
    Live(LiveOptions),
}

/// Options of a live capture.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    pub interface: String,
    /// Time after which the capture ends; none until it is stopped.
    pub time: Option<Duration>,
}

impl TraceOptions {
    /// Creates options with the default limits, without a filter and without pictures.
    pub fn new(input: TraceInput) -> Self {
        TraceOptions { input, filter: ConnectionFilter::default(), analysis: AnalysisOptions::default() }
    }
}
