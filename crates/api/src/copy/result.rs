//! Result of a copy: the outcome, its limit and findings, and the document.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::plan::streams::DEFAULT_STREAMS;
use lfn_base::units::show_duration;
use lfn_copy::proto::streams::CountReason;
use lfn_copy::{
    CopyObserver, CopyOutcome, PartCourse, StripeReport, TransferError, TransportUse, download, third_party_copy,
    upload,
};
use lfn_results::diagnose::bottleneck::CopyBottleneck;
use lfn_results::diagnose::{Diagnosis, diagnose};
use lfn_session::SessionError;
use lfn_session::transport::tcp::has_multipath;

use super::error::CopyError;
use super::event::CopyEvent;
use super::evidence::copy_evidence;
use super::places::{Direction, without_secrets};
use super::prepare::PreparedCopy;
use super::queue::copy_from_queue;
use super::streams::Transport;
use crate::documents::{
    CopySchema, FinishedCopy, QueueReport, RankDirection, RanksReport, StripeFigures, UsedTransport, congestion_change,
};
use crate::prediction::CopyPrediction;

/// A finished copy with its settings, its prediction and its diagnosis.
#[derive(Debug)]
pub struct CopyResult {
    /// Result of the transfer.
    pub outcome: CopyOutcome,
    /// Settings of the copy.
    pub prepared: PreparedCopy,
    /// Limit and findings of the copy.
    pub diagnosis: Diagnosis,
    /// Bytes of each stripe over time.
    pub stripe_course: PartCourse,
    /// State of the queue; `None` if this host copied alone.
    pub queue: Option<QueueReport>,
}

impl PreparedCopy {
    /// Copies to the end, and diagnoses the copy. A set `interrupted` ends the copy.
    pub fn run(
        self,
        interrupted: &Arc<AtomicBool>,
        on_event: &mut dyn FnMut(&CopyEvent<'_>),
    ) -> Result<CopyResult, CopyError> {
        // All callbacks run on this thread, one after the other.
        let on_event = RefCell::new(on_event);
        let report = |event: &CopyEvent<'_>| (*on_event.borrow_mut())(event);
        let stripes = &self.options.stripes;
        let report_stripes = || stripes.take_events().iter().for_each(|event| report(&CopyEvent::Stripe(event)));
        if let Some(options) = self.queue.clone() {
            let (outcome, queue) = copy_from_queue(&self, &options, interrupted, &report)?;
            return Ok(CopyResult { queue: Some(queue), ..CopyResult::new(self, outcome) });
        }
        let mut stripe_course = PartCourse::default();
        let watch = CopyObserver {
            observer: &mut |totals, sample| {
                report_stripes();
                let figures = stripes.report(Instant::now());
                stripe_course.add(sample.at, || figures.iter().map(|stripe| stripe.bytes).collect());
                report(&CopyEvent::Progress { totals, sample, stripes: &figures });
            },
            change: &mut |change| report(&CopyEvent::Streams(change)),
            connection: &mut |connection| {
                report_stripes();
                report(&CopyEvent::Connection(connection));
            },
            interrupted,
        };
        let far = &self.far.target;
        let result = match self.direction.clone() {
            Direction::Upload(from, _, to) => upload(far, &from, to, &self.options, watch),
            Direction::Download(_, from, to) => download(far, from, &to, &self.options, watch),
            Direction::ThirdParty { from, to, .. } => {
                let receiver = self.other.as_ref().map_or(far, |other| &other.target);
                third_party_copy(far, from, receiver, to, &self.options, watch)
            }
        };
        let outcome = result.map_err(|error| match error {
            TransferError::Session(SessionError::Unreachable { address, source }) if self.direction.is_local() => {
                CopyError::Loopback { address, source }
            }
            error => CopyError::from_transfer(with_stripe_hint(error, stripes.stripes().len()), &self.places),
        })?;
        stripe_course.finish(outcome.elapsed, outcome.stripes.iter().map(|stripe| stripe.bytes).collect());
        Ok(CopyResult { stripe_course, ..CopyResult::new(self, outcome) })
    }
}

/// Replaces the hint of a server that allows fewer streams: `--streams` counts for each stripe.
fn with_stripe_hint(mut error: TransferError, stripes: usize) -> TransferError {
    if let TransferError::Session(SessionError::Refused(refusal)) = &mut error
        && let Some(most) = refusal.hint.as_deref().and_then(|hint| hint.strip_prefix("use --streams "))
        && let Some(most) = most.split(' ').next().and_then(|most| most.parse::<usize>().ok())
        && stripes > 1
    {
        refusal.hint = Some(match most / stripes {
            0 => format!("use at most {most} stripes, with --streams 1"),
            each => format!("use --streams {each} or fewer, which counts for each of the {stripes} stripes"),
        });
    }
    error
}

impl CopyResult {
    /// Diagnoses a finished copy.
    pub(super) fn new(prepared: PreparedCopy, outcome: CopyOutcome) -> Self {
        let diagnosis = diagnose(&copy_evidence(&prepared, &outcome));
        CopyResult { outcome, prepared, diagnosis, stripe_course: PartCourse::default(), queue: None }
    }

    /// Returns the document, without entries and manifest.
    pub fn document(&self) -> FinishedCopy {
        let CopyResult { outcome, prepared, diagnosis, queue, .. } = self;
        let (options, choice) = (&prepared.options, &prepared.choice);
        let mut sources: Vec<_> = prepared.places.iter().map(|place| without_secrets(place)).collect();
        let destination = sources.pop().unwrap_or_default();
        let (congestion, congestion_reason) = congestion_change(&outcome.changes).unzip();
        let (transport, transport_reason) = self.transport();
        FinishedCopy {
            schema: CopySchema::Current,
            sources,
            destination,
            path: outcome.path.clone(),
            bytes: outcome.bytes,
            moved_bytes: outcome.moved(),
            time: outcome.elapsed,
            goodput: outcome.moved().per(outcome.elapsed),
            digest: outcome.digest,
            dry_run: options.transfer_options.dry_run,
            entries: None,
            verify: options.transfer_options.verify,
            fsync: options.transfer_options.fsync,
            counts: outcome.tally,
            not_copied: outcome.skipped,
            manifest_files: None,
            failures: outcome.failures.clone(),
            reconnects: outcome.reconnects,
            disconnected: outcome.outage_time,
            stalled: outcome.standstill_time,
            streams_replaced: outcome.replaced,
            ranks: self.ranks(),
            queue: queue.clone(),
            predicted: self.predicted(),
            limited_by: self.bottleneck().display_for_end(prepared.near_sends()),
            verdict: diagnosis.verdict.clone(),
            findings: diagnosis.findings.clone(),
            missing: diagnosis.missing.clone(),
            streams: self.streams(),
            first_streams: Some(options.streams),
            streams_reason: self.streams_reason(),
            streams_changes: outcome.changes.clone(),
            stripes: self.stripes(),
            transport,
            transport_reason,
            block: options.block,
            block_reason: choice.block_reason.clone(),
            buffer: choice.buffer,
            buffer_reason: choice.buffer_reason.clone(),
            protection: options.protection,
            congestion: congestion.or(options.congestion.as_ref().map(CongestionRequest::name)).map(str::to_owned),
            congestion_reason: congestion_reason.unwrap_or(&choice.congestion_reason).to_owned(),
            pacing: options.pace,
            sender: outcome.sample.sender,
            receiver: outcome.sample.receiver,
            sockets: outcome.sample.sockets,
        }
    }

    /// Returns the prediction for the bytes that were sent, if the path is known and any were sent.
    pub fn predicted(&self) -> Option<CopyPrediction> {
        // A rank or a mover waits for others, and does not know its share before.
        if self.prepared.options.rank.is_some() || self.queue.is_some() {
            return None;
        }
        self.prepared.predictor.predict_outcome(&self.outcome, self.streams(), None)
    }

    /// Returns the figures of all ranks; `None` if this host copied alone.
    fn ranks(&self) -> Option<RanksReport> {
        let rank = self.prepared.options.rank.as_ref()?;
        let figures = rank.board.figures()?;
        let bytes = figures.bytes();
        Some(RanksReport {
            rank: rank.request.rank,
            direction: if self.prepared.near_sends() { RankDirection::Upload } else { RankDirection::Download },
            job: rank.request.job.clone(),
            bytes,
            time: figures.time,
            goodput: bytes.per(figures.time),
            ranks: figures.ranks,
        })
    }

    /// Returns the limit of the whole copy.
    pub fn bottleneck(&self) -> CopyBottleneck {
        self.diagnosis.bottleneck.unwrap_or(CopyBottleneck::Unknown)
    }

    /// Returns the transport of the data streams, and the reason if it is not the requested one.
    fn transport(&self) -> (UsedTransport, Option<String>) {
        let TransportUse { streams, multipath } = self.prepared.options.stripes.transport();
        match self.prepared.transport {
            _ if multipath > 0 => (UsedTransport::Mptcp, None),
            Transport::Mptcp if !has_multipath() => {
                (UsedTransport::Tcp, Some("this host does not have Multipath TCP".to_owned()))
            }
            Transport::Mptcp if streams > 0 => {
                (UsedTransport::Tcp, Some("the server or the path does not support Multipath TCP".to_owned()))
            }
            Transport::Tcp | Transport::Mptcp => (UsedTransport::Tcp, None),
        }
    }

    /// Returns the figures of the stripes.
    pub fn stripes(&self) -> Vec<StripeFigures> {
        let figures =
            |report: &StripeReport| StripeFigures::new(report.clone(), report.bytes.per(self.outcome.elapsed));
        self.outcome.stripes.iter().map(figures).collect()
    }

    /// Returns the number of streams at the end.
    pub fn streams(&self) -> u16 {
        self.outcome.last_stream_count(self.prepared.options.streams)
    }

    /// Returns the reason for the number of streams at the start. The times are those of the prediction for the bytes
    /// that were sent.
    pub fn streams_reason(&self) -> String {
        let PreparedCopy { options, choice, predictor, send_buffer, .. } = &self.prepared;
        let reason = choice.streams_reason;
        let is_chosen = matches!(reason, CountReason::Faster | CountReason::Size(_) | CountReason::UnknownSize);
        if !is_chosen || options.streams <= DEFAULT_STREAMS {
            return reason.to_string();
        }
        let (Some(predicted), Some(fewer)) =
            (self.predicted(), predictor.predict_outcome(&self.outcome, DEFAULT_STREAMS, *send_buffer))
        else {
            return reason.to_string();
        };
        let gain = if fewer.time > predicted.time {
            let [time, with_fewer] = [predicted.time, fewer.time].map(show_duration);
            format!("{time} instead of {with_fewer} with {DEFAULT_STREAMS}")
        } else {
            format!("as fast as {DEFAULT_STREAMS}")
        };
        match reason {
            CountReason::Faster => gain,
            reason => format!("{reason}; {gain}"),
        }
    }
}
