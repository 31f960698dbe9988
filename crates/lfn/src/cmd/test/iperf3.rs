//! Tests with a stock iperf3 server: the same flags and the same report, over its protocol.

use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use lfn_core::discover::report::PathReport;
use lfn_core::iperf3::parameters::{LARGEST_BLOCK, MOST_STREAMS};
use lfn_core::iperf3::{DEFAULT_PORT, End, Output, Parameters, Protocol, Way};
use lfn_core::report::{Hosts, Iperf3};
use lfn_core::units::Bytes;
use lfn_core::wire::test::{Data, Direction, Dscp, Load, Mode, SocketWish, TestRequest};
use lfn_net::iperf3::client::{self, Login, Outcome, Progress};
use lfn_net::iperf3::rsa::{Padding, PublicKey};
use lfn_net::tester::{self, Test};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::Value;

use super::stop::Interrupt;
use super::{Args, Wanted, origin};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::test::{Printer, Run};

/// Where stock clients look for the password too.
const PASSWORD: &str = "IPERF3_PASSWORD";

/// How long a server may take for one step, and to find a place for the test.
const WITHIN: Duration = Duration::from_secs(15);
const QUEUE: Duration = Duration::from_secs(90);

/// What fits Ethernet's 1500 bytes with any headers, and is what stock clients take there.
const DATAGRAM: Bytes = Bytes(1448);

const BETWEEN: Duration = Duration::from_millis(500);

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "iperf3")]
pub(super) struct Iperf3Args {
    /// Test with an iperf3 server instead of an `lfn serve` [default port: 5201]. It is asked for the same; what its
    /// protocol cannot carry is unknown in the report
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "host")]
    pub(super) iperf3: Option<String>,
    /// User of a server that wants to know who comes; the password is taken from IPERF3_PASSWORD or asked for
    #[arg(long, value_name = "NAME", requires_all = ["iperf3", "iperf3_rsa_public_key"])]
    iperf3_user: Option<String>,
    /// The server's public key (PEM), to encrypt user and password
    #[arg(long, value_name = "FILE", requires = "iperf3_user")]
    iperf3_rsa_public_key: Option<PathBuf>,
    /// Encrypt them as servers before 3.17 want it
    #[arg(long, requires = "iperf3_user")]
    iperf3_pkcs1: bool,
    /// Show what the server prints, too
    #[arg(long, requires = "iperf3")]
    iperf3_server_output: bool,
}

/// Runs the command against an iperf3 server.
pub(super) fn run(args: &Args, server: &str) -> Result<Exit, Failure> {
    let wanted = args.wanted()?;
    let (host, port) = host_and_port(server)?;
    let stop = Interrupt::listen()?;
    let test = client::Test {
        parameters: parameters(args, &wanted)?,
        login: args.iperf3.login()?,
        interval: wanted.request.interval,
        within: WITHIN,
        queue: QUEUE,
        from: args.tcp.places()?,
        stop: stop.stop.clone(),
    };
    let hosts = Hosts { near: args.near_name(), far: host.clone() };
    let (save, watched) = (args.report.save()?, args.report.watched());
    let mut printer = Printer::new(args.report.format(), save, origin(hosts.clone()), wanted.omit, watched);
    let path = args.path.look_alone(&host)?;
    let tested = ways(&wanted).into_iter().enumerate().try_for_each(|(number, way)| {
        let parameters = Parameters { way, ..test.parameters.clone() };
        let test = client::Test { parameters, ..test.clone() };
        if stop.seen() {
            return Ok(());
        }
        if number > 0 {
            // A stock server tidies up between two tests, and hears nobody meanwhile.
            std::thread::sleep(BETWEEN);
        }
        one(&test, &wanted, (server, &host, port), (&hosts, path.as_ref()), (&mut printer, &stop))
    });
    let printed = printer.finish(tested.as_ref().err());
    tested.and(printed).map(|()| if stop.seen() { Exit::Interrupted } else { Exit::Ok })
}

/// One conversation with the server: a test in one direction, or in both at once.
fn one(
    test: &client::Test,
    wanted: &Wanted,
    (server, host, port): (&str, &str, u16),
    (hosts, path): (&Hosts, Option<&PathReport>),
    (printer, stop): (&mut Printer, &Interrupt),
) -> Result<(), Failure> {
    let at_once = test.parameters.way == Way::Both;
    let kernel = tester::kernel();
    let begun: Vec<(Direction, usize)> = directions(test.parameters.way)
        .iter()
        .map(|direction| {
            let request = client::request(&test.parameters, test.interval, *direction == Direction::Forward);
            (*direction, printer.begin(&shown(wanted, request), at_once))
        })
        .collect();
    let number =
        |wanted: Direction| begun.iter().find(|(direction, _)| *direction == wanted).map(|(_, number)| *number);
    let outcome = client::run(host, port, test, &mut |progress| match progress {
        Progress::Connected(rtt) => {
            stop.load_begins();
            for (_, number) in &begun {
                printer.progress(*number, &tester::Progress::Connected(rtt, &kernel));
            }
        }
        Progress::Interval(direction, near, far) => {
            let Some(number) = number(direction) else { return };
            printer.progress(number, &tester::Progress::Near(near));
            if let Some(far) = far {
                printer.progress(number, &tester::Progress::Far(far));
            }
        }
    });
    let Outcome { runs, output } = outcome.map_err(|error| {
        let hint = error.hint();
        stop.of(Failure::new(error).hint(hint))
    })?;
    // A stock server goes on telling once it was asked.
    let mut output = output.filter(|_| test.parameters.server_output).map(|output| match output {
        Output::Text(text) => Value::String(text),
        Output::Json(value) => value,
    });
    for (measurement, said) in runs {
        let path = super::path::beside(path, &measurement);
        let measurement = tester::Measurement { at_once, path, ..measurement };
        let Some(number) = number(measurement.request.direction) else { continue };
        // The warm-up is not in the figures, so nothing more is left out of them than what is found.
        let omitted = wanted.omit.map(|_| Duration::ZERO);
        let evidence = wanted.evidence(&measurement, hosts, omitted, &format!("--iperf3 {server}"));
        let said = Iperf3 { server_output: output.take(), ..said };
        printer.end(number, Run::of_iperf3(measurement, evidence, said))?;
    }
    Ok(())
}

/// The directions of one conversation, in the order of its results.
fn directions(way: Way) -> &'static [Direction] {
    match way {
        Way::Forward => &[Direction::Forward],
        Way::Reverse => &[Direction::Reverse],
        Way::Both => &[Direction::Forward, Direction::Reverse],
    }
}

fn shown(wanted: &Wanted, request: TestRequest) -> Test {
    Test {
        path: wanted.path(request.direction),
        request,
        near: wanted.near.clone(),
        whole_round_trips: false,
        until: None,
        omit: None,
        stop: Default::default(),
    }
}

fn ways(wanted: &Wanted) -> Vec<Way> {
    let way = |direction: &Direction| if *direction == Direction::Forward { Way::Forward } else { Way::Reverse };
    if wanted.at_once { vec![Way::Both] } else { wanted.directions.iter().map(way).collect() }
}

/// What the flags ask for, in iperf3's words. What those cannot say is refused rather than left out.
fn parameters(args: &Args, wanted: &Wanted) -> Result<Parameters, Failure> {
    let request = &wanted.request;
    let cannot = |what: &str, hint: &str| {
        Err(Failure::usage(format!("--iperf3: {what}, which its protocol cannot carry")).hint(hint))
    };
    if request.streams > MOST_STREAMS {
        return cannot(&format!("{} streams asked for", request.streams), "--streams 128 or fewer");
    }
    let window = match window(&request.socket, &wanted.near) {
        Ok(window) => window,
        Err(what) => return cannot(what, "give one --window, --sndbuf or --rcvbuf for both ends"),
    };
    let socket = &request.socket;
    if wanted.until.is_some() {
        return cannot("an end found in the figures", "leave out --until");
    }
    if request.modes.near != request.modes.far {
        return cannot("no copying at one end alone", "--no-copy, which is for both ends");
    }
    if socket.congestion.len() > 1 || socket.pacing.len() > 1 {
        return cannot("another option for each stream", "give one value for all of them");
    }
    if request.check || request.blocks || request.data != Data::default() {
        return cannot("payload of our own kind", "leave out --check, --blocks and --data");
    }
    if request.latency.is_some() || request.udp.as_ref().is_some_and(|udp| udp.ramp.is_some() || udp.fragment) {
        return cannot("probes, ramps or fragments", "leave out --latency, --ramp and --fragment");
    }
    let uncopied = request.modes.near == Mode::NoCopy;
    if request.record.0 > LARGEST_BLOCK {
        return cannot(&format!("records of {}", request.record), "--record 1MiB or less");
    }
    let omit = wanted.omit.unwrap_or_default();
    let end = match request.load {
        Load::TimeSeconds(time) => End::Time(time - omit.min(time)),
        Load::Records(count) => End::Bytes(count.saturating_mul(request.record.0)),
        Load::Bytes(bytes) => End::Bytes(bytes.0),
    };
    let fractional = |time: Duration| time.subsec_nanos() != 0;
    if fractional(omit) || matches!(end, End::Time(time) if fractional(time)) {
        return cannot("a time that is no whole seconds", "--time 10s");
    }
    Ok(Parameters {
        protocol: if request.udp.is_some() { Protocol::Udp } else { Protocol::Tcp },
        end,
        omit,
        streams: request.streams,
        length: match &request.udp {
            Some(udp) => udp.datagram_bytes.map_or(DATAGRAM, |bytes| Bytes(bytes.into())),
            None => request.record,
        },
        window,
        congestion: socket.congestion.first().and_then(|wish| wish.asked()).map(str::to_owned),
        rate: request.udp.as_ref().map(|udp| udp.rate).or(socket.pacing.first().copied()),
        // As everywhere here TCP is paced by the kernel (`--fq-rate` there); a 3.12 that sends knows the rate above alone.
        pacing: socket.pacing.first().copied().filter(|_| request.udp.is_none()),
        mss: wanted.near.mss.and_then(|mss| u16::try_from(mss.0).ok()),
        tos: socket.dscp.map(Dscp::tos),
        mptcp: socket.mptcp,
        zero_copy: uncopied,
        skip_copy: uncopied,
        server_output: args.iperf3.iperf3_server_output,
        version: Some(concat!("lfn ", env!("CARGO_PKG_VERSION")).to_owned()),
        ..Parameters::default()
    })
}

/// The one size its protocol has, for both buffers of both ends.
fn window(far: &SocketWish, near: &SocketWish) -> Result<Option<Bytes>, &'static str> {
    let asked = [far.sndbuf, far.rcvbuf, far.window, near.sndbuf, near.rcvbuf, near.window];
    let mut sizes = asked.into_iter().flatten();
    let first = sizes.next();
    if (far.sndbuf, far.rcvbuf, far.window) != (near.sndbuf, near.rcvbuf, near.window) {
        return Err("buffers of one end alone");
    }
    if sizes.any(|size| Some(size) != first) {
        return Err("several sizes of buffers");
    }
    Ok(first)
}

/// `HOST`, `HOST:PORT`, `[V6]:PORT` or a bare IPv6 address.
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

impl Iperf3Args {
    fn login(&self) -> Result<Option<Login>, Failure> {
        let (Some(user), Some(file)) = (&self.iperf3_user, &self.iperf3_rsa_public_key) else { return Ok(None) };
        let wrong = |error: &dyn std::fmt::Display| {
            Failure::msg(format!("--iperf3-rsa-public-key {}: {error}", file.display()))
                .hint("openssl rsa -in key.pem -pubout -out public.pem, where the server's key is")
        };
        let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
        let key = PublicKey::from_pem(&text).map_err(|error| wrong(&error))?;
        let padding = if self.iperf3_pkcs1 { Padding::Pkcs1 } else { Padding::Oaep };
        Ok(Some(Login { user: user.clone(), password: password(user)?, key, padding }))
    }
}

fn password(user: &str) -> Result<String, Failure> {
    if let Ok(password) = std::env::var(PASSWORD) {
        return Ok(password);
    }
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage(format!("no password for '{user}'")).hint(format!("export {PASSWORD}=…")));
    }
    print::talk(format_args!("password of {user}: "));
    let before = tcgetattr(&stdin).map_err(io::Error::from)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &silent).map_err(io::Error::from)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Now, &before).map_err(io::Error::from)?;
    print::talk("\n");
    read?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_with_or_without_its_port() {
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
