//! Stripes of a copy: several paths between the two hosts, each with its own data streams.
//!
//! The client dials all streams, so only the client knows the stripes. A [`StripeSet`] lasts for the whole copy. It knows
//! the stripe of each stream, counts bytes and failures for each stripe, and reports when a stripe goes down or comes up.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes};
use lfn_session::dial::{BindAddress, Target};
use parking_lot::Mutex;

use super::TransferError;
use super::stream_state::StreamState;
use super::stripe_error::short_text;
use crate::proto::stripe_health::{StripeChange, StripeHealth, StripeState};

/// Time over which the current rate of a stripe is measured.
const RATE_INTERVAL: Duration = Duration::from_secs(3);

/// Minimum time between two measurements of the bytes of a stripe.
const MIN_SAMPLE_DISTANCE: Duration = Duration::from_millis(400);

/// Maximum time for a connection of a stripe. While a path is down, the next SYN leaves sooner than the kernel would
/// send it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum of state changes that wait for the caller.
const MAX_EVENTS: usize = 1000;

/// One path between the two hosts: a source at the client, and an address of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// `LOCAL=REMOTE`, as in messages and results.
    pub name: String,
    /// Address or interface of the client.
    pub from: BindAddress,
    /// Host name or address of the server.
    pub host: String,
    /// Addresses of `host` that the source can reach by their IP version.
    pub addresses: Vec<IpAddr>,
    /// Port of the server; `None` for the port of the ticket.
    pub port: Option<u16>,
}

impl Stripe {
    /// Returns the same server over this stripe.
    pub(crate) fn target(&self, target: &Target) -> Target {
        let port = self.port.unwrap_or(target.port());
        let addresses = self.addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
        let mut target = target.over(self.from.clone(), &self.host, port, addresses);
        target.connect_timeout = target.connect_timeout.min(CONNECT_TIMEOUT);
        target
    }
}

/// Change of a stripe.
#[derive(Clone, Debug)]
pub struct StripeEvent {
    /// Name of the stripe.
    pub stripe: String,
    /// New state of the stripe.
    pub change: StripeChange,
    /// Last error, if the stripe went down.
    pub cause: Option<String>,
}

/// Figures of one stripe.
#[derive(Clone, Debug, PartialEq)]
pub struct StripeReport {
    /// Name of the stripe, `LOCAL=REMOTE`.
    pub name: String,
    pub state: StripeState,
    /// Bytes that arrived over the stripe, with the headers of the blocks.
    pub bytes: Bytes,
    /// Throughput of the last seconds.
    pub rate: BitRate,
    /// Open data streams; after the end of the copy, the maximum that was open at once.
    pub streams: u16,
    pub outages: u32,
    /// Total time in which the stripe was down.
    pub down_time: Duration,
    /// Retransmitted segments of the client's sockets; `None` if the client receives.
    pub retransmitted: Option<u64>,
    /// Last error of a stream of the stripe.
    pub last_error: Option<String>,
}

/// The stripes of a copy. All clones share their state. Without a stripe, the copy has one path.
#[derive(Clone, Debug, Default)]
pub struct StripeSet(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    stripes: Vec<Stripe>,
    /// Start of the times of [`StripeHealth`].
    start: OnceLock<Instant>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: Vec<Record>,
    /// Stripe of each stream of the session.
    stripe_of: HashMap<u16, usize>,
    events: Vec<StripeEvent>,
    transport: TransportUse,
    is_finished: bool,
}

/// Transport of the data streams of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportUse {
    /// Streams that were opened.
    pub streams: u32,
    /// Streams of Multipath TCP among them.
    pub multipath: u32,
}

/// State of one stripe.
#[derive(Debug, Default)]
struct Record {
    health: StripeHealth,
    streams: Vec<Arc<StreamState>>,
    /// Maximum of open streams.
    max_streams: usize,
    closed_bytes: u64,
    closed_retransmitted: u64,
    sends: bool,
    /// Times and total bytes of the last seconds.
    samples: VecDeque<(Instant, u64)>,
    last_error: Option<String>,
}

impl Record {
    fn bytes(&self, is_finished: bool) -> u64 {
        let open = self.streams.iter().map(|stream| stream.carried_bytes(is_finished));
        open.fold(self.closed_bytes, u64::saturating_add)
    }

    /// Records the bytes at this time, and returns the rate of the last seconds.
    fn sample(&mut self, now: Instant) {
        let bytes = self.bytes(false);
        let last = self.samples.back().copied();
        if last.is_some_and(|(at, _)| now.saturating_duration_since(at) < MIN_SAMPLE_DISTANCE) {
            return;
        }
        if bytes > last.map_or(0, |(_, bytes)| bytes) {
            self.health.on_arrival();
        }
        self.samples.push_back((now, bytes));
        // One sample at the start of the interval stays.
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= RATE_INTERVAL) {
            self.samples.pop_front();
        }
    }

    fn rate(&self) -> BitRate {
        let (Some((from, before)), Some((to, after))) = (self.samples.front(), self.samples.back()) else {
            return BitRate(0);
        };
        let elapsed = to.saturating_duration_since(*from);
        if elapsed.is_zero() { BitRate(0) } else { Bytes(after.saturating_sub(*before)).per(elapsed) }
    }
}

impl StripeSet {
    /// Creates the set of these stripes.
    pub fn new(stripes: Vec<Stripe>) -> Self {
        let records = stripes.iter().map(|_| Record::default()).collect();
        let state = Mutex::new(State { records, ..State::default() });
        StripeSet(Arc::new(Shared { stripes, start: OnceLock::new(), state }))
    }

    /// Returns the stripes in the order of the request.
    pub fn stripes(&self) -> &[Stripe] {
        &self.0.stripes
    }

    /// Returns whether there is more than one path.
    pub fn has_alternatives(&self) -> bool {
        self.0.stripes.len() > 1
    }

    /// Returns the figures of all stripes.
    pub fn report(&self, now: Instant) -> Vec<StripeReport> {
        let state = self.0.state.lock();
        let report = |(stripe, record): (&Stripe, &Record)| {
            let open = record.streams.iter().map(|stream| stream.retransmitted_segments());
            StripeReport {
                name: stripe.name.clone(),
                state: record.health.state(),
                bytes: Bytes(record.bytes(state.is_finished)),
                rate: record.rate(),
                streams: u16::try_from(if state.is_finished { record.max_streams } else { record.streams.len() })
                    .unwrap_or(u16::MAX),
                outages: record.health.outages(),
                down_time: record.health.down_time(self.elapsed(now)),
                retransmitted: record.sends.then(|| open.fold(record.closed_retransmitted, u64::saturating_add)),
                last_error: record.last_error.clone(),
            }
        };
        self.0.stripes.iter().zip(&state.records).map(report).collect()
    }

    /// Returns the transport of the streams so far.
    pub fn transport(&self) -> TransportUse {
        self.0.state.lock().transport
    }

    /// Returns the changes since the last call.
    pub fn take_events(&self) -> Vec<StripeEvent> {
        std::mem::take(&mut self.0.state.lock().events)
    }

    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.0.start.get_or_init(|| now))
    }

    /// Forgets the streams of an earlier session.
    pub(crate) fn begin_session(&self) {
        self.0.state.lock().stripe_of.clear();
    }

    /// Records that the copy is complete: all sent bytes have arrived. Returns the final figures.
    pub(crate) fn finish(&self, now: Instant) -> Vec<StripeReport> {
        self.0.state.lock().is_finished = true;
        self.report(now)
    }

    /// Measures the rates. Called several times a second.
    pub(crate) fn sample(&self, now: Instant) {
        self.0.state.lock().records.iter_mut().for_each(|record| record.sample(now));
    }

    /// Records that a stream is dialled over a stripe.
    pub(crate) fn assign(&self, stream: u16, stripe: usize) {
        self.0.state.lock().stripe_of.insert(stream, stripe);
    }

    /// Returns how many streams of a stripe to dial now.
    pub(crate) fn streams_to_dial(&self, stripe: usize, dialled: u16, wanted: u16, now: Instant) -> u16 {
        let mut state = self.0.state.lock();
        state
            .records
            .get_mut(stripe)
            .map_or(0, |record| record.health.streams_to_dial(dialled, wanted, self.elapsed(now)))
    }

    /// Adds an open stream to its stripe.
    pub(crate) fn add(&self, stream: &Arc<StreamState>, now: Instant) {
        let mut state = self.0.state.lock();
        state.transport.streams += 1;
        state.transport.multipath += u32::from(stream.is_multipath());
        let Some(stripe) = state.stripe_of.get(&stream.number()).copied() else { return };
        let Some(record) = state.records.get_mut(stripe) else { return };
        record.streams.push(stream.clone());
        record.max_streams = record.max_streams.max(record.streams.len());
        let change = record.health.on_opened(self.elapsed(now));
        self.report_change(&mut state, stripe, change, None);
    }

    /// Removes a stream that ended. `error` is the reason of a stream that broke during the copy.
    pub(crate) fn remove(&self, stream: &Arc<StreamState>, error: Option<&TransferError>, now: Instant) {
        let mut state = self.0.state.lock();
        let is_of = |record: &Record| record.streams.iter().any(|other| Arc::ptr_eq(other, stream));
        let Some(stripe) = state.records.iter().position(is_of) else { return };
        let record = &mut state.records[stripe];
        record.streams.retain(|other| !Arc::ptr_eq(other, stream));
        record.closed_bytes = record.closed_bytes.saturating_add(stream.carried_bytes(error.is_none()));
        record.closed_retransmitted = record.closed_retransmitted.saturating_add(stream.retransmitted_segments());
        record.sends |= stream.is_sender();
        let Some(error) = error else { return };
        // A stream that this side shut down was stalled, as this side or the other one noticed.
        let cause = match error {
            _ if stream.is_stalled() || stream.is_shut_down() => "no data arrives".to_owned(),
            TransferError::Stream { source, .. } if source.kind() == ErrorKind::UnexpectedEof => {
                "the server closed a stream".to_owned()
            }
            TransferError::Stream { source, .. } => source.to_string(),
            error => error.to_string(),
        };
        self.record_failure(&mut state, stripe, cause, now);
    }

    /// Records that a stream of a stripe could not be opened. Returns whether another stripe works.
    pub(crate) fn record_failed_dial(&self, stripe: usize, error: &TransferError, now: Instant) -> bool {
        let mut state = self.0.state.lock();
        let cause = match error {
            TransferError::Session(error) => short_text(error),
            error => error.to_string(),
        };
        self.record_failure(&mut state, stripe, cause, now);
        state.records.iter().any(|record| record.health.state() == StripeState::Up)
    }

    fn record_failure(&self, state: &mut State, stripe: usize, cause: String, now: Instant) {
        let Some(record) = state.records.get_mut(stripe) else { return };
        record.last_error = Some(cause.clone());
        let change = record.health.on_failure(record.streams.len(), self.elapsed(now));
        self.report_change(state, stripe, change, Some(cause));
    }

    fn report_change(&self, state: &mut State, stripe: usize, change: Option<StripeChange>, cause: Option<String>) {
        if let Some(change) = change.filter(|_| state.events.len() < MAX_EVENTS) {
            state.events.push(StripeEvent { stripe: self.0.stripes[stripe].name.clone(), change, cause });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::io;

    use lfn_session::transport::memory;
    use lfn_session::wire::copy::StreamReceived;
    use lfn_session::{DataStream, SessionError};

    use super::*;

    fn set() -> StripeSet {
        let stripe = |name: &str| Stripe {
            name: name.to_owned(),
            from: BindAddress::default(),
            host: "far".to_owned(),
            addresses: Vec::new(),
            port: None,
        };
        StripeSet::new(vec![stripe("a=b"), stripe("c=d")])
    }

    /// Opens a stream of a stripe. The other end of the returned stream stays open.
    fn open(set: &StripeSet, number: u16, stripe: usize, now: Instant) -> (Arc<StreamState>, DataStream) {
        let (near, far) = memory::pair();
        set.assign(number, stripe);
        let state = Arc::new(StreamState::new(&DataStream::clear(number, Box::new(near))));
        set.add(&state, now);
        (state, DataStream::clear(number, Box::new(far)))
    }

    fn broken() -> TransferError {
        TransferError::Stream { stream: 0, source: io::ErrorKind::BrokenPipe.into() }
    }

    #[test]
    fn failures_count_for_their_stripe_only() {
        let (set, start) = (set(), Instant::now());
        let streams = [(0, 0), (1, 1), (2, 1)].map(|(number, stripe)| open(&set, number, stripe, start));
        set.remove(&streams[1].0, Some(&broken()), start);
        assert!(set.take_events().is_empty());
        set.remove(&streams[2].0, Some(&broken()), start);
        let [event] = &set.take_events()[..] else { panic!("one event") };
        assert_eq!((event.stripe.as_str(), event.change), ("c=d", StripeChange::Down { has_worked: true }));
        let report = set.report(start + Duration::from_secs(5));
        assert_eq!(report.iter().map(|it| it.state).collect::<Vec<_>>(), [StripeState::Up, StripeState::Down]);
        assert_eq!((report[0].outages, report[1].outages, report[1].down_time.as_secs()), (0, 1, 5));
        // The first stripe works, so the copy goes on. It has its full number of streams, the second one has a trial.
        let refused = || {
            let source = io::ErrorKind::ConnectionRefused.into();
            TransferError::Session(SessionError::Unreachable { address: "far:1".to_owned(), source })
        };
        assert!(set.record_failed_dial(1, &refused(), start));
        let later = start + Duration::from_secs(9);
        assert_eq!([0, 1].map(|stripe| set.streams_to_dial(stripe, 0, 4, later)), [4, 1]);
        set.remove(&streams[0].0, Some(&broken()), later);
        assert!(!set.record_failed_dial(1, &refused(), later));
        assert_eq!(set.report(later)[1].last_error.as_deref(), Some("connection refused"));
    }

    #[test]
    fn bytes_of_a_stripe_are_those_that_arrived() {
        let (set, start) = (set(), Instant::now());
        let (state, _far) = open(&set, 7, 1, start);
        state.record_sent([(0, 0, 0)].into_iter());
        state.count_bytes(1000);
        state.record_acked(StreamReceived { stream: 7, blocks: 0, bytes: Bytes(400) });
        let bytes = |set: &StripeSet| set.report(start).iter().map(|it| it.bytes.0).collect::<Vec<_>>();
        assert_eq!(bytes(&set), [0, 400]);
        set.sample(start);
        state.record_acked(StreamReceived { stream: 7, blocks: 0, bytes: Bytes(900) });
        set.sample(start + Duration::from_secs(1));
        assert_eq!(set.report(start)[1].rate, BitRate(8 * 500));
        // The rest did not arrive before the stream broke.
        set.remove(&state, Some(&broken()), start);
        assert_eq!(bytes(&set), [0, 900]);
        // At the end of a copy, everything has arrived.
        let (state, _far) = open(&set, 8, 0, start);
        state.record_sent([(0, 1, 1)].into_iter());
        state.count_bytes(300);
        assert_eq!(bytes(&set), [0, 900]);
        assert_eq!(set.finish(start)[0].bytes, Bytes(300));
    }
}
