//! Errors of the library in the words of the command line: each contradiction names its flags.

use lfn_api::resolve::server_argument;
use lfn_api::test::{Iperf3Limit, TcpOption, TestOptionsError, TestVerbError};
use lfn_measure::tester::TestError;
use lfn_results::measure::RequestError;

use super::TestArgs;
use crate::cmd::values::value_error;
use crate::exit::Failure;

impl TestArgs {
    /// Describes a failed test.
    pub(super) fn failure(&self, error: TestVerbError) -> Failure {
        match error {
            TestVerbError::Options(error) => self.options_failure(error),
            TestVerbError::Test(TestError::Request(error)) => request_failure(error),
            error => Failure::new(error),
        }
    }

    fn options_failure(&self, error: TestOptionsError) -> Failure {
        match error {
            TestOptionsError::Request(error) => request_failure(error),
            TestOptionsError::Host(error) => Failure::new(*error),
            TestOptionsError::Datagrams(option) => self.datagram_failure(option),
            TestOptionsError::Multipath(option) => {
                let flag = if option == TcpOption::Window { self.buffers.window_flag() } else { "pacing" };
                Failure::usage(format!("--{flag} with --mptcp: the kernel supports it only for plain TCP"))
                    .hint("remove one of the two")
            }
            TestOptionsError::OmitTooLong(_) => {
                Failure::usage("--omit is not shorter than the test").hint("use a longer --time")
            }
            TestOptionsError::PathFromInterface => {
                Failure::usage("--path cannot be combined with --bind INTERFACE: the probes follow the routing table")
                    .hint("use an address of the interface: --bind 192.0.2.1")
            }
            TestOptionsError::ZeroCapacity => value_error("rate", "the capacity must be above zero", "--rate 10gbit"),
            TestOptionsError::UnknownCapacity => {
                let (flag, host) = (self.tuning.flag(), server_argument(self.server(), self.server.trust.insecure));
                Failure::usage(format!("{flag} needs the capacity of the path"))
                    .hint(format!("give the rate of the slowest link: lfn test {host} {flag} --rate 1gbit"))
            }
            TestOptionsError::Iperf3Server(_) => {
                Failure::usage(format!("--iperf3: {error}")).hint("--iperf3 192.0.2.1:5201")
            }
            TestOptionsError::Iperf3(limit) => iperf3_failure(limit),
            error => Failure::usage(error).hint("see `lfn test --help`"),
        }
    }

    fn datagram_failure(&self, option: TcpOption) -> Failure {
        let udp = self.udp.flag();
        let tcp_only = |flag: &str| {
            Failure::usage(format!("--{flag} with --udp: only TCP streams support it")).hint("remove --udp")
        };
        let measured = |flag: &str| {
            Failure::usage(format!("--{flag} with {udp}: only TCP streams support it"))
                .hint(format!("remove --{flag} or {udp}"))
        };
        let one_of_two = |text: String| Failure::usage(text).hint("remove one of the two");
        match option {
            TcpOption::RatePerStream | TcpOption::Pacing => {
                Failure::usage("--pacing with several rates: all UDP streams have the same rate")
                    .hint(format!("use one rate, or remove {udp}"))
            }
            TcpOption::Congestion => one_of_two(format!("--congestion with {udp}: UDP has no congestion control")),
            TcpOption::Mptcp => tcp_only("mptcp"),
            TcpOption::Mss => tcp_only("mss"),
            TcpOption::NoCopy => tcp_only("no-copy"),
            TcpOption::BindAddresses => {
                let text = "--bind with several addresses: all datagrams use the address of the control connection";
                Failure::usage(text).hint("use one address, or remove --udp")
            }
            TcpOption::Window => {
                Failure::usage(format!("--{} with --udp: UDP has no window", self.buffers.window_flag()))
                    .hint("use --rcvbuf, or remove --udp")
            }
            TcpOption::ReadLength => one_of_two("--read-length with --udp: each read returns one datagram".to_owned()),
            TcpOption::Zeros => one_of_two("--data zero with --udp: datagrams carry random bytes".to_owned()),
            TcpOption::PayloadCheck => measured("check-data"),
            TcpOption::BlockTiming => measured("block-timing"),
            TcpOption::Lockstep => measured("lockstep"),
            TcpOption::Precision => measured("precision"),
        }
    }
}

/// Describes an invalid request.
fn request_failure(error: RequestError) -> Failure {
    if matches!(error, RequestError::CheckWithoutCopy) {
        return Failure::usage("--check-data cannot be combined with --no-copy, which does not read the payload")
            .hint("remove one of the two");
    }
    let hint = error.hint().unwrap_or_else(|| "see `lfn test --help`".into());
    Failure::usage(error).hint(hint)
}

/// Describes an option that iperf3's protocol does not support.
fn iperf3_failure(limit: Iperf3Limit) -> Failure {
    let (flags, hint) = match limit {
        Iperf3Limit::Streams(_) => (None, "use --streams 128 or fewer"),
        Iperf3Limit::BuffersOfOneEnd | Iperf3Limit::DifferentBuffers => {
            (None, "use one --window, --sndbuf or --rcvbuf for both ends")
        }
        Iperf3Limit::Precision => (Some("--precision"), "remove --precision"),
        Iperf3Limit::NoCopyAtOneEnd => (None, "use --no-copy, which is for both ends"),
        Iperf3Limit::OptionsPerStream => (None, "use one value for all streams"),
        Iperf3Limit::Payload => {
            (Some("--check-data, --block-timing and --data"), "remove --check-data, --block-timing and --data")
        }
        Iperf3Limit::Probes => (Some("--latency, --ramp and --fragment"), "remove --latency, --ramp and --fragment"),
        Iperf3Limit::Lockstep => (Some("--lockstep"), "remove --lockstep"),
        Iperf3Limit::Record(_) => (None, "use --length 1MiB or less"),
        Iperf3Limit::FractionalTime => (None, "use whole seconds, such as --time 10s"),
    };
    let what = flags.map_or_else(|| limit.to_string(), str::to_owned);
    Failure::usage(format!("--iperf3: its protocol does not support {what}")).hint(hint)
}
