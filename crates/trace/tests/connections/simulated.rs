//! Simulated transfers over known paths, and their findings.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::{LinkConfig, LinkDirection, LossModel, Policer, QueueLimit, Timetable};
use lfn_results::diagnose::{Cause, Diagnosis, VerdictLimit, diagnose};
use lfn_results::evidence::Evidence;
use lfn_sim::TransferEnd;
use lfn_sim::tcp::TcpSettings;
use lfn_sim::transfer::{Transfer, TransferLoad};
use lfn_trace::{Analysis, AnalysisOptions};

const RTT: Duration = Duration::from_millis(40);
const RATE: BitRate = BitRate(10_000_000);

/// Sends 10 MB over a path with this forward link, and returns the diagnosis of the capture at one end.
fn transfer(end: TransferEnd, change: impl FnOnce(&mut LinkConfig)) -> Diagnosis {
    transfer_with(end, TcpSettings::default(), change)
}

fn transfer_with(end: TransferEnd, settings: TcpSettings, change: impl FnOnce(&mut LinkConfig)) -> Diagnosis {
    let bdp = RATE.times(RTT).0;
    let mut forward = LinkConfig {
        rate: RATE.into(),
        delay: (RTT / 2).into(),
        queue: QueueLimit::Bytes(Bytes(bdp)),
        seed: 3,
        ..LinkConfig::default()
    };
    change(&mut forward);
    let back = LinkConfig {
        direction: LinkDirection::Return,
        rate: BitRate(1_000_000_000).into(),
        delay: (RTT / 2).into(),
        ..LinkConfig::default()
    };
    let load = TransferLoad { size: Bytes(10_000_000), streams: 1, settings };
    let mut transfer = Transfer::new(load, RTT, &[forward], &[back]).unwrap();
    transfer.capture_at(end);
    let mut analysis = Analysis::new(AnalysisOptions::default());
    loop {
        let outcome = transfer.advance(1000);
        for captured in transfer.take_captured() {
            analysis.add(captured.at, &captured.segment);
        }
        if outcome.is_some() || transfer.report().time > Duration::from_secs(60) {
            break;
        }
    }
    let connection = analysis.finish().connections.remove(0);
    diagnose(&Evidence::of_capture(connection.evidence))
}

fn first_cause(diagnosis: &Diagnosis) -> Option<Cause> {
    diagnosis.findings.first().and_then(lfn_results::diagnose::Finding::cause)
}

#[test]
fn a_full_path_has_no_finding() {
    for end in [TransferEnd::Sender, TransferEnd::Receiver] {
        let diagnosis = transfer(end, |_| {});
        assert_eq!(diagnosis.findings, [], "{end:?}");
        assert_eq!(diagnosis.verdict.limit, VerdictLimit::ProbablyPath);
    }
}

#[test]
fn a_policer_is_found_at_both_ends() {
    for end in [TransferEnd::Sender, TransferEnd::Receiver] {
        let diagnosis = transfer(end, |link| {
            link.rate = BitRate(100_000_000).into();
            link.policer = Some(Policer { rate: RATE, burst: Bytes(100_000) });
        });
        assert_eq!(first_cause(&diagnosis), Some(Cause::Policer), "{end:?} {:?}", diagnosis.findings);
    }
}

#[test]
fn random_loss_is_found_at_both_ends() {
    for end in [TransferEnd::Sender, TransferEnd::Receiver] {
        let diagnosis = transfer(end, |link| {
            link.rate = BitRate(50_000_000).into();
            link.loss = LossModel::Independent(Timetable::constant(Ratio::new(0.01).unwrap_or_default()));
        });
        assert_eq!(first_cause(&diagnosis), Some(Cause::RandomLoss), "{end:?} {:?}", diagnosis.findings);
    }
}

#[test]
fn a_small_receive_window_is_found_at_both_ends() {
    for end in [TransferEnd::Sender, TransferEnd::Receiver] {
        // The capture has windows in units of 16 KiB.
        let settings = TcpSettings { window: Bytes(128 << 10), ..TcpSettings::default() };
        let diagnosis = transfer_with(end, settings, |link| {
            link.rate = BitRate(100_000_000).into();
            link.queue = QueueLimit::Bytes(Bytes(1 << 20));
        });
        assert_eq!(first_cause(&diagnosis), Some(Cause::ReceiveWindow), "{end:?} {:?}", diagnosis.findings);
    }
}
