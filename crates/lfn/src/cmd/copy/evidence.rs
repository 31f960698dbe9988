//! Evidence of a finished copy.

use std::ffi::OsString;

use clap::{Args as _, Command};
use lfn_api::copy::places::{Direction, without_secrets};
use lfn_api::emulator_env;
use lfn_api::prediction::Predictor;
use lfn_core::evidence::{CopyEvidence, Evidence, HostNames, ProgressSample, TypedArgument};
use lfn_core::wire::measure::TestDirection;
use lfn_net::tester;
use lfn_net::transfer::CopyOutcome;

use super::CopyArgs;
use crate::command_line::quote;
use crate::repeat::typed_flags;

/// Returns the names of the two ends: this host and the server, or the two servers of a third-party copy.
pub(super) fn host_names(direction: &Direction) -> HostNames {
    let typed = |host: &str| without_secrets(host.as_ref());
    match direction {
        Direction::Upload(_, host, _) | Direction::Download(host, ..) => {
            HostNames { near: near_name(), far: typed(host) }
        }
        Direction::ThirdParty { sender, receiver, .. } => HostNames { near: typed(sender), far: typed(receiver) },
    }
}

fn near_name() -> String {
    if emulator_env::is_inside() { "near".into() } else { tester::read_kernel().host }
}

/// Returns the evidence of a copy. `requested` is the number of streams at its start.
pub(super) fn copy_evidence(
    outcome: &CopyOutcome,
    predictor: &Predictor,
    requested: u16,
    near_sends: bool,
    hosts: HostNames,
) -> Evidence {
    let streams = outcome.last_stream_count(requested);
    let copy = CopyEvidence {
        start: ProgressSample::default(),
        end: ProgressSample { at: outcome.elapsed, bytes: outcome.moved(), ..outcome.sample },
        streams,
        predicted: predictor.predict_outcome(outcome, streams, None).map(|predicted| predicted.average_goodput),
        outage: outcome.outage_time,
        standstill: outcome.standstill_time,
    };
    let direction = if near_sends { TestDirection::Forward } else { TestDirection::Reverse };
    Evidence { hosts, path: predictor.path, ..Evidence::of_copy(direction, copy) }
}

/// Returns the arguments that repeat the copy: the places and the flags as typed, without secrets.
pub(super) fn typed_arguments(places: &[OsString]) -> Vec<TypedArgument> {
    let places = places.iter().map(|place| TypedArgument { flag: None, text: quote(without_secrets(place)) });
    places.chain(typed_flags(&CopyArgs::augment_args(Command::new("copy")))).collect()
}
