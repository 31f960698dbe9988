//! Agreement of the two sides on a new connection.

use std::sync::Arc;
use std::time::Duration;

use lfn_session::Control;
use lfn_session::SessionError;
use lfn_session::wire::{Refusal, RefusalCode};

use super::connection::printable;
use super::error::ChannelError;
use super::event::ChannelEvent;
use super::shared::{Shared, State};
use crate::coupling::differences;
use crate::fields::Inbox;
use crate::fields::{GoneField, Outbox};
use crate::wire::{Introduction, Position, Ready};

/// Maximum wait for the first messages of the partner.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Difference of the clocks that is not worth a message.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// Version of lfn in the introduction.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Maximum length of a name from the partner in a message.
const MAX_SHOWN: usize = 64;

/// Exchanges the introductions and the positions. `since_1970` is the time of this host. `prepare` runs when the partner is known,
/// before this side reports the fields that it has.
pub fn agree(
    shared: &Arc<Shared>,
    control: &mut Control,
    since_1970: impl Fn() -> Duration,
    prepare: impl FnOnce(&Introduction),
) -> Result<Introduction, ChannelError> {
    let own = introduction(shared, since_1970());
    control.send(&own)?;
    let theirs = parse_introduction(&shared.partner, control.recv(HANDSHAKE_TIMEOUT, "before its introduction")?);
    let compared = theirs.and_then(|theirs| compare(shared, &theirs).map(|()| theirs));
    if let Err(error @ (ChannelError::NothingToResume { .. } | ChannelError::OtherVersion { .. })) = &compared {
        // The other side cannot find out.
        let _ = control.refuse(&refusal(error));
    }
    let theirs = compared?;
    prepare(&theirs);
    report_clock(shared, &theirs, since_1970(), control.handle().min_rtt());
    let position = {
        let mut state = shared.state.lock();
        if state.first_step.is_none() {
            start(shared, &mut state, &theirs);
        }
        let window = state.window.window();
        state.inbox.set_window(window);
        let (first_step, checkpoint) = (state.first_step.unwrap_or(0), state.checkpoint);
        Position { first_step, checkpoint, variables: state.inbox.states(), window }
    };
    control.send(&position)?;
    let theirs_position: Position = control.recv(HANDSHAKE_TIMEOUT, "before its position")?;
    let accepted = apply(shared, &theirs_position);
    if let Err(error) = &accepted {
        // The partner waits for fields that do not exist.
        let _ = control.refuse(&refusal(error));
    }
    accepted?;
    control.send(&Ready {})?;
    let Ready {} = control.recv(HANDSHAKE_TIMEOUT, "before it was ready")?;
    Ok(theirs)
}

/// Returns the refusal that the partner receives for an error.
pub fn refusal(error: &ChannelError) -> Refusal {
    let refusal = Refusal::new(RefusalCode::BadMessage, error.to_string());
    match error.hint() {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    }
}

fn introduction(shared: &Shared, time: Duration) -> Introduction {
    let (has_begun, partner_checkpoint) = {
        let state = shared.state.lock();
        (state.first_step.is_some(), state.partner.checkpoint)
    };
    Introduction {
        version: VERSION.to_owned(),
        component: shared.component.clone(),
        coupling: shared.coupling.clone(),
        instance: shared.instance,
        time,
        has_begun,
        partner_checkpoint,
    }
}

/// Reads the introduction of the partner. One that this version cannot read is an error that names both versions.
pub(super) fn parse_introduction(partner: &str, message: serde_json::Value) -> Result<Introduction, ChannelError> {
    let version = message.get("version").and_then(|version| version.as_str()).map(shown);
    serde_json::from_value(message).map_err(|error| match version {
        Some(partner_version) if partner_version != VERSION => {
            ChannelError::OtherVersion { partner: partner.to_owned(), partner_version, own_version: VERSION }
        }
        _ => ChannelError::Protocol { partner: partner.to_owned(), problem: shown(&error.to_string()) },
    })
}

/// Returns a name from the partner for a message.
fn shown(text: &str) -> String {
    printable(text, MAX_SHOWN)
}

/// Compares the partner's file with the own one.
fn compare(shared: &Shared, theirs: &Introduction) -> Result<(), ChannelError> {
    let differences = differences(&shared.coupling, &theirs.coupling);
    if !differences.is_empty() {
        let (own, partner) = (shared.component.clone(), shown(&theirs.component));
        return Err(ChannelError::FilesDiffer { own, partner, differences });
    }
    if theirs.component == shared.component {
        return Err(ChannelError::SameComponent { component: shared.component.clone() });
    }
    if theirs.component != shared.partner {
        let problem = format!("it runs the component {}", shown(&theirs.component));
        return Err(ChannelError::Protocol { partner: shared.partner.clone(), problem });
    }
    let state = shared.state.lock();
    if shared.resume && state.first_step.is_none() && !theirs.has_begun {
        let (component, partner) = (shared.component.clone(), shared.partner.clone());
        return Err(ChannelError::NothingToResume { component, partner });
    }
    let is_other_process = state.partner.instance.is_some_and(|instance| instance != theirs.instance);
    if is_other_process && state.link.current.is_some() {
        let message = format!("another process of {} is connected", shared.partner);
        return Err(SessionError::Refused(Refusal::new(RefusalCode::Full, message)).into());
    }
    Ok(())
}

/// Begins the run of this process: from the start, or from the last checkpoint.
fn start(shared: &Shared, state: &mut State, theirs: &Introduction) {
    let checkpoint = theirs.partner_checkpoint.filter(|_| shared.resume).unwrap_or(0);
    let first = checkpoint.min(shared.coupling.steps - 1);
    state.first_step = Some(first);
    state.checkpoint = (first > 0).then_some(first);
    state.confirmed = state.checkpoint;
    state.outbox = Outbox::new(&shared.coupling, &shared.component, first, shared.history);
    state.inbox = Inbox::new(&shared.coupling, &shared.component, first);
}

/// Prepares the fields that the partner does not have.
fn apply(shared: &Shared, position: &Position) -> Result<(), ChannelError> {
    let known = position.variables.iter().filter(|(name, _)| shared.coupling.variables.contains_key(*name));
    let states: Vec<_> = known.map(|(name, state)| (name.clone(), *state)).collect();
    let mut state = shared.state.lock();
    state.outbox.set_window(position.window);
    if let Some(checkpoint) = position.checkpoint {
        state.partner.announce(checkpoint);
        state.accept_checkpoints();
    }
    state.outbox.rewind(&states).map_err(|GoneField { variable, step }| ChannelError::HistoryGone {
        partner: shared.component.clone(),
        component: shared.partner.clone(),
        variable,
        step,
        first_step: position.first_step,
        checkpoints: shared.coupling.components.get(&shared.partner).is_some_and(|component| component.checkpoints),
    })
}

/// Reports clocks that differ by more than the RTT explains. The channel itself compares no clocks.
fn report_clock(shared: &Shared, theirs: &Introduction, now: Duration, rtt: Duration) {
    // The message left about half an RTT ago.
    let expected = now.saturating_sub(rtt / 2);
    let offset = expected.abs_diff(theirs.time);
    if offset > CLOCK_TOLERANCE + 2 * rtt {
        let partner = shared.partner.clone();
        let partner_is_ahead = theirs.time > expected;
        shared.emit(&ChannelEvent::ClockDiffers { partner, offset, partner_is_ahead });
    }
}
