//! Events of the channel for a function of Python.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lfn_couple::ChannelEvent;
use pyo3::prelude::*;
use serde_json::{Value, json};

/// Calls the function for each event, on a thread of its own: the threads of the channel must not wait for Python. The thread
/// ends when every sender is dropped.
pub(crate) fn call_for_each(
    function: Py<PyAny>,
    events: mpsc::Receiver<ChannelEvent>,
) -> std::io::Result<JoinHandle<()>> {
    let call = move |event: &ChannelEvent| {
        let (kind, details) = details(event);
        Python::try_attach(|py| {
            let called = function.call1(py, (kind, event.to_string(), details.to_string()));
            if let Err(error) = called {
                error.write_unraisable(py, Some(function.bind(py)));
            }
        })
    };
    let run = move || {
        for event in events {
            // Python ends, and reads no more events.
            if call(&event).is_none() {
                return;
            }
        }
    };
    thread::Builder::new().name("couple events".into()).spawn(run)
}

/// Returns the name of the event, and its values.
fn details(event: &ChannelEvent) -> (&'static str, Value) {
    let seconds = |duration: &Duration| duration.as_secs_f64();
    match event {
        ChannelEvent::Listening { ticket } => ("listening", json!({ "ticket": ticket })),
        ChannelEvent::Connected { partner, address, rtt, streams } => (
            "connected",
            json!({ "partner": partner, "address": address, "rtt_seconds": seconds(rtt), "streams": streams }),
        ),
        ChannelEvent::Lost { partner, reason, patience } => {
            ("lost", json!({ "partner": partner, "reason": reason, "patience_seconds": seconds(patience) }))
        }
        ChannelEvent::Waiting { partner, variable, step, waited, partner_step, connected, not_put } => (
            "waiting",
            json!({ "partner": partner, "variable": variable, "step": step, "waited_seconds": seconds(waited),
                "partner_step": partner_step, "connected": connected, "not_put": not_put }),
        ),
        ChannelEvent::NotConnected { partner, reason } => {
            ("not_connected", json!({ "partner": partner, "reason": reason }))
        }
        ChannelEvent::CheckpointConfirmed { step } => ("checkpoint_confirmed", json!({ "step": step })),
        ChannelEvent::PartnerResumed { partner, step } => {
            ("partner_resumed", json!({ "partner": partner, "step": step }))
        }
        ChannelEvent::Refused { address, reason } => ("refused", json!({ "address": address, "reason": reason })),
        ChannelEvent::ClockDiffers { partner, offset, partner_is_ahead } => (
            "clock_differs",
            json!({ "partner": partner, "offset_seconds": seconds(offset), "partner_is_ahead": partner_is_ahead }),
        ),
        ChannelEvent::NotANumber { variable, step, count } => {
            ("not_a_number", json!({ "variable": variable, "step": step, "count": count }))
        }
        ChannelEvent::HistoryFull { partner, limit } => {
            ("history_full", json!({ "partner": partner, "limit_bytes": limit }))
        }
        ChannelEvent::PartnerFinished { partner } => ("partner_finished", json!({ "partner": partner })),
    }
}
