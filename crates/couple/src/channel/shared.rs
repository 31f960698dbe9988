//! State of a channel that the model and the threads of the connection share, under one lock.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_session::transport::Handle;
use parking_lot::{Condvar, Mutex};

use super::error::ChannelError;
use super::event::ChannelEvent;
use super::window::WindowMeter;
use crate::coupling::Coupling;
use crate::fields::Inbox;
use crate::fields::Outbox;
use crate::report::ComponentReport;
use crate::wire::Introduction;

/// Maximum number of steps of the partner whose times are known.
const MAX_STEP_TIMES: usize = 4096;

/// Settings and state of a channel.
pub struct Shared {
    pub component: String,
    pub partner: String,
    pub coupling: Coupling,
    pub instance: u64,
    pub patience: Duration,
    pub resume: bool,
    pub history: u64,
    pub state: Mutex<State>,
    /// Wakes the threads that send: there is something to send, or the connection ends.
    pub work: Condvar,
    /// Wakes the model: a field has arrived, there is room for a field, or the connection has changed.
    pub changed: Condvar,
    pub on_event: Box<dyn Fn(&ChannelEvent) + Send + Sync>,
    pub interrupted: Box<dyn Fn() -> bool + Send + Sync>,
}

/// State of a channel.
pub struct State {
    pub outbox: Outbox,
    pub inbox: Inbox,
    /// First step of this process; none before the first connection.
    pub first_step: Option<u64>,
    /// Step that has begun, with its time.
    pub step: Option<(u64, Instant)>,
    /// Last checkpoint of this component.
    pub checkpoint: Option<u64>,
    /// Figures of this component after its last step, without those of its variables.
    pub finishing: Option<ComponentReport>,
    /// Figures that the partner has received or will receive.
    pub finished: Option<ComponentReport>,
    /// Reason for which this component stops the run.
    pub stop: Option<String>,
    pub partner: PartnerState,
    pub link: LinkState,
    /// Error that ends the run at this end.
    pub failure: Option<ChannelError>,
    pub window: WindowMeter,
}

/// State of the partner as its messages report it.
#[derive(Debug, Default)]
pub struct PartnerState {
    pub instance: Option<u64>,
    pub step: Option<u64>,
    /// Times at which the partner began its last steps, on the clock of this host.
    step_times: VecDeque<(u64, Instant)>,
    pub checkpoint: Option<u64>,
    /// First step of which the partner puts no field.
    pub end: Option<u64>,
    pub finished: Option<ComponentReport>,
}

/// State of the connection to the partner.
#[derive(Default)]
pub struct LinkState {
    /// Number of the connection that is in use.
    pub current: Option<u64>,
    /// The padding of the connection in use has arrived at the partner.
    pub is_padded: bool,
    /// The padding of the partner has arrived.
    pub is_partner_ready: bool,
    /// The connection in use is announced.
    pub is_ready: bool,
    /// Moment at both ends from which the times of steps count: when the models may begin.
    pub epoch: Option<Instant>,
    pub address: Option<SocketAddr>,
    /// The partner on the connection in use is another process than before.
    pub is_partner_restarted: bool,
    /// Number of connections so far.
    pub count: u64,
    /// Time of the loss of the last connection, while there is none.
    pub lost_at: Option<Instant>,
    pub disconnected: Duration,
    /// Reason for which there is no connection.
    pub reason: Option<String>,
    pub rtt: Duration,
    pub streams: u16,
    /// Handles of the connection in use, to end it.
    pub handles: Vec<Arc<dyn Handle>>,
    /// Both ends have finished, and the connection was closed.
    pub is_closed: bool,
}

impl Shared {
    /// Passes an event to the caller. The caller of this function has no lock.
    pub fn emit(&self, event: &ChannelEvent) {
        (self.on_event)(event);
    }

    /// Ends the run at this end with an error. The first error counts.
    pub fn fail(&self, error: ChannelError) {
        let mut state = self.state.lock();
        state.failure.get_or_insert(error);
        self.wake();
    }

    /// Wakes the threads that send, and the model.
    pub fn wake(&self) {
        self.work.notify_all();
        self.changed.notify_all();
    }

    /// Notes the reason for which there is no connection.
    pub fn note_reason(&self, reason: String) {
        self.state.lock().link.reason = Some(reason);
    }

    /// Notes an agreed connection, and returns its number. Its threads may use the fields from now on.
    pub fn connected(
        &self,
        introduction: &Introduction,
        address: SocketAddr,
        handles: Vec<Arc<dyn Handle>>,
        streams: u16,
    ) -> u64 {
        let rtt = handles.iter().map(|handle| handle.min_rtt()).filter(|rtt| !rtt.is_zero()).min().unwrap_or_default();
        let mut state = self.state.lock();
        let State { link, partner, .. } = &mut *state;
        link.count += 1;
        link.current = Some(link.count);
        link.is_padded = false;
        link.is_partner_ready = false;
        link.is_ready = false;
        link.epoch = None;
        link.address = Some(address);
        link.handles = handles;
        link.streams = streams;
        link.rtt = if link.rtt.is_zero() { rtt } else { link.rtt.min(rtt) };
        let is_restarted = partner.instance.is_some_and(|instance| instance != introduction.instance);
        if is_restarted {
            *partner = PartnerState { checkpoint: partner.checkpoint, ..PartnerState::default() };
        }
        link.is_partner_restarted = is_restarted;
        partner.instance = Some(introduction.instance);
        link.count
    }

    /// Announces a connection on which small fields leave without slow start.
    pub fn ready(&self, number: u64) {
        let (address, rtt, streams, resumed_from) = {
            let mut state = self.state.lock();
            let resumed_from = state.partner.checkpoint.unwrap_or(0);
            let link = &mut state.link;
            let Some(address) = link.address.filter(|_| link.current == Some(number)) else { return };
            link.is_ready = true;
            link.reason = None;
            link.disconnected += link.lost_at.take().map_or(Duration::ZERO, |lost| lost.elapsed());
            (address, link.rtt, link.streams, link.is_partner_restarted.then_some(resumed_from))
        };
        let partner = self.partner.clone();
        self.emit(&ChannelEvent::Connected { partner: partner.clone(), address, rtt, streams });
        if let Some(step) = resumed_from {
            self.emit(&ChannelEvent::PartnerResumed { partner, step });
        }
        self.wake();
    }

    /// Notes the end of a connection.
    pub fn disconnected(&self, number: u64, reason: &str) {
        let is_lost = {
            let mut state = self.state.lock();
            let is_over = state.is_over();
            let link = &mut state.link;
            if link.current != Some(number) {
                return;
            }
            link.current = None;
            link.is_ready = false;
            link.handles.clear();
            link.is_closed = is_over;
            link.lost_at.get_or_insert_with(Instant::now);
            link.reason = Some(reason.to_owned());
            !is_over
        };
        if is_lost {
            let (partner, reason) = (self.partner.clone(), reason.to_owned());
            self.emit(&ChannelEvent::Lost { partner, reason, patience: self.patience });
        }
        self.wake();
    }

    /// Reports whether no further connection is necessary.
    pub fn is_over(&self) -> bool {
        self.state.lock().is_over()
    }
}

impl PartnerState {
    /// Notes that the partner has begun a step at this time.
    pub fn begin_step(&mut self, step: u64, time: Option<Instant>) {
        self.step = Some(step);
        if let Some(time) = time {
            self.step_times.push_back((step, time));
            if self.step_times.len() > MAX_STEP_TIMES {
                self.step_times.pop_front();
            }
        }
    }

    /// Returns the latest time at which the partner can have begun this step; none if it is unknown.
    pub fn step_time(&self, step: u64) -> Option<Instant> {
        let place = self.step_times.partition_point(|(begun, _)| *begun < step);
        self.step_times.get(place).map(|(_, time)| *time)
    }
}

impl State {
    /// Reports whether both ends have finished, or one has stopped the run.
    pub fn is_over(&self) -> bool {
        let both = self.finished.is_some() && self.partner.finished.is_some();
        both || self.stop.is_some() || self.failure.is_some()
    }

    /// Ends the connection in use at once.
    pub fn abort_connection(&self) {
        self.link.handles.iter().for_each(|handle| handle.abort());
    }
}
