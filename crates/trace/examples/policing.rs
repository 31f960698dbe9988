//! Counts in virtual time how often a policer is found behind a policer, and elsewhere.
//!
//! ```console
//! $ cargo run --release --package lfn-trace --example policing [TRIALS [FIRST-SEED]]
//! ```
//!
//! Each trial is a transfer over a path that its seed selects: rate, RTT, bucket or queue, congestion control, and the end
//! at which the packets are captured. Prints Markdown. As in the study of policing of 2016, a connection is called policed
//! exactly if the finding "policer" is reported, and only connections with losses count. With `VERBOSE` in the environment,
//! each wrong connection is printed.

use std::time::Duration;

use lfn_base::tcp_model::Congestion;
use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::{
    CoDel, Discipline, Gilbert, LinkConfig, LinkDirection, LossModel, Policer, QueueLimit, Red, Shaper, Timetable,
};
use lfn_results::diagnose::diagnose;
use lfn_results::evidence::Evidence;
use lfn_sim::TransferEnd;
use lfn_sim::tcp::TcpSettings;
use lfn_sim::transfer::{Transfer, TransferLoad, TransferOutcome};
use lfn_trace::{Analysis, AnalysisOptions};

/// Kind of the path of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Policed,
    SmallBucket,
    OneBurst,
    PolicedFlows,
    DropTail,
    ActiveQueue,
    ShortQueue,
    Shaper,
    SharedQueue,
    RandomLoss,
    LossBursts,
}

/// All kinds with their names and the published share of right answers, in percent.
const KINDS: [(Kind, &str, &str); 11] = [
    (Kind::Policed, "policer, bucket of 1 to 8 BDP", "93.1"),
    (Kind::SmallBucket, "policer, bucket below the BDP", "48.0"),
    (Kind::OneBurst, "policer, one burst", "48.0"),
    (Kind::PolicedFlows, "policer, 2 to 5 flows", "12.3"),
    (Kind::DropTail, "queue of 0.5 to 4 BDP", "100"),
    (Kind::ActiveQueue, "CoDel or RED", "100"),
    (Kind::ShortQueue, "queue of 4 to 10 packets", "93.2"),
    (Kind::Shaper, "shaper", "100"),
    (Kind::SharedQueue, "queue, 2 to 5 flows", "96.9"),
    (Kind::RandomLoss, "random loss of 0.3 to 3 %", "99.7"),
    (Kind::LossBursts, "loss in bursts", ""),
];

impl Kind {
    fn is_policed(self) -> bool {
        matches!(self, Kind::Policed | Kind::SmallBucket | Kind::OneBurst | Kind::PolicedFlows)
    }
}

/// Random numbers that depend on the seed only (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `low` to `high`, with equal shares of each octave.
    fn between(&mut self, low: f64, high: f64) -> f64 {
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        low * (high / low).powf(share)
    }

    fn count(&mut self, low: u32, high: u32) -> u32 {
        low + (self.next() % u64::from(high - low + 1)) as u32
    }
}

/// Path and load of a trial.
struct Trial {
    kind: Kind,
    seed: u64,
    rate: BitRate,
    rtt: Duration,
    forward: LinkConfig,
    load: TransferLoad,
    end: TransferEnd,
}

impl Trial {
    fn new(kind: Kind, seed: u64) -> Self {
        let mut draw = Draw(seed.wrapping_mul(31).wrapping_add(kind as u64));
        let rate = BitRate(draw.between(0.5e6, 30e6) as u64);
        let rtt = Duration::from_secs_f64(draw.between(0.015, 0.3));
        let bdp = rate.times(rtt).0 as f64;
        let congestion =
            [Congestion::Cubic, Congestion::Cubic, Congestion::Reno, Congestion::Bbr][draw.count(0, 3) as usize];
        let end = if draw.count(0, 1) == 0 { TransferEnd::Sender } else { TransferEnd::Receiver };
        let time = draw.between(6.0, 15.0);
        let mut size = rate.0 as f64 / 8.0 * time;
        let mut streams = 1;
        // Losses come from the setting of the kind only: without one the line is fast and its queue long.
        let fast = BitRate((rate.0 as f64 * draw.between(2.0, 20.0)) as u64);
        let bytes = |bytes: f64| Bytes(bytes.max(3.0 * 1514.0) as u64);
        let mut forward = LinkConfig {
            rate: fast.into(),
            delay: (rtt / 2).into(),
            queue: QueueLimit::Bytes(bytes(fast.times(rtt).0 as f64 * 4.0 + 200_000.0)),
            seed,
            ..LinkConfig::default()
        };
        let policer = |burst: f64| Some(Policer { rate, burst: bytes(burst) });
        match kind {
            Kind::Policed => forward.policer = policer((bdp * draw.between(1.0, 8.0)).max(20_000.0)),
            Kind::SmallBucket => forward.policer = policer(bdp * draw.between(0.15, 0.9)),
            Kind::OneBurst => {
                let burst = (bdp * draw.between(1.0, 4.0)).max(30_000.0);
                forward.policer = policer(burst);
                size = burst * draw.between(1.5, 2.5) + bdp * draw.between(2.0, 5.0);
            }
            Kind::PolicedFlows => {
                forward.policer = policer((bdp * draw.between(1.0, 4.0)).max(20_000.0));
                streams = draw.count(2, 5);
            }
            Kind::DropTail | Kind::SharedQueue => {
                forward.rate = rate.into();
                forward.queue = QueueLimit::Bytes(bytes((bdp * draw.between(0.5, 4.0)).max(15_000.0)));
                streams = if kind == Kind::SharedQueue { draw.count(2, 5) } else { 1 };
            }
            Kind::ActiveQueue => {
                forward.rate = rate.into();
                forward.queue = QueueLimit::Bytes(bytes((bdp * 4.0).max(60_000.0)));
                forward.discipline = if draw.count(0, 1) == 0 {
                    Discipline::CoDel(CoDel { interval: rtt.max(Duration::from_millis(100)), ..CoDel::default() })
                } else {
                    Discipline::Red(Red::default())
                };
            }
            Kind::ShortQueue => {
                forward.rate = rate.into();
                forward.queue = QueueLimit::Bytes(bytes(f64::from(draw.count(4, 10)) * 1514.0));
            }
            Kind::Shaper => {
                let burst = (bdp * draw.between(0.3, 8.0)).max(8_000.0);
                let limit = (bdp * draw.between(0.5, 4.0)).max(15_000.0);
                forward.shaper = Some(Shaper { rate, burst: bytes(burst), limit: bytes(limit) });
            }
            Kind::RandomLoss | Kind::LossBursts => {
                // A queue of the line that the losses keep empty most of the time.
                forward.rate = rate.into();
                forward.queue = QueueLimit::Bytes(bytes((bdp * draw.between(0.5, 3.0)).max(15_000.0)));
                let share = draw.between(0.003, 0.03);
                let ratio = |value: f64| Ratio::new(value).unwrap_or_default();
                forward.loss = if kind == Kind::RandomLoss {
                    LossModel::Independent(Timetable::constant(ratio(share)))
                } else {
                    let length = draw.between(3.0, 15.0);
                    LossModel::Gilbert(Gilbert {
                        to_bad: ratio(share / length),
                        to_good: ratio(1.0 / length),
                        pass_bad: ratio(0.2),
                        pass_good: Ratio::ONE,
                    })
                };
            }
        }
        let settings = TcpSettings { congestion, ..TcpSettings::default() };
        let size = Bytes(size.clamp(60_000.0, 60e6) as u64);
        Trial { kind, seed, rate, rtt, forward, load: TransferLoad { size, streams, settings }, end }
    }

    /// Runs the transfer for at most a minute, and counts its connections.
    fn run(&self, verbose: bool) -> Count {
        let back = LinkConfig {
            direction: LinkDirection::Return,
            rate: BitRate(1_000_000_000).into(),
            delay: (self.rtt / 2).into(),
            ..LinkConfig::default()
        };
        let mut count = Count { trials: 1, ..Count::default() };
        let transfer = Transfer::new(self.load, self.rtt, std::slice::from_ref(&self.forward), &[back]);
        let mut transfer = match transfer {
            Ok(transfer) => transfer,
            Err(error) => panic!("trial {} of {:?}: {error}", self.seed, self.kind),
        };
        transfer.capture_at(self.end);
        let mut analysis = Analysis::new(AnalysisOptions::default());
        loop {
            let outcome = transfer.advance(1_000);
            for captured in transfer.take_captured() {
                analysis.add(captured.at, &captured.segment);
            }
            if matches!(
                outcome,
                Some(TransferOutcome::Complete | TransferOutcome::GaveUp(_) | TransferOutcome::TooLong)
            ) || transfer.report().time > Duration::from_secs(60)
            {
                break;
            }
        }
        for connection in analysis.finish().connections {
            let loss = &connection.evidence.loss;
            if loss.before_capture + loss.after_capture == 0 {
                continue;
            }
            let evidence = Evidence::of_capture(connection.evidence);
            let names: Vec<String> = diagnose(&evidence).findings.into_iter().map(|finding| finding.name).collect();
            let is_called = names.iter().any(|name| name == "policer");
            count.connections += 1;
            count.right += u64::from(is_called == self.kind.is_policed());
            count.first += u64::from(names.first().is_some_and(|name| name == "policer"));
            if verbose && is_called != self.kind.is_policed() {
                eprintln!("{}: {names:?}", self.describe());
            }
        }
        count
    }

    fn describe(&self) -> String {
        let bdp = self.rate.times(self.rtt).0;
        format!(
            "{:?} seed {} {:.1} Mb/s {} ms bdp {bdp} B {:?} {:?} {} B bucket {:?} shaper {:?} queue {:?}",
            self.kind,
            self.seed,
            self.rate.0 as f64 / 1e6,
            self.rtt.as_millis(),
            self.load.settings.congestion,
            self.end,
            self.load.size.0,
            self.forward.policer.map(|policer| policer.burst.0),
            self.forward.shaper.map(|shaper| (shaper.burst.0, shaper.limit.0)),
            self.forward.queue,
        )
    }
}

/// Counts of the trials of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    trials: u64,
    /// Connections that lost packets.
    connections: u64,
    /// Connections that are called policed exactly if they are.
    right: u64,
    /// Connections whose first finding is a policer.
    first: u64,
}

impl Count {
    fn and(self, other: Count) -> Count {
        Count {
            trials: self.trials + other.trials,
            connections: self.connections + other.connections,
            right: self.right + other.right,
            first: self.first + other.first,
        }
    }

    fn right_percent(&self) -> f64 {
        100.0 * self.right as f64 / self.connections.max(1) as f64
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (trials, first) = (numbers.next().unwrap_or(100), numbers.next().unwrap_or(1));
    let verbose = std::env::var_os("VERBOSE").is_some();
    println!("| path | trials | connections with losses | policer first | right, % | published, % |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut elsewhere = Count::default();
    for (kind, name, published) in KINDS {
        let count =
            (first..first + trials).map(|seed| Trial::new(kind, seed).run(verbose)).fold(Count::default(), Count::and);
        println!(
            "| {name} | {} | {} | {} | {:.1} | {published} |",
            count.trials,
            count.connections,
            count.first,
            count.right_percent()
        );
        if !kind.is_policed() {
            elsewhere = elsewhere.and(count);
        }
    }
    println!();
    println!(
        "False alarms without a policer: {} of {} connections, {:.2} % (target: at most 0.3 %).",
        elsewhere.connections - elsewhere.right,
        elsewhere.connections,
        100.0 - elsewhere.right_percent()
    );
}
