//! Layout of nettest from 1995, column by column: the output of `nettest` and `nettestd` in `seeds/000_…`.
//!
//! Kbyte and Mbit(K^2) are powers of 1024, mbit(1+E6) is a power of 1000. Real is the receiver's time, System and User
//! are the CPU times of this end.

use std::io::{self, Write};
use std::time::Duration;

use lfn_results::evidence::HostNames;
use lfn_results::measure::{Cpu, TestDirection, TestLoad};
use lfn_results::report::{Run, TestDocument};

use crate::print;

const HEAD: &str = "           Real  System            User          Kbyte   Mbit(K^2) mbit(1+E6)";

/// Prints the runs in the layout of nettest.
pub fn print(document: &TestDocument) -> io::Result<()> {
    print::out().write_all(page(&document.runs, &document.origin.hosts).as_bytes())
}

/// Figures of one line.
#[derive(Clone, Copy, Default)]
struct Line {
    real: Duration,
    cpu: Cpu,
    bytes: u64,
}

fn page(runs: &[Run], hosts: &HostNames) -> String {
    let mut page = String::new();
    if let Some(run) = runs.first() {
        page += &settings(run);
        page += &format!("{}\n", transfer(run, hosts));
    }
    page += &format!("{HEAD}\n");
    let mut sum = Line::default();
    for run in runs {
        let cpu = run.evidence.near.cpu.unwrap_or_default();
        let line = Line { real: run.elapsed, cpu, bytes: run.bytes };
        page += &row(if run.direction == TestDirection::Forward { "write" } else { "read" }, &line);
        sum.real += line.real;
        sum.cpu.user += cpu.user;
        sum.cpu.system += cpu.system;
        sum.bytes += line.bytes;
    }
    if runs.len() > 1 {
        page += &row("r/w", &sum);
    }
    page
}

/// Returns the buffers of this end and the window scales of both ends, as nettest prints them before the test.
fn settings(run: &Run) -> String {
    let Some(stream) = run.evidence.near.streams.first() else { return String::new() };
    let (Some(socket), Some(info)) = (&stream.socket, &stream.tcp_info) else { return String::new() };
    format!(
        "Final SO_SNDBUF={}\nFinal SO_RCVBUF={}\nFinal sendwinshift = {}, recvwinshift = {}.\n",
        socket.sndbuf_granted_bytes.0, socket.rcvbuf_granted_bytes.0, info.snd_wscale, info.rcv_wscale
    )
}

fn transfer(run: &Run, hosts: &HostNames) -> String {
    let request = &run.evidence.request;
    let records = match request.load {
        TestLoad::Records(count) => count,
        TestLoad::TimeSeconds(_) | TestLoad::Bytes(_) => run.bytes / request.record.0.max(1),
    };
    format!("Transfer: {records}*{} bytes from {:>9} to {:>9}", request.record.0, hosts.near, hosts.far)
}

fn row(name: &str, line: &Line) -> String {
    let real = line.real.as_secs_f64();
    let per_second = if real > 0.0 { line.bytes as f64 / real } else { 0.0 };
    let (system, user) = (line.cpu.system.as_secs_f64(), line.cpu.user.as_secs_f64());
    let share = |time: f64| if real > 0.0 { time / real * 100.0 } else { 0.0 };
    format!(
        "{name:>7} {real:7.4} {system:7.4} ({:4.1}%) {user:7.4} ({:4.1}%) {:7.2} {:7.3} {:9.3}\n",
        share(system),
        share(user),
        per_second / 1024.0,
        per_second * 8.0 / (1024.0 * 1024.0),
        per_second * 8.0 / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_match_the_report() {
        let seconds = Duration::from_secs_f64;
        let line = |real, system, user, bytes| Line {
            real: seconds(real),
            cpu: Cpu { user: seconds(user), system: seconds(system) },
            bytes,
        };
        // Report 000, aztec to echo, 100 × 3 MB and 1000 × 3 MB. Real is printed with four places, but the rates had
        // more.
        let write = row("write", &line(28.94304, 4.9760, 0.0013, 300_000_000));
        assert_eq!(write, "  write 28.9430  4.9760 (17.2%)  0.0013 ( 0.0%) 10122.25  79.080    82.921\n");
        let read = row("read", &line(30.5650, 4.3535, 0.0626, 300_000_000));
        assert_eq!(read, "   read 30.5650  4.3535 (14.2%)  0.0626 ( 0.2%) 9585.11  74.884    78.521\n");
        let both = row("r/w", &line(59.50804, 9.3295, 0.0639, 600_000_000));
        assert_eq!(both, "    r/w 59.5080  9.3295 (15.7%)  0.0639 ( 0.1%) 9846.36  76.925    80.661\n");
        let long = row("write", &line(197.3138, 52.9243, 0.0124, 3_000_000_000));
        assert_eq!(long, "  write 197.3138 52.9243 (26.8%)  0.0124 ( 0.0%) 14847.86 115.999   121.634\n");
    }

    #[test]
    fn a_test_of_no_time_does_not_divide_by_zero() {
        assert!(!row("write", &Line::default()).contains("NaN"));
    }
}
