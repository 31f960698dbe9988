//! A copy whose entries come from a queue that many movers share.
//!
//! The first mover lists the sources and writes the manifest ([`listing`]). Each mover then takes one part after the
//! other, copies it with an ordinary upload, and records it ([`mover`]). All copies of a part have the same copy
//! id, so the server ends the session of a mover that lost its lease before the next mover writes the same files.

mod listing;
mod mover;
mod part_copy;
mod sum;

use std::collections::BTreeMap;

use lfn_session::wire::copy::RemoteDestination;
use serde::Serialize;

use super::places::{Direction, without_secrets};
use super::prepare::PreparedCopy;

pub(super) use mover::copy_from_queue;

/// Returns the settings in which all movers must agree, as names with values.
fn copy_settings(prepared: &PreparedCopy) -> BTreeMap<String, String> {
    let options = &prepared.options;
    let mut places: Vec<_> = prepared.places.iter().map(|place| without_secrets(place)).collect();
    let destination = places.pop().unwrap_or_default();
    let Direction::Upload(_, _, to) = &prepared.direction else { return BTreeMap::new() };
    let overwrite = match to {
        RemoteDestination::File { allowed, .. } => {
            [(allowed.force, "force"), (allowed.update, "update"), (allowed.checksum, "checksum")]
        }
        RemoteDestination::Null => [(false, ""); 3],
    };
    let selection = &options.selection;
    let preserve = selection.preserve;
    let preserved = [
        (preserve.links, "links"),
        (preserve.modes, "perms"),
        (preserve.owners, "owners"),
        (preserve.xattrs, "xattrs"),
        (preserve.acls, "acls"),
        (preserve.sparse, "sparse"),
    ];
    let filters = if selection.rules.is_empty() { "none".to_owned() } else { digest(&selection.rules) };
    let names = selection.names.as_ref().map_or("none".to_owned(), digest);
    [
        ("source", places.join(" ")),
        ("destination", destination),
        ("verification", options.transfer_options.verify.to_string()),
        ("fsync", options.transfer_options.fsync.to_string()),
        ("rule for existing files", words(&overwrite)),
        ("set of preserved attributes", words(&preserved)),
        ("set of filters", filters),
        ("list of --files-from", names),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns the words of the settings that are on.
fn words(settings: &[(bool, &str)]) -> String {
    let on: Vec<_> = settings.iter().filter(|(is_on, _)| *is_on).map(|(_, word)| *word).collect();
    if on.is_empty() { "none".to_owned() } else { on.join(", ") }
}

/// Returns the first digits of a digest, to compare long settings.
fn digest(value: &impl Serialize) -> String {
    // These settings have only strings and numbers.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    blake3::hash(&bytes).to_hex().chars().take(16).collect()
}
