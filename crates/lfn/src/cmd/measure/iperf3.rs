//! Tests with an iperf3 server: same flags and same report, with iperf3's protocol.

use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::time::Duration;

use lfn_core::discover::report::PathReport;
use lfn_core::evidence::Evidence;
use lfn_core::iperf3::parameters::{MAX_BLOCK, MAX_STREAMS};
use lfn_core::iperf3::{DEFAULT_PORT, LoadDirection, LoadProtocol, Parameters, ServerOutput, TestEnd};
use lfn_core::report::{HostNames, Iperf3Report, Run};
use lfn_core::units::Bytes;
use lfn_core::wire::measure::{Dscp, Mode, PayloadData, SocketRequest, TestDirection, TestLoad, TestRequest};
use lfn_net::iperf3::client::{self, IperfOutcome, IperfProgress, Login};
use lfn_net::iperf3::rsa::{Padding, PublicKey};
use lfn_net::tester::{self, Test};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::Value;

use super::interrupt::Interrupt;
use super::iperf3_args::Iperf3ClientArgs;
use super::{TestArgs, TestPlan, origin};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::measure::Printer;

/// iperf3 clients use the same variable.
const PASSWORD_VARIABLE: &str = "IPERF3_PASSWORD";

/// Timeout of one step of the protocol, and maximum time in the queue of the server.
const STEP_TIMEOUT: Duration = Duration::from_secs(15);
const QUEUE_TIMEOUT: Duration = Duration::from_secs(90);

/// iperf3's default on Ethernet: fits an MTU of 1500 bytes with any headers.
const DEFAULT_DATAGRAM: Bytes = Bytes(1448);

const PAUSE_BETWEEN_TESTS: Duration = Duration::from_millis(500);

/// Runs the command with an iperf3 server.
pub(super) fn run(args: &TestArgs, server: &str) -> Result<Exit, Failure> {
    let plan = args.plan()?;
    let (host, port) = host_and_port(server)?;
    let stop = Interrupt::listen()?;
    let test = client::IperfTest {
        parameters: parameters(args, &plan)?,
        login: args.iperf3.login()?,
        interval: plan.request.interval,
        step_timeout: STEP_TIMEOUT,
        queue_timeout: QUEUE_TIMEOUT,
        bind_addresses: args.tcp.bind_addresses()?,
        stop: stop.stop.clone(),
    };
    let hosts = HostNames { near: args.near_name(), far: host.clone() };
    let (output, live_enabled) = (args.report.output.open()?, args.report.live_enabled());
    let mut printer = Printer::new(output, origin(hosts.clone()), live_enabled);
    let path = args.path.discover_alone(&host)?;
    let session = SessionContext { server, host: &host, port, hosts: &hosts, path: path.as_ref() };
    let tested = iperf_directions(&plan).into_iter().enumerate().try_for_each(|(number, way)| {
        let parameters = Parameters { direction: way, ..test.parameters.clone() };
        let test = client::IperfTest { parameters, ..test.clone() };
        if stop.is_interrupted() {
            return Ok(());
        }
        if number > 0 {
            // An iperf3 server cleans up between two tests and accepts no connection during this time.
            std::thread::sleep(PAUSE_BETWEEN_TESTS);
        }
        run_session(&test, &plan, &session, &mut printer, &stop)
    });
    let printed = printer.finish(tested.as_ref().err());
    tested.and(printed).map(|()| if stop.is_interrupted() { Exit::Interrupted } else { Exit::Ok })
}

/// The server of all sessions of a run, as typed and as parsed, and the discovered path.
struct SessionContext<'a> {
    server: &'a str,
    host: &'a str,
    port: u16,
    hosts: &'a HostNames,
    path: Option<&'a PathReport>,
}

/// Runs one session with the server: a test in one direction, or in both at the same time.
fn run_session(
    test: &client::IperfTest,
    plan: &TestPlan,
    session: &SessionContext<'_>,
    printer: &mut Printer,
    stop: &Interrupt,
) -> Result<(), Failure> {
    let &SessionContext { server, host, port, hosts, path } = session;
    let bidirectional = test.parameters.direction == LoadDirection::Both;
    let kernel = tester::read_kernel();
    let numbers: Vec<(TestDirection, usize)> = directions(test.parameters.direction)
        .iter()
        .map(|direction| {
            let request = client::request(&test.parameters, test.interval, *direction == TestDirection::Forward);
            (*direction, printer.begin_test(&test_for_display(plan, request), bidirectional))
        })
        .collect();
    let number = |requested: TestDirection| {
        numbers.iter().find(|(direction, _)| *direction == requested).map(|(_, number)| *number)
    };
    let outcome = client::run(host, port, test, &mut |progress| match progress {
        IperfProgress::Connected(rtt) => {
            stop.begin_load();
            for (_, number) in &numbers {
                printer.progress(*number, &tester::TestProgress::Connected(rtt, &kernel));
            }
        }
        IperfProgress::Interval(direction, near, far) => {
            let Some(number) = number(direction) else { return };
            printer.progress(number, &tester::TestProgress::Near(near));
            if let Some(far) = far {
                printer.progress(number, &tester::TestProgress::Far(far));
            }
        }
    });
    let IperfOutcome { runs, output } = outcome.map_err(|error| {
        let hint = error.hint();
        stop.with_exit_code(Failure::new(error).hint(hint))
    })?;
    // An iperf3 server keeps reporting its output after one request.
    let mut output = output.filter(|_| test.parameters.server_output).map(|output| match output {
        ServerOutput::Text(text) => Value::String(text),
        ServerOutput::Json(value) => value,
    });
    for evidence in runs {
        let Some(number) = number(evidence.request.direction) else { continue };
        let server_output = output.take();
        let evidence = Evidence {
            bidirectional,
            path: plan.path(evidence.request.direction),
            path_report: super::path::with_tcp_mtu(path, &evidence),
            omit: plan.omit,
            near_socket: plan.near.clone(),
            iperf3: evidence.iperf3.clone().map(|report| Iperf3Report { server_output, ..report }),
            ..evidence
        };
        printer.end_test(number, Run::new(plan.complete(evidence, hosts, &format!("--iperf3 {server}"))))?;
    }
    Ok(())
}

/// Returns the directions of one session, in the order of its results.
fn directions(way: LoadDirection) -> &'static [TestDirection] {
    match way {
        LoadDirection::Forward => &[TestDirection::Forward],
        LoadDirection::Reverse => &[TestDirection::Reverse],
        LoadDirection::Both => &[TestDirection::Forward, TestDirection::Reverse],
    }
}

fn test_for_display(plan: &TestPlan, request: TestRequest) -> Test {
    Test {
        path: plan.path(request.direction),
        request,
        near_socket: plan.near.clone(),
        tuned: false,
        round_to_rtt: false,
        target_precision: None,
        omit: None,
        stop: Default::default(),
    }
}

fn iperf_directions(plan: &TestPlan) -> Vec<LoadDirection> {
    let way = |direction: &TestDirection| {
        if *direction == TestDirection::Forward { LoadDirection::Forward } else { LoadDirection::Reverse }
    };
    if plan.bidirectional { vec![LoadDirection::Both] } else { plan.directions.iter().map(way).collect() }
}

/// Converts the flags to iperf3's parameters. Refuses flags that iperf3's protocol does not support.
fn parameters(args: &TestArgs, plan: &TestPlan) -> Result<Parameters, Failure> {
    let request = &plan.request;
    let unsupported = |what: &str, hint: &str| {
        Err(Failure::usage(format!("--iperf3: its protocol does not support {what}")).hint(hint))
    };
    if request.streams > MAX_STREAMS {
        return unsupported(&format!("{} streams", request.streams), "use --streams 128 or fewer");
    }
    let window = match window(&request.socket, &plan.near) {
        Ok(window) => window,
        Err(what) => return unsupported(what, "use one --window, --sndbuf or --rcvbuf for both ends"),
    };
    let socket = &request.socket;
    if plan.target_precision.is_some() {
        return unsupported("--precision", "remove --precision");
    }
    if request.modes.near != request.modes.far {
        return unsupported("no-copy at one end only", "use --no-copy, which is for both ends");
    }
    if socket.congestion.len() > 1 || socket.pacing.len() > 1 {
        return unsupported("different options for each stream", "use one value for all streams");
    }
    if request.check || request.blocks || request.data != PayloadData::default() {
        return unsupported(
            "--check-data, --block-timing and --data",
            "remove --check-data, --block-timing and --data",
        );
    }
    if request.latency.is_some() || request.udp.as_ref().is_some_and(|udp| udp.ramp.is_some() || udp.fragment) {
        return unsupported("--latency, --ramp and --fragment", "remove --latency, --ramp and --fragment");
    }
    let no_copy = request.modes.near == Mode::NoCopy;
    if request.record.0 > MAX_BLOCK {
        return unsupported(&format!("records of {}", request.record), "use --length 1MiB or less");
    }
    let omit = plan.omit.unwrap_or_default();
    let end = match request.load {
        TestLoad::TimeSeconds(time) => TestEnd::Time(time - omit.min(time)),
        TestLoad::Records(count) => TestEnd::Bytes(count.saturating_mul(request.record.0)),
        TestLoad::Bytes(bytes) => TestEnd::Bytes(bytes.0),
    };
    let fractional = |time: Duration| time.subsec_nanos() != 0;
    if fractional(omit) || matches!(end, TestEnd::Time(time) if fractional(time)) {
        return unsupported("a time that is not in whole seconds", "use whole seconds, such as --time 10s");
    }
    Ok(Parameters {
        protocol: if request.udp.is_some() { LoadProtocol::Udp } else { LoadProtocol::Tcp },
        end,
        omit,
        streams: request.streams,
        length: match &request.udp {
            Some(udp) => udp.datagram_bytes.map_or(DEFAULT_DATAGRAM, |bytes| Bytes(bytes.into())),
            None => request.record,
        },
        window,
        congestion: socket.congestion.first().and_then(|wish| wish.requested()).map(str::to_owned),
        rate: request.udp.as_ref().map(|udp| udp.rate).or(socket.pacing.first().copied()),
        // As in lfn, the kernel paces TCP (`--fq-rate`). iperf3 3.12 as the sender only supports the rate above.
        pacing: socket.pacing.first().copied().filter(|_| request.udp.is_none()),
        mss: plan.near.mss.and_then(|mss| u16::try_from(mss.0).ok()),
        tos: socket.dscp.map(Dscp::tos),
        mptcp: socket.mptcp,
        zero_copy: no_copy,
        skip_copy: no_copy,
        server_output: args.iperf3.iperf3_server_output,
        version: Some(concat!("lfn ", env!("CARGO_PKG_VERSION")).to_owned()),
        ..Parameters::default()
    })
}

/// Returns iperf3's single buffer size, for both buffers of both ends.
fn window(far: &SocketRequest, near: &SocketRequest) -> Result<Option<Bytes>, &'static str> {
    let requested = [far.sndbuf, far.rcvbuf, far.window, near.sndbuf, near.rcvbuf, near.window];
    let mut sizes = requested.into_iter().flatten();
    let first = sizes.next();
    if (far.sndbuf, far.rcvbuf, far.window) != (near.sndbuf, near.rcvbuf, near.window) {
        return Err("buffer sizes for one end only");
    }
    if sizes.any(|size| Some(size) != first) {
        return Err("different buffer sizes");
    }
    Ok(first)
}

/// Parses `HOST`, `HOST:PORT`, `[V6]:PORT` or an IPv6 address without brackets.
fn host_and_port(text: &str) -> Result<(String, u16), Failure> {
    let wrong =
        || Failure::usage(format!("--iperf3: '{text}' is not HOST or HOST:PORT")).hint("--iperf3 192.0.2.1:5201");
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').or(rest.is_empty().then_some(""))),
        None if text.matches(':').count() > 1 => (text, Some("")),
        None => text.split_once(':').map_or((text, Some("")), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some("") if !text.ends_with(':') => DEFAULT_PORT,
        Some(port) => port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?,
        None => return Err(wrong()),
    };
    if host.is_empty() { Err(wrong()) } else { Ok((host.to_owned(), port)) }
}

impl Iperf3ClientArgs {
    fn login(&self) -> Result<Option<Login>, Failure> {
        let (Some(user), Some(file)) = (&self.iperf3_user, &self.iperf3_rsa_public_key) else { return Ok(None) };
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::msg(format!("--iperf3-rsa-public-key {}: {error}", file.display()))
                .hint("create the file from the server's key: openssl rsa -in key.pem -pubout -out public.pem")
        };
        let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
        let key = PublicKey::from_pem(&text).map_err(|error| wrong(&error))?;
        let padding = if self.iperf3_pkcs1 { Padding::Pkcs1 } else { Padding::Oaep };
        Ok(Some(Login { user: user.clone(), password: password(user)?, key, padding }))
    }
}

fn password(user: &str) -> Result<String, Failure> {
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(password);
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage(format!("no password for '{user}'"))
            .hint(format!("set it in the environment: export {PASSWORD_VARIABLE}=…")));
    }
    print::message(format_args!("password of {user}: "));
    let before = tcgetattr(&stdin).map_err(io::Error::from)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &silent).map_err(io::Error::from)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Now, &before).map_err(io::Error::from)?;
    print::message("\n");
    read?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_name_with_and_without_port() {
        let cases = [
            ("far", "far", 5201),
            ("far:5300", "far", 5300),
            ("::1", "::1", 5201),
            ("[::1]", "::1", 5201),
            ("[::1]:5300", "::1", 5300),
        ];
        for (text, host, port) in cases {
            assert_eq!(host_and_port(text).unwrap(), (host.to_owned(), port), "{text}");
        }
        for text in ["", ":5201", "far:", "far:x", "far:0", "far:65536", "[::1]x", "[]:5"] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }
}
