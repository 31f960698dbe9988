//! Events of a server as events of `tracing`, which the subscriber of the program prints.
//!
//! The fields are those of `doc/schema/lfn.serve.log.1.schema.json`, in the same order. Times are exact to the
//! millisecond. A field without a value is absent. `doc/reference/serve.md` describes the printed lines.

use std::time::Duration;

use lfn_session::server::ServerEvent;
use lfn_session::server::event::RefusedReason;
use lfn_session::wire::RefusalCode;
use tracing::{error, info, warn};

/// Target of the events of a server.
pub const LOG_TARGET: &str = "lfn::server";

/// Emits an event with the client and the purpose of a session.
macro_rules! session_event {
    ($level:ident, $event:literal, $session:expr, $($fields:tt)*) => {
        $level!(
            target: LOG_TARGET,
            event = $event,
            client = %$session.client,
            session = $session.session.map(tracing::field::display),
            token = $session.token.as_deref(),
            verb = $session.verb,
            $($fields)*
        )
    };
}

/// Emits an event with a session and the resources that its client requests.
macro_rules! request_event {
    ($level:ident, $event:literal, $session:expr, $($fields:tt)*) => {
        session_event!(
            $level, $event, $session,
            requested_streams = $session.requested.streams,
            requested_seconds = $session.requested.time.map(seconds),
            requested_bytes = $session.requested.bytes.map(|bytes| bytes.0),
            requested_bits_per_second = $session.requested.rate.map(|rate| rate.0),
            $($fields)*
        )
    };
}

/// Emits an event of a server with its figures, for the log.
pub fn log_event(event: &ServerEvent<'_>) {
    match event {
        ServerEvent::Queued(info, position) => request_event!(
            info,
            "queued",
            info,
            ahead = position.ahead,
            // NaN is null in JSON: the wait is unknown.
            expected_wait_seconds = position.expected_wait().map_or(f64::NAN, seconds),
        ),
        ServerEvent::LeftQueue(info, waited) => {
            session_event!(info, "left_queue", info, waited_seconds = seconds(*waited));
        }
        ServerEvent::Opened(info, granted, waited) => request_event!(
            info,
            "opened",
            info,
            waited_seconds = seconds(*waited),
            granted_streams = granted.streams,
            granted_seconds = granted.time.map(seconds),
            granted_bytes = granted.bytes.map(|bytes| bytes.0),
            granted_bits_per_second = granted.rate.map(|rate| rate.0),
        ),
        ServerEvent::Ended { info, bytes, time, error: None, .. } => {
            session_event!(info, "ended", info, bytes = bytes.0, seconds = seconds(*time));
        }
        ServerEvent::Ended { info, bytes, time, error: Some(cause), .. } => {
            session_event!(warn, "ended", info, bytes = bytes.0, seconds = seconds(*time), error = %cause);
        }
        ServerEvent::Denied(info, refusal) => {
            request_event!(warn, "denied", info, code = name_of(refusal.code), error = refusal.message);
        }
        // A port scan or a health check. No client was refused.
        ServerEvent::Refused(client, reason @ RefusedReason::Gone, cause) => {
            info!(target: LOG_TARGET, event = "refused", %client, reason = reason.name(), error = *cause);
        }
        ServerEvent::Refused(client, reason, cause) => {
            warn!(target: LOG_TARGET, event = "refused", %client, reason = reason.name(), error = *cause);
        }
        ServerEvent::AcceptFailed(cause) => error!(target: LOG_TARGET, event = "accept_failed", error = %cause),
        ServerEvent::Stopping { running, drain } => {
            info!(target: LOG_TARGET, event = "stopping", running = *running, drain_seconds = seconds(*drain));
        }
        ServerEvent::FileError(cause) => error!(target: LOG_TARGET, event = "file_error", error = *cause),
        ServerEvent::Sandboxed(by) => info!(target: LOG_TARGET, event = "sandboxed", by = *by),
        ServerEvent::Terminated(sessions) => warn!(target: LOG_TARGET, event = "terminated", sessions = *sessions),
    }
}

/// Returns the name of a code on the wire.
fn name_of(code: RefusalCode) -> Option<String> {
    serde_json::to_value(code).ok()?.as_str().map(str::to_owned)
}

/// Returns seconds, cut to milliseconds, which suffice for a log.
fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1e3
}
