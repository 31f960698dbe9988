//! `lfn test`: converts the flags to the options of `lfn_api::test`, calls it and prints its events and its result.
//!
//! The flags are grouped by topic, one group per file. Each group converts its values to parts of the options. `usage`
//! adds the flags to the errors of the library.

mod buffers;
mod iperf3;
mod iperf3_args;
mod load;
mod path;
mod report;
mod run;
mod stamp;
mod tcp;
mod tuning;
mod udp;
mod usage;

use clap::{Args as _, Command};
use lfn_api::resolve::ServerResolver;
use lfn_api::test::{TestOptions, TestVerbError};
use lfn_base::congestion_request::CongestionRequest;
use lfn_results::measure::TestRequest;

pub use run::run;

use crate::exit::Failure;
use crate::repeat::typed_flags;
use crate::server_flags::ServerArgs;
use crate::typed;

/// Measure the throughput of a path under load and find its bottleneck
///
/// The client sends to a server (`lfn serve`). The receiver measures the goodput. Both ends report the kernel's
/// statistics of each stream in every interval. Findings name the bottleneck and the remedy.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES, mut_args = stamp::exclude_load, mut_arg("host", |host| {
    host.required_unless_present_any(["stamp", "iperf3", "list_findings"])
}))]
pub struct TestArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    load: load::LoadArgs,
    #[command(flatten)]
    tcp: tcp::TcpArgs,
    #[command(flatten)]
    udp: udp::UdpArgs,
    #[command(flatten)]
    tuning: tuning::TuningArgs,
    #[command(flatten)]
    buffers: buffers::BufferArgs,
    #[command(flatten)]
    report: report::ReportArgs,
    #[command(flatten)]
    path: path::PathArgs,
    #[command(flatten)]
    stamp: stamp::StampProbeArgs,
    #[command(flatten)]
    iperf3: iperf3_args::Iperf3ClientArgs,
}

const EXAMPLES: &str = "Examples:
  lfn test far.example                            runs for 10 s
  lfn test me@there                               starts the server over ssh
  lfn test far.example --both --streams 4
  lfn test far.example --rate 10gbit --time 30s   adds a prediction
  lfn test far.example --rate 10gbit --compare    shows what tuning changes
  lfn emulate --rtt 539ms --rate 135mbit -- lfn test far --window 4547813
  lfn test far.example --udp --pacing 50mbit --latency
  lfn test far.example --plot test.svg            draws goodput, limits, RTT and windows
  lfn test far.example --ramp                     finds the rate at which loss begins
  lfn test --iperf3 far.example:5201              tests with an iperf3 server
  lfn test far.example --output nettest --count 100 --length 3000000
  lfn test --stamp far.example                    delay and loss of each direction

Exit codes: 0 measured, with or without findings; 1 the test failed; 2 usage; 4 measured, but not reliable \
(--check-data found wrong bytes, or the sender of a --ramp was late); 130 interrupted: the first Ctrl-C ends the load \
and prints the result, the second Ctrl-C ends the command.";

impl TestArgs {
    /// Returns the options of the test, without the login at an iperf3 server.
    fn options(&self) -> Result<TestOptions, Failure> {
        let load = self.load.load()?;
        let congestion: Vec<_> = self.load.congestion.iter().cloned().map(CongestionRequest::Requested).collect();
        let mut request = TestRequest {
            streams: self.load.streams()?,
            load,
            record: self.load.record()?,
            interval: self.report.interval(load)?,
            socket: self.buffers.far(congestion.clone())?,
            udp: self.udp.udp(&self.load, &self.tcp.pacing()?)?.map(Box::new),
            latency: self.udp.latency()?,
            modes: self.tcp.modes(),
            ..TestRequest::default()
        };
        let mut near_socket = self.buffers.near(congestion)?;
        self.tcp.add_to(&mut near_socket, &mut request.socket)?;
        self.load.add_to(&mut request)?;
        Ok(TestOptions {
            iperf3: self.iperf3.options(),
            directions: self.load.directions(self.report.is_nettest())?,
            bidirectional: self.load.is_bidirectional(),
            request,
            near_socket,
            bind_addresses: self.tcp.bind_addresses()?,
            rate: self.report.rate()?,
            tuned: self.tuning.tuned,
            round_to_rtt: self.report.chooses_interval(),
            target_precision: self.load.precision()?,
            omit: self.report.omit()?,
            path: self.path.discovery(),
            command: typed::without_secrets(typed::words()),
            arguments: typed_flags(&TestArgs::augment_args(Command::new("test"))),
            ..TestOptions::new(self.server())
        })
    }

    /// Refuses options that contradict each other, and formats that have no place for the result.
    fn check(&self, options: &TestOptions, resolver: &ServerResolver) -> Result<(), Failure> {
        let checked = if self.tuning.compare {
            options.check_comparison(&resolver.environment)
        } else {
            options.check(&resolver.environment)
        };
        checked.map_err(|error| self.failure(TestVerbError::Options(error)))?;
        self.tuning.check_format(self.report.output.format())
    }

    fn resolver(&self) -> ServerResolver {
        self.server.resolver()
    }

    /// Returns the server as typed.
    fn server(&self) -> &str {
        self.iperf3.iperf3.as_deref().or(self.server.host()).unwrap_or_default()
    }
}
