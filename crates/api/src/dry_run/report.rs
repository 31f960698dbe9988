//! Result of a dry run.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::PathProfile;
use lfn_base::tcp_model::{Prediction, TransferPhases};
use lfn_base::units::Ratio;
use lfn_link::{DropCause, LinkStats};
use lfn_sim::transfer::{QueueingTime, TransferLoad, TransferOutcome, TransferReport};

use crate::documents::{
    DryRunDocument, DryRunSchema, ModelledTransfer, PredictedTransfer, QueueingDelayFigures, SenderCounts,
    SimulatedDirection,
};

/// A simulated transfer and its prediction.
#[derive(Debug, Clone)]
pub struct DryRunReport {
    /// Figures of the path, with the MTU that the senders know.
    pub path: PathProfile,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Size and settings of the transfer.
    pub load: TransferLoad,
    /// Steady goodput of the formulas.
    pub predicted: Prediction,
    /// Time of the formulas; none if the transfer never ends.
    pub predicted_time: Option<TransferPhases>,
    /// Figures of the simulation.
    pub transfer: TransferReport,
    /// Real time of the computation.
    pub computed_in: Duration,
}

impl DryRunReport {
    /// Returns the document. Its figures do not depend on the machine or the time.
    pub fn document(&self) -> DryRunDocument {
        let TransferReport { senders, links: [forward, back], duplicates, waiting, steps, .. } = &self.transfer;
        DryRunDocument {
            schema: DryRunSchema::Current,
            path: self.path,
            seed: self.seed,
            size_bytes: self.load.size,
            streams: self.load.streams,
            congestion: self.load.settings.congestion,
            window_bytes: self.load.settings.window,
            mss_bytes: self.load.settings.mss,
            max_merged_segments: self.load.settings.range_segments,
            complete: self.is_complete(),
            simulated: self.simulated(),
            predicted: PredictedTransfer {
                time: self.predicted_time.map(|time| time.total()),
                goodput: self.predicted_time.map(|time| self.load.size.per(time.total())),
                steady_goodput: self.predicted.goodput,
                limited_by: self.predicted.limit,
                start_up: self.predicted_time.map(|time| time.handshake + time.slow_start),
            },
            senders: SenderCounts {
                retransmitted_segments: senders.retransmitted,
                timeouts: senders.timeouts,
                loss_events: senders.loss_events,
                ecn_events: senders.ecn_events,
                undone_reductions: senders.undone_reductions,
                duplicate_segments: *duplicates,
                max_cwnd_segments: Figure::new(senders.max_window).unwrap_or_default(),
            },
            forward: direction_json(forward),
            back: direction_json(back),
            queueing_delay: delays(waiting),
            steps: *steps,
        }
    }

    /// Returns the figures of the simulation.
    pub fn simulated(&self) -> ModelledTransfer {
        let TransferReport { time, arrived, steady, .. } = self.transfer;
        ModelledTransfer {
            time,
            received_bytes: arrived,
            goodput: arrived.per(time),
            steady_goodput: steady.map(|(_, goodput)| goodput),
            start_up: steady.map(|(began, _)| began),
            utilisation: Ratio::new(self.utilisation()).unwrap_or_default(),
        }
    }

    /// Reports whether all bytes arrived.
    pub fn is_complete(&self) -> bool {
        self.transfer.outcome == Some(TransferOutcome::Complete)
    }

    fn utilisation(&self) -> f64 {
        let busy = self.transfer.links[0].busy.as_secs_f64();
        (busy / self.transfer.time.as_secs_f64().max(1e-9)).min(1.0)
    }
}

fn direction_json(link: &LinkStats) -> SimulatedDirection {
    let dropped = DropCause::ALL.iter().map(|cause| (*cause, link.dropped[*cause].packets));
    SimulatedDirection {
        offered_packets: link.offered.packets,
        forwarded_packets: link.forwarded.packets,
        dropped_packets: dropped.filter(|(_, packets)| *packets > 0).collect(),
        marked_packets: link.marked.packets,
        queue_peak_bytes: link.queue_peak,
    }
}

fn delays(waiting: &QueueingTime) -> QueueingDelayFigures {
    let QueueingTime { mean, p50, p95, p99, max } = *waiting;
    QueueingDelayFigures { mean, p50, p95, p99, max }
}
