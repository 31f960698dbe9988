//! Entries of results of iperf3.

use std::collections::BTreeMap;

use lfn_base::date;
use lfn_base::units::Bytes;
use lfn_results::evidence::{HostNames, Side};
use lfn_results::report::{RunSummary, StoredResult, compare};
use serde::Deserialize;

use super::hosts::{ResultError, ResultHosts, names};
use crate::compare::names as condition;
use crate::entry::{Entry, EntryKind, Outcome};

/// Start of the output of `iperf3 -J`, as far as a log entry needs it. Numbers are floats, as cJSON writes them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Output {
    start: Start,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Start {
    /// Output of `uname -a`: system, host, release.
    system_info: String,
    /// Present in the output of the client only.
    connecting_to: Option<Server>,
    accepted_connection: Option<Server>,
    /// Requested socket buffers, bytes; 0 for those of the kernel.
    sock_bufsize: f64,
    test_start: TestStart,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Server {
    host: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TestStart {
    /// Rate of `-b`, bit/s; 0 without a limit.
    target_bitrate: f64,
}

pub(super) fn entries_of(
    stored: &StoredResult,
    bytes: &[u8],
    hosts: ResultHosts<'_>,
) -> Result<Vec<Entry>, ResultError> {
    // The lines of `--json-stream` have no such object: the names and the buffers are unknown then.
    let start = serde_json::from_slice::<Output>(bytes).unwrap_or_default().start;
    let mut system = start.system_info.split_whitespace().skip(1);
    let own = system.next().unwrap_or_default().to_owned();
    let is_client = start.connecting_to.is_some() || start.accepted_connection.is_none();
    let other = start.connecting_to.or(start.accepted_connection).map(|server| server.host).unwrap_or_default();
    let stored_names = match is_client {
        true => HostNames { near: own, far: other },
        false => HostNames { near: other, far: own },
    };
    let names = names(&stored_names, hosts)?;
    let own_side = if is_client { Side::Near } else { Side::Far };
    let settings = Settings {
        release: system.next().map(str::to_owned),
        own_side,
        buffer: Some(start.sock_bufsize as u64).filter(|&bytes| bytes > 0),
        rate: Some(start.test_start.target_bitrate as u64).filter(|&rate| rate > 0),
    };
    let comparison = compare(&[(String::new(), stored.clone())]);
    let entries = comparison.results.iter().map(|summary| entry(summary, &names, &settings));
    let mut entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
    if entries.is_empty() {
        return Err(ResultError::NoRun);
    }
    entries.iter_mut().for_each(Entry::truncate);
    Ok(entries)
}

/// Settings of a result that its summary does not have.
struct Settings {
    /// Release of the kernel of the host that printed the result.
    release: Option<String>,
    own_side: Side,
    buffer: Option<u64>,
    rate: Option<u64>,
}

fn entry(summary: &RunSummary, names: &HostNames, settings: &Settings) -> Result<Entry, ResultError> {
    let (sender, receiver) = Side::sender_and_receiver(summary.direction);
    let started = summary.started.as_deref().and_then(date::parse);
    let time = started.filter(|time| !time.is_zero()).ok_or(ResultError::NoTime)?;
    let mut entry = Entry::new(EntryKind::Load, names.name(sender), names.name(receiver), time);
    entry.duration = Some(summary.time);
    entry.bytes = Some(Bytes((summary.goodput.as_f64() * summary.time.as_secs_f64() / 8.0) as u64));
    entry.goodput = Some(summary.goodput);
    entry.base_rtt = summary.base_rtt;
    entry.rtt = summary.rtt;
    entry.retransmits = summary.retransmits;
    entry.outcome = Outcome::Unknown;
    let mut conditions: BTreeMap<String, String> = BTreeMap::new();
    let side = if settings.own_side == sender { "from" } else { "to" };
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let all = [
        (condition::TOOL.to_owned(), Some("iperf3".to_owned())),
        (format!("{}.{side}", condition::VERSION), Some(summary.version.clone()).filter(|text| !text.is_empty())),
        (format!("{}.{side}", condition::KERNEL), settings.release.clone()),
        (condition::PROTOCOL.to_owned(), Some(summary.protocol.clone())),
        (condition::STREAMS.to_owned(), number(Some(summary.streams.into()).filter(|&streams: &u64| streams > 0))),
        (condition::RECORD.to_owned(), number(summary.record.map(|record| record.0))),
        (condition::CONGESTION.to_owned(), summary.congestion.clone()),
        (condition::MSS.to_owned(), number(summary.mss.map(u64::from))),
        (condition::MTU.to_owned(), number(summary.mtu.map(u64::from).filter(|&mtu| mtu > 0))),
        (condition::SEND_BUFFER.to_owned(), number(settings.buffer)),
        (condition::RECEIVE_BUFFER.to_owned(), number(settings.buffer)),
        (condition::PACING.to_owned(), number(settings.rate)),
    ];
    conditions.extend(all.into_iter().filter_map(|(name, value)| Some((name, value?))));
    entry.conditions = conditions;
    Ok(entry)
}
