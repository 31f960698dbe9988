//! Evidence of a finished copy.

use lfn_copy::CopyOutcome;
use lfn_measure::tester;
use lfn_results::evidence::{CopyEvidence, Evidence, HostNames, ProgressSample, TypedArgument};
use lfn_results::measure::TestDirection;

use super::places::{Direction, without_secrets};
use super::prepare::PreparedCopy;
use crate::command_line::quote;
use crate::emulator_env;

/// Returns the evidence of a copy.
pub(super) fn copy_evidence(prepared: &PreparedCopy, outcome: &CopyOutcome) -> Evidence {
    let streams = outcome.last_stream_count(prepared.options.streams);
    // A rank waits for the others, and sends what the server assigns.
    let predictor = Some(&prepared.predictor).filter(|_| prepared.options.rank.is_none() && prepared.queue.is_none());
    let predicted = predictor.and_then(|predictor| predictor.predict_outcome(outcome, streams, None));
    let copy = CopyEvidence {
        start: ProgressSample::default(),
        end: ProgressSample { at: outcome.elapsed, bytes: outcome.moved(), ..outcome.sample },
        streams,
        predicted: predicted.map(|predicted| predicted.average_goodput),
        disconnected: outcome.outage_time,
        stalled: outcome.standstill_time,
    };
    let direction = if prepared.near_sends() { TestDirection::Forward } else { TestDirection::Reverse };
    let places = prepared.places.iter();
    let places = places.map(|place| TypedArgument { flag: None, text: quote(without_secrets(place)) });
    Evidence {
        hosts: host_names(&prepared.direction),
        path: prepared.predictor.path,
        arguments: places.chain(prepared.typed_flags.iter().cloned()).collect(),
        ..Evidence::of_copy(direction, copy, &outcome.samples)
    }
}

/// Returns the names of the two ends: this host and the server, or the two servers of a third-party copy.
fn host_names(direction: &Direction) -> HostNames {
    let typed = |host: &str| host_name(&without_secrets(host.as_ref()));
    match direction {
        Direction::Upload(_, host, _) | Direction::Download(host, ..) => {
            HostNames { near: near_name(), far: typed(host) }
        }
        Direction::ThirdParty { sender, receiver, .. } => HostNames { near: typed(sender), far: typed(receiver) },
    }
}

/// Returns the host of a ticket without its secrets, or the name as the user typed it.
fn host_name(typed: &str) -> String {
    let Some(address) = typed.strip_prefix("lfn://") else { return typed.to_owned() };
    address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned()
}

fn near_name() -> String {
    if emulator_env::is_inside() { "near".into() } else { tester::read_kernel().host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_gives_the_name_of_its_host() {
        let names = ["lfn://127.0.0.1:34153", "lfn://[::1]:7700", "far", "@field"].map(host_name);
        assert_eq!(names, ["127.0.0.1", "[::1]", "far", "@field"]);
    }
}
