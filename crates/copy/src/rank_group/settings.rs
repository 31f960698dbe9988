//! Settings that are the same for all ranks of a group.

use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::server::metrics::RankCounters;
use lfn_session::wire::copy::ranks::RankRequest;
use serde::Serialize;
use serde_json::{Map, Value};

use super::error::RankError;
use super::event::{Applicant, CommonOptions};

/// Settings of a group, from the request of its first rank.
#[derive(Clone, Debug)]
pub(super) struct GroupSettings {
    pub(super) request: RankRequest,
    pub(super) block: Bytes,
    pub(super) options: CommonOptions,
    /// Counters of the server.
    pub(super) counters: Arc<RankCounters>,
}

impl GroupSettings {
    /// Checks that an applicant has the settings of this group.
    pub(super) fn check<O>(&self, applicant: &Applicant<O>) -> Result<(), RankError> {
        let GroupSettings { request: known, block, options, .. } = self;
        let RankRequest { rank, ranks, job, offset, assignment, .. } = &applicant.request;
        let rank = *rank;
        if *ranks != known.ranks {
            return Err(RankError::OtherCount { rank, ranks: *ranks, known: known.ranks });
        }
        if *job != known.job {
            return Err(RankError::OtherJob { rank, job: job.clone(), known: known.job.clone() });
        }
        let other = |what: &str, own, known| Err(RankError::OtherOption { rank, what: what.to_owned(), own, known });
        if applicant.block != *block {
            return other("--block-size", applicant.block.to_string(), block.to_string());
        }
        if *assignment != known.assignment {
            return other("--assign", word(assignment), word(&known.assignment));
        }
        let difference = first_difference(&applicant.options.transfer, &options.transfer)
            .or_else(|| first_difference(&applicant.options.job, &options.job));
        if let Some(OptionDifference { name, own, known }) = difference {
            return Err(RankError::OtherOption { rank, what: name, own, known });
        }
        if offset.is_some() != known.offset.is_some() {
            let show = |offset: &Option<Bytes>| if offset.is_some() { "an --offset" } else { "no --offset" };
            return Err(RankError::MixedPieces {
                rank,
                own: show(offset),
                other: known.rank,
                known: show(&known.offset),
            });
        }
        Ok(())
    }
}

/// A setting in which two requests differ.
#[derive(Debug, PartialEq, Eq)]
struct OptionDifference {
    /// Name of the setting in the protocol.
    name: String,
    own: String,
    known: String,
}

/// Returns the first setting in which two requests differ, by its name in the protocol.
fn first_difference(own: &impl Serialize, known: &impl Serialize) -> Option<OptionDifference> {
    let value = |settings: Result<Value, _>| settings.unwrap_or(Value::Null);
    difference_of("", &value(serde_json::to_value(own)), &value(serde_json::to_value(known)))
}

fn difference_of(name: &str, own: &Value, known: &Value) -> Option<OptionDifference> {
    let (Value::Object(own_fields), Value::Object(known_fields)) = (own, known) else {
        let is_different = own != known;
        return is_different.then(|| OptionDifference { name: name.to_owned(), own: word(own), known: word(known) });
    };
    let names = own_fields.keys().chain(known_fields.keys().filter(|name| !own_fields.contains_key(*name)));
    let field = |fields: &Map<String, Value>, name: &String| fields.get(name).cloned().unwrap_or(Value::Null);
    names
        .into_iter()
        .find_map(|name| difference_of(&name.replace('_', "-"), &field(own_fields, name), &field(known_fields, name)))
}

/// Maximum length of a value in an error.
const MAX_SHOWN: usize = 64;

/// Returns a value as the command line shows it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value).unwrap_or(Value::Null) {
        Value::Null => "none".to_owned(),
        Value::String(word) => word.replace('_', "-").chars().take(MAX_SHOWN).collect(),
        other => other.to_string().chars().take(MAX_SHOWN).collect(),
    }
}

#[cfg(test)]
mod tests {
    use lfn_session::wire::copy::options::{FsyncPolicy, TransferOptions, Verify};
    use lfn_session::wire::copy::ranks::BlockAssignment;

    use super::*;

    #[test]
    fn first_other_option_is_named_with_both_values() {
        let known = TransferOptions::default();
        assert_eq!(first_difference(&known, &known), None);
        let own = TransferOptions { fsync: FsyncPolicy::End, ..known.clone() };
        let difference = first_difference(&own, &known).unwrap();
        assert_eq!((difference.name.as_str(), difference.own.as_str()), ("fsync", "end"));
        let own = TransferOptions { verify: Verify::Xxh3, ..known.clone() };
        assert_eq!(first_difference(&own, &known).unwrap().own, "xxh3");
        assert_eq!(word(&BlockAssignment::OnDemand), "on-demand");
    }
}
