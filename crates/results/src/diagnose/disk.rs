//! Disks that are slower than the path. They limit copies, and not the load whose evidence has their rates.

use lfn_base::units::BitRate;
use serde_json::json;

use super::bottleneck::NEAR_PREDICTED;
use super::host::slow_disk;
use super::verdict::Verdict;
use super::{Cause, Confidence, Finding, figures_map, finding};
use crate::evidence::disk::{DiskEvidence, DiskRate};
use crate::evidence::figures::{Figures, HostFigures};

/// Maximum share of a server's rate limit in the rate of a disk that the limit did not stop.
pub(super) const MAX_SHARE_OF_LIMIT: f64 = 0.9;
/// Maximum share of the goodput in the rate of a slow disk: that of copies. A faster disk costs a copy less than the path
/// varies.
pub(super) const MAX_DISK_SHARE: f64 = NEAR_PREDICTED;

/// Finds a disk that is read slower than the path carries data.
pub(super) fn source(figures: &Figures) -> Option<Finding> {
    slow(figures, Cause::SourceDisk)
}

/// Finds a disk that is written slower than the path carries data.
pub(super) fn destination(figures: &Figures) -> Option<Finding> {
    slow(figures, Cause::DestinationDisk)
}

/// Adds the rate of a copy to the verdict of the path.
pub(super) fn add_to_verdict(figures: &Figures, findings: &[Finding], verdict: &mut Verdict) {
    let disks = findings.iter().filter(|finding| finding.cause().is_some_and(Cause::is_disk) && finding.is_limit());
    let Some(cause) = disks.max_by_key(|finding| finding.gain).and_then(Finding::cause) else { return };
    let rate = copy_rate(figures);
    verdict.summary += &format!("; a copy is limited by {}, {rate}", cause.phrase());
}

/// Returns the rate of a host's disk in the role of the host.
fn rate_of(host: &HostFigures, cause: Cause) -> Option<&DiskRate> {
    let report = &host.disk.as_ref()?.report;
    let rate = if cause == Cause::SourceDisk { &report.read } else { &report.write };
    let is_free = |rate: &&DiskRate| {
        report.rate_limit.is_none_or(|limit| rate.rate.as_f64() < MAX_SHARE_OF_LIMIT * limit.as_f64())
    };
    rate.as_ref().filter(is_free)
}

/// Returns the goodput of a copy with the disks and the path as they are.
fn copy_rate(figures: &Figures) -> BitRate {
    let disks = [
        rate_of(&figures.sender, Cause::SourceDisk).map(|rate| rate.rate),
        rate_of(&figures.receiver, Cause::DestinationDisk).map(|rate| rate.rate),
    ];
    disks.into_iter().flatten().fold(figures.steady_goodput(), BitRate::min)
}

fn slow(figures: &Figures, cause: Cause) -> Option<Finding> {
    let is_source = cause == Cause::SourceDisk;
    let (host, other, other_cause) = if is_source {
        (&figures.sender, &figures.receiver, Cause::DestinationDisk)
    } else {
        (&figures.receiver, &figures.sender, Cause::SourceDisk)
    };
    let rate = rate_of(host, cause)?;
    let goodput = figures.steady_goodput();
    let possible = figures.possible_goodput().map_or(goodput, |possible| possible.max(goodput));
    let is_slow = |path: BitRate| rate.rate.as_f64() <= MAX_DISK_SHARE * path.as_f64();
    // The disk would limit a copy as soon as the path carries the possible goodput.
    let (carried, how) = match (is_slow(goodput), is_slow(possible)) {
        (true, _) => (goodput, "carries"),
        (false, true) => (possible, "can carry"),
        (false, false) => return None,
    };
    let verb = if is_source { "read" } else { "written" };
    let disk = host.disk.as_ref()?;
    let summary = format!(
        "the disk of {}{} is {verb} at {} ({} in the slowest interval), and the path {how} {carried}",
        host.name,
        place(disk),
        rate.rate,
        rate.min
    );
    // Without this disk, the other disk or the path limits a copy.
    let predicted = rate_of(other, other_cause).map_or(goodput, |other| other.rate.min(goodput));
    let mut finding = finding(figures, cause, summary, slow_disk(&host.name), Some(predicted));
    finding.gain = Some(BitRate(predicted.0.saturating_sub(copy_rate(figures).0)));
    // A disk with pauses is fast in most intervals.
    let is_steady = rate.median.as_f64() <= MAX_DISK_SHARE * carried.as_f64();
    finding.confidence = Some(if is_steady { Confidence::High } else { Confidence::Medium });
    finding.confirmation =
        (!is_steady).then(|| format!("the pauses of the disk show its load: iostat -x 1 60   # on {}", host.name));
    finding.evidence = figures_map([
        ("disk_bits_per_second", json!(rate.rate.0)),
        ("median_disk_bits_per_second", json!(rate.median.0)),
        ("min_disk_bits_per_second", json!(rate.min.0)),
        ("disk_bytes", json!(rate.bytes.0)),
        ("carried_bits_per_second", json!(carried.0)),
        ("copy_bits_per_second", json!(copy_rate(figures).0)),
    ]);
    Some(finding)
}

/// Returns the path and the kind of a disk in brackets.
fn place(disk: &DiskEvidence) -> String {
    let path = if disk.path.is_empty() { "the served root" } else { disk.path.as_str() };
    let kind = disk.report.kind().map(|kind| format!(", {kind}")).unwrap_or_default();
    format!(" ({path}{kind})")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::units::Bytes;

    use super::*;
    use crate::diagnose::window::tests::half_bdp_window;
    use crate::diagnose::{Diagnosis, diagnose_figures};
    use crate::evidence::disk::{DiskMethod, DiskReport};

    const GOODPUT: u64 = 190_000_000;

    /// A disk with these rates in Mb/s.
    fn disk(read: u64, write: u64) -> Option<DiskEvidence> {
        let rate = |mbit: u64| {
            let second = Duration::from_secs(1);
            let bytes = Bytes(mbit * 125_000);
            Some(DiskRate::new(DiskMethod::Direct, bytes, second, &[]))
        };
        let report = DiskReport {
            file_system: Some("ext4".into()),
            rotational: Some(true),
            read: rate(read),
            write: rate(write),
            ..DiskReport::default()
        };
        Some(DiskEvidence { path: "/data".into(), report })
    }

    /// A healthy path of 200 Mb/s from the disk of near to the disk of far.
    fn figures(near: Option<DiskEvidence>, far: Option<DiskEvidence>) -> Figures {
        let mut figures = half_bdp_window();
        figures.path = figures.path.map(|path| lfn_base::path::PathProfile { capacity: BitRate(200_000_000), ..path });
        (figures.goodput, figures.steady) = (BitRate(GOODPUT), None);
        for flow in &mut figures.streams {
            flow.goodput = BitRate(GOODPUT);
            (flow.snd_wnd, flow.busy_share, flow.rwnd_limited) = (None, Some(1.0), Duration::ZERO);
            (flow.receiver_socket.window_requested_bytes, flow.receiver_socket.rcvbuf_requested_bytes) = (None, None);
        }
        (figures.sender.disk, figures.receiver.disk) = (near, far);
        figures
    }

    fn found(near: Option<DiskEvidence>, far: Option<DiskEvidence>) -> Diagnosis {
        diagnose_figures(&figures(near, far))
    }

    #[test]
    fn slow_disk_limits_a_copy_and_not_the_path() {
        let Diagnosis { findings, verdict, .. } = found(disk(80, 1), disk(1, 900));
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.cause(), Some(Cause::SourceDisk));
        assert_eq!((finding.predicted, finding.gain), (Some(BitRate(GOODPUT)), Some(BitRate(110_000_000))));
        assert_eq!(
            finding.summary,
            "the disk of near.example (/data, ext4, rotating) is read at 80 Mb/s (80 Mb/s in the slowest interval), and \
             the path carries 190 Mb/s"
        );
        assert_eq!(finding.remedy.to_string(), "iostat -x 1 5; pidstat -d 1 5   # on near.example");
        assert_eq!(verdict.summary, "limited by the path, 200 Mb/s; a copy is limited by the source disk, 80 Mb/s");
    }

    #[test]
    fn fast_disks_and_no_disks_have_no_finding() {
        for (near, far) in [(None, None), (disk(900, 1), disk(1, 900)), (None, disk(1, 900))] {
            let Diagnosis { findings, verdict, missing, .. } = found(near, far);
            assert!(findings.is_empty(), "{findings:?}");
            assert_eq!(verdict.summary, "limited by the path, 200 Mb/s (no other bottleneck found)");
            assert!(missing.iter().all(|missing| !missing.evidence.contains("disk")), "{missing:?}");
        }
    }

    #[test]
    fn slower_disk_of_two_has_the_gain() {
        let findings = found(disk(80, 1), disk(1, 40)).findings;
        let figures: Vec<_> = findings.iter().map(|found| (found.cause(), found.predicted, found.gain)).collect();
        let mbit = |rate: u64| Some(BitRate(rate * 1_000_000));
        assert_eq!(
            figures,
            [(Some(Cause::SourceDisk), mbit(40), mbit(0)), (Some(Cause::DestinationDisk), mbit(80), mbit(40)),]
        );
    }

    #[test]
    fn limit_of_the_server_is_no_slow_disk() {
        let limited = |limit: u64| {
            let mut far = disk(1, 80);
            far.as_mut().unwrap().report.rate_limit = Some(BitRate(limit * 1_000_000));
            source_and_destination(None, far)
        };
        assert_eq!((limited(81), limited(400)), (vec![], vec![Cause::DestinationDisk]));
    }

    fn source_and_destination(near: Option<DiskEvidence>, far: Option<DiskEvidence>) -> Vec<Cause> {
        found(near, far).findings.iter().filter_map(Finding::cause).collect()
    }

    #[test]
    fn disk_with_pauses_is_less_certain() {
        let mut near = disk(80, 1);
        near.as_mut().unwrap().report.read.as_mut().unwrap().median = BitRate(400_000_000);
        let finding = found(near, None).findings.pop().unwrap();
        assert_eq!(finding.confidence, Some(Confidence::Medium));
        assert!(finding.confirmation.is_some_and(|text| text.contains("iostat -x 1 60   # on near.example")));
    }

    #[test]
    fn disk_above_the_goodput_limits_a_faster_path() {
        let mut slow = figures(disk(100, 1), None);
        (slow.goodput, slow.streams[0].goodput) = (BitRate(50_000_000), BitRate(50_000_000));
        let finding = source(&slow).unwrap();
        assert!(finding.summary.ends_with("the path can carry 191.3 Mb/s"), "{finding:?}");
        assert_eq!(finding.gain, Some(BitRate(0)));
        slow.path = None;
        assert_eq!(source(&slow), None, "without a capacity");
    }
}
