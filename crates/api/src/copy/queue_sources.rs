//! Sources that a queue can copy.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

use lfn_copy::LocalSource;
use lfn_session::wire::copy::entry::final_name;

use super::error::CopyError;
use super::places::Direction;

/// Refuses a copy that is no upload of local files.
pub(super) fn check_direction(direction: &Direction) -> Result<(), CopyError> {
    match direction {
        Direction::Upload(sources, ..) if !direction.is_local() => check_sources(sources),
        _ => Err(CopyError::QueueDirection),
    }
}

/// Refuses generated data, and sources whose entries may have the same names.
fn check_sources(sources: &[LocalSource]) -> Result<(), CopyError> {
    let mut names: BTreeMap<&[u8], String> = BTreeMap::new();
    for source in sources {
        let path = match source {
            LocalSource::File(path) | LocalSource::Entries { directory: path, .. } => path,
            LocalSource::Random(bytes) => return Err(CopyError::QueueGenerated(format!("random:{}", bytes.0))),
            LocalSource::Zero(bytes) => return Err(CopyError::QueueGenerated(format!("zero:{}", bytes.0))),
        };
        let shown = path.display().to_string();
        let name = final_name(path.as_os_str().as_bytes());
        let other = match name {
            Some(name) => names.get(name).or_else(|| names.get(&b""[..])),
            // The contents of a directory can have any name.
            None => names.values().next(),
        };
        if let Some(other) = other {
            return Err(CopyError::QueueSources(other.clone(), shown));
        }
        names.insert(name.unwrap_or_default(), shown);
    }
    Ok(())
}
