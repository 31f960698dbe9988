//! Goodput of the kernel's congestion control over an emulated path, compared with published formulas.
//!
//! Goodput is the data that the receiver reads in a period after start-up, by its own clock. An average over some tens
//! of random losses varies, and no formula includes all effects of a real stack (recovery, delayed acknowledgements).
//! So the limits are wide: they detect a wrong RTT or a several times higher loss.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_base::path::PathProfile;
use lfn_base::tcp_model::{Congestion, FlowParameters, predict_steady};
use lfn_base::units::{BitRate, Ratio};
use lfn_sys::tcp::{congestion, set_congestion};

use super::trial::{PORT, Trial, home};
use crate::support::eventually;
use crate::support::rate::TWO_OF_THREE;
use crate::support::skip::{Missing, skip};

/// Flows with one congestion control over one path.
#[derive(Clone, Copy)]
struct Case {
    /// Host name of the far side.
    host: &'static str,
    rtt: Duration,
    loss: f64,
    congestion: Congestion,
    streams: u32,
}

const fn case(host: &'static str, rtt: u64, loss: f64, congestion: Congestion, streams: u32) -> Case {
    Case { host, rtt: Duration::from_millis(rtt), loss, congestion, streams }
}

/// Windows of 12 to 122 segments, which are reached within seconds. On the short paths CUBIC must be as fast as Reno,
/// and on the last path twice as fast (RFC 9438, section 5.1). The last path loses at equal distances, as the formula
/// assumes, because CUBIC needs 20 s to slow down after a long start-up without loss. Linux counts acknowledged data
/// and not acknowledgements, so C is 1.22 for Reno.
const CASES: [Case; 7] = [
    case("far", 20, 1e-4, Congestion::Reno, 2),
    case("far", 20, 1e-4, Congestion::Cubic, 2),
    case("far1", 40, 1e-3, Congestion::Reno, 2),
    case("far1", 40, 1e-3, Congestion::Cubic, 2),
    case("far2", 60, 1e-2, Congestion::Reno, 2),
    case("far2", 60, 1e-2, Congestion::Cubic, 2),
    case("far3", 400, 2e-3, Congestion::Cubic, 1),
];
const FLAGS: [&str; 16] = [
    "--rtt",
    "20ms",
    "--rate",
    RATE,
    "--queue",
    "4MB",
    "--forward-loss",
    "1e-4",
    "--parallel",
    "rtt=40ms,rate=400mbit,queue=4MB,forward-loss=1e-3",
    "--parallel",
    "rtt=60ms,rate=400mbit,queue=4MB,forward-loss=1e-2",
    "--parallel",
    "rtt=400ms,rate=400mbit,queue=4MB,forward-loss=nth:500",
    "--seed=1997",
    "--no-calibration",
];
/// Far above the rate of any flow.
const RATE: &str = "400mbit";
/// Runs of all cases.
const RUNS: usize = 2;
/// Permitted ratio of measured to predicted goodput.
const AS_PREDICTED: std::ops::Range<f64> = 0.6..1.5;

/// Duration of start-up, and duration of the measurement.
#[derive(Clone, Copy)]
struct Spans {
    omitted: Duration,
    measured: Duration,
}

pub fn loss_limits_reno_and_cubic_as_predicted() {
    let spans = Spans { omitted: Duration::from_secs(8), measured: Duration::from_secs(20) };
    // Loss is random and the machine may be busy: each case holds in at least one of two runs, and most in both.
    let mut held = [0; CASES.len()];
    let run = || goodputs(&FLAGS, &CASES, spans).expect("every Linux has reno and cubic");
    let runs = thread::scope(|scope| [(); RUNS].map(|()| scope.spawn(run)).map(|run| run.join().unwrap()));
    for goodputs in runs {
        for ((case, goodput), held) in CASES.iter().zip(goodputs).zip(&mut held) {
            let ratio = goodput / case.predicted(RATE.parse().unwrap());
            let what = format!(
                "{} at {} and {:?}: {:.2} Mb/s, {ratio:.2} of what is predicted",
                case.congestion,
                case.loss,
                case.rtt,
                goodput / 1e6
            );
            println!("{what}");
            *held += usize::from(AS_PREDICTED.contains(&ratio));
        }
    }
    let (count, all) = (held.iter().sum::<usize>(), RUNS * CASES.len());
    println!("goodput as predicted: {count} of {all}, required {}", all - 3);
    assert!(held.iter().all(|&held| held > 0) && count >= all - 3, "{held:?} of {RUNS} runs each");
}

/// BBR stops for two round trips every ten seconds to measure the base RTT, once in this measurement. Otherwise it
/// sends at the rate of the path. The queue has room for the excess of its start-up, up to two BDPs; with a shorter
/// queue it needs ten seconds to recover.
pub fn bbr_fills_a_path_of_539_ms() {
    let case = case("far", 539, 0.0, Congestion::Bbr, 1);
    let spans = Spans { omitted: Duration::from_secs(6), measured: Duration::from_secs(14) };
    let measure = || {
        let goodputs = match goodputs(&["--rtt", "539ms", "--rate", "50mbit", "--queue", "3bdp"], &[case], spans) {
            Ok(goodputs) => goodputs,
            Err(why) => {
                eprintln!("{why}");
                skip("bbr_fills_a_path_of_539_ms", &Missing::Feature("BBR"));
                return Ok(());
            }
        };
        let ratio = goodputs[0] / case.predicted("50mbit".parse().unwrap());
        println!("bbr at 539 ms: {ratio:.3} of what the path carries");
        if (0.9..=1.001).contains(&ratio) { Ok(()) } else { Err(format!("{ratio:.3} of what the path carries")) }
    };
    TWO_OF_THREE.require("BBR at 539 ms", measure, Result::is_ok);
}

impl Case {
    /// Returns the total goodput of all flows, each on a path of its own.
    fn predicted(&self, rate: BitRate) -> f64 {
        let path = PathProfile { loss: Ratio::new(self.loss).unwrap(), ..PathProfile::new(rate, self.rtt) };
        let flow = FlowParameters { congestion: self.congestion, streams: self.streams, ..FlowParameters::default() };
        predict_steady(&path, &flow).goodput.as_f64()
    }
}

/// Returns the received bits per second of each case, with all cases running at once, or the reason why a case cannot
/// send.
fn goodputs(flags: &[&str], cases: &[Case], spans: Spans) -> Result<Vec<f64>, String> {
    let flows = cases.iter().zip(0..).flat_map(|(case, number)| {
        let flow = format!(" {number} {} {}", case.host, case.congestion);
        std::iter::repeat_n(flow, case.streams as usize)
    });
    let count: u32 = cases.iter().map(|case| case.streams).sum();
    let [omitted, measured] = [spans.omitted, spans.measured].map(|span| span.as_secs());
    let pour = format!("pour{}", flows.collect::<String>());
    let trial = Trial::run_as(flags, &pour, &format!("drink {omitted} {measured} {count}"));
    if let Some(why) = trial.said.strip_prefix(CANNOT) {
        return Err(why.trim().to_owned());
    }
    let mut goodputs = vec![0.0; cases.len()];
    let mut ended = 0;
    for line in trial.said.lines() {
        let (number, goodput) = line.split_once(' ').unwrap();
        goodputs[number.parse::<usize>().unwrap()] += goodput.parse::<f64>().unwrap();
        ended += 1;
    }
    assert_eq!(ended, count, "every flow went on to the end: {}", trial.said);
    Ok(goodputs)
}

/// Output prefix of a near side that cannot send as requested.
const CANNOT: &str = "cannot";

/// Near side: sends flows, each given by three words, until the receiver has enough. Prints the output of the far side.
pub fn pour(flows: &str) {
    let words: Vec<_> = flows.split(' ').collect();
    let streams: Vec<_> = words.chunks(3).map(|flow| open(flow[0].parse().unwrap(), flow[1], flow[2])).collect();
    let streams = match streams.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(streams) => streams,
        Err(why) => return println!("{CANNOT} {why}"),
    };
    let pour = |mut stream: TcpStream| while stream.write_all(&[0; 1 << 17]).is_ok() {};
    let threads: Vec<_> = streams.into_iter().map(|stream| thread::spawn(move || pour(stream))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let goodputs = home().join("goodputs");
    assert!(eventually(|| goodputs.exists()), "the far side says what it read");
    print!("{}", fs::read_to_string(goodputs).unwrap());
}

/// Opens a stream with this congestion control, which starts with the number of its case.
fn open(number: u8, host: &str, name: &str) -> std::io::Result<TcpStream> {
    // The far side may not listen yet.
    let mut connected = Err(std::io::ErrorKind::NotConnected.into());
    assert!(eventually(|| {
        connected = TcpStream::connect((host, PORT));
        connected.is_ok()
    }));
    let mut stream = connected?;
    set_congestion(&stream, name)?;
    assert_eq!(congestion(&stream)?, name);
    stream.write_all(&[number])?;
    Ok(stream)
}

/// Far side: the arguments are the omitted time, the measured time, and the number of flows.
pub fn drink(words: &str) {
    let words: Vec<u64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
    let [omitted, measured, count] = words[..] else { panic!("{words:?}") };
    let spans = Spans { omitted: Duration::from_secs(omitted), measured: Duration::from_secs(measured) };
    let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
    let streams = listener.incoming().take(count as usize).map(Result::unwrap);
    let threads: Vec<_> = streams.map(|stream| thread::spawn(move || swallow(stream, spans))).collect();
    let lines: String = threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
    let unfinished = home().join("unfinished");
    fs::write(&unfinished, lines).unwrap();
    fs::rename(unfinished, home().join("goodputs")).unwrap();
    thread::sleep(Duration::from_secs(60));
}

/// Returns the number of the case and the bits per second, or None if the flow ended early.
fn swallow(mut stream: TcpStream, spans: Spans) -> Option<String> {
    let mut number = [0];
    stream.read_exact(&mut number).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (start, mut counted, mut buffer) = (Instant::now(), 0, vec![0; 1 << 18]);
    loop {
        let read = match stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return None,
        };
        match start.elapsed() {
            early if early < spans.omitted => {}
            late if late >= spans.omitted + spans.measured => break,
            _ => counted += read,
        }
    }
    Some(format!("{} {}\n", number[0], counted as f64 * 8.0 / spans.measured.as_secs_f64()))
}
