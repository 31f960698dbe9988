//! The link to the hub: sends entries, receives the plan and the access list, and compares the clocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lfn_mesh::sync::{
    AccessList, HubConnection, MAX_BATCH_BYTES, MAX_BATCH_ENTRIES, PlanUpdate, SyncReply, SyncRequest, batch,
};
use lfn_session::SessionError;
use lfn_session::dial::Target;
use lfn_session::wire::RefusalCode;
use lfn_sys::clock;

use super::clock_watch::{ClockState, HostClocks};
use super::event::AgentEvent;
use super::options::AgentStart;
use super::partner_server;
use super::shared::{AgentPlan, POLL_INTERVAL, Shared};
use super::state::{AgentState, parse_plan};
use crate::mesh::MeshError;
use crate::serve::RunningServer;

/// Time between two exchanges with the hub.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two exchanges while new entries wait.
const BUSY_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time between two attempts to reach a hub that is away.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum time for a connection to the hub.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The thread that talks to the hub. It owns the saved state and the server of the agent.
pub(super) struct Link {
    shared: Arc<Shared>,
    state: AgentState,
    options: AgentStart,
    server: Option<RunningServer>,
    /// Reason of the last failed exchange; `None` while the hub answers.
    failure: Option<String>,
    is_first: bool,
    clock_off: bool,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, state: AgentState, options: &AgentStart) -> Self {
        Link { shared, state, options: options.clone(), server: None, failure: None, is_first: true, clock_off: false }
    }

    pub(super) fn run(mut self) {
        // With a saved plan, the server starts also while the hub is away.
        self.apply_saved();
        let mut retry = BUSY_INTERVAL;
        while !self.shared.is_stopping() {
            let seen = self.shared.appended.load(Ordering::Relaxed);
            let wait = match self.exchange_all() {
                Ok(()) => {
                    retry = BUSY_INTERVAL;
                    EXCHANGE_INTERVAL
                }
                Err(error) => {
                    self.report_failure(&error);
                    retry = (retry * 2).min(MAX_RETRY_INTERVAL);
                    retry
                }
            };
            self.check_clock();
            self.wait(wait, seen);
        }
    }

    /// Waits for the next exchange. New entries end the wait early while the hub answers.
    fn wait(&mut self, wait: Duration, seen: u64) {
        let start = Instant::now();
        while !self.shared.is_stopping() && start.elapsed() < wait {
            thread::sleep(POLL_INTERVAL);
            let has_new = self.shared.appended.load(Ordering::Relaxed) != seen;
            if has_new && self.failure.is_none() && start.elapsed() >= BUSY_INTERVAL {
                return;
            }
        }
    }

    /// Opens a session, and exchanges until the hub has every entry.
    fn exchange_all(&mut self) -> Result<(), SessionError> {
        let mut target = Target::new(self.state.hub().clone())?;
        target.connect_timeout = CONNECT_TIMEOUT;
        let mut connection = HubConnection::open(&target)?;
        loop {
            let entries = match self.shared.spool.lock().pending_entries(MAX_BATCH_ENTRIES, MAX_BATCH_BYTES) {
                Ok(entries) => entries,
                Err(error) => {
                    self.shared.event(AgentEvent::NotStored { reason: error.to_string() });
                    Vec::new()
                }
            };
            let before_exchange = self.shared.spool.lock().pending();
            let request = SyncRequest {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                instance: self.state.instance().to_owned(),
                plan: self.state.plan_digest(),
                access: self.state.access_digest(),
                servers: *self.shared.servers.lock(),
                entries: batch(entries),
            };
            let before = HostClocks::now();
            let reply = connection.exchange(&request)?;
            let after = HostClocks::now();
            // The hub may have waited for its disk: only an exchange without entries compares the clocks well.
            self.shared.clock.lock().record(reply.clock, before, after);
            let had_server = self.server.is_some();
            let is_stored = reply.problem.is_none();
            self.shared.refused.store(false, Ordering::Relaxed);
            self.apply(reply);
            let pending = self.shared.spool.lock().pending();
            if self.is_first || self.failure.is_some() {
                self.shared.event(AgentEvent::Connected { pending });
                (self.is_first, self.failure) = (false, None);
            }
            // A new server registers at once.
            let is_registered = had_server || self.server.is_none();
            let is_over = pending == 0 || pending >= before_exchange || !is_stored;
            if is_over && is_registered || self.shared.is_stopping() {
                connection.close();
                return Ok(());
            }
        }
    }

    fn apply(&mut self, reply: SyncReply) {
        for refused in &reply.refused {
            let (number, reason) = (refused.number, refused.reason.clone());
            self.shared.event(AgentEvent::EntryRefused { number, reason });
        }
        if let Some(reason) = reply.problem {
            self.shared.event(AgentEvent::NotStored { reason });
        }
        if let Some(number) = reply.acknowledged {
            let acknowledged = self.shared.spool.lock().acknowledge(number);
            if let Err(error) = acknowledged {
                self.shared.event(AgentEvent::NotAcknowledged { reason: error.to_string() });
            }
        }
        let plan = reply.plan.filter(|update| self.announce(&reply.host, update));
        if let Some(update) = &reply.access {
            *self.shared.access.lock() = Arc::new(update.access.clone());
        }
        let has_access = reply.access.is_some();
        if let Err(error) = self.state.update(&reply.host, plan, reply.access) {
            self.shared.event(AgentEvent::NotKept { reason: error.to_string() });
        }
        self.apply_access(has_access);
    }

    /// Adds a plan of the hub. Returns false if this agent cannot use it: the old plan then ends when the new one is valid, as on
    /// the other agents.
    fn announce(&self, host: &str, update: &PlanUpdate) -> bool {
        let now = clock::since_1970();
        match parse_plan(host, update) {
            Ok(plan) => {
                let (tests, valid_from) = (plan.sites.tests.len(), plan.valid_from);
                self.shared.plans.lock().announce(Arc::new(plan), now);
                let later = (valid_from > now).then_some(valid_from);
                self.shared.event(AgentEvent::PlanReceived { host: host.to_owned(), tests, later });
                true
            }
            Err(reason) => {
                let newest = self.shared.newest_plan();
                if let Some(newest) = newest.filter(|newest| newest.digest != update.digest) {
                    self.shared.plans.lock().announce(Arc::new(newest.without_tests(update)), now);
                    self.shared.event(AgentEvent::PlanRefused { reason });
                }
                false
            }
        }
    }

    fn apply_saved(&mut self) {
        self.apply_access(true);
    }

    /// Writes the tokens of the clients, and starts the server if it does not run yet.
    fn apply_access(&mut self, is_changed: bool) {
        let Some(plan) = self.shared.newest_plan() else { return };
        let access = self.shared.access.lock().clone();
        if access.stamp_key.is_empty() {
            return;
        }
        let served = self.serve(&plan, &access, is_changed);
        if let Err(error) = served {
            self.shared.event(AgentEvent::NotServing { reason: error.to_string() });
        }
    }

    fn serve(&mut self, plan: &AgentPlan, access: &AccessList, is_changed: bool) -> Result<(), MeshError> {
        if is_changed {
            partner_server::write_tokens(self.state.directory(), access)?;
        }
        if self.server.is_some() || plan.sites.host(&plan.host).is_none_or(|host| host.dial_only) {
            return Ok(());
        }
        let (server, servers) = partner_server::start(self.state.directory(), plan, &self.options, &access.stamp_key)?;
        self.shared.event(AgentEvent::Serving { port: servers.port });
        *self.shared.servers.lock() = Some(servers);
        self.server = Some(server);
        Ok(())
    }

    fn report_failure(&mut self, error: &SessionError) {
        let reason = error.to_string();
        let is_refused = matches!(error, SessionError::Refused(refusal)
            if matches!(refusal.code, RefusalCode::WrongToken | RefusalCode::ExpiredToken | RefusalCode::Forbidden));
        if is_refused {
            self.shared.refused.store(true, Ordering::Relaxed);
        }
        if self.failure.as_ref() != Some(&reason) {
            let reason = reason.clone();
            self.shared.event(if is_refused {
                AgentEvent::Refused { reason }
            } else {
                AgentEvent::Disconnected { reason }
            });
        }
        self.failure = Some(reason);
    }

    fn check_clock(&mut self) {
        match self.shared.clock_state() {
            ClockState::Off { by } if !self.clock_off => {
                self.clock_off = true;
                self.shared.event(AgentEvent::ClockOff { by });
            }
            ClockState::Right if self.clock_off => {
                self.clock_off = false;
                self.shared.event(AgentEvent::ClockRight);
            }
            _ => {}
        }
    }
}
