//! Files that each copy of a write-only client has written, for a session that resumes the copy.
//!
//! For other clients the server compares modification times with the start of the copy. A write-only client could learn
//! about other users' files that way. So the server itself remembers the files that it wrote for each copy, by inode
//! and change time. The memory is limited and ends with the process. A forgotten file counts as an existing file of
//! another user.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::SessionId;
use crate::wire::copy::entry::Modified;

/// Maximum files that are remembered of one copy.
const MAX_FILES: usize = 1 << 18;

/// Maximum copies that are remembered.
const MAX_COPIES: usize = 32;

/// Time that a copy without a session is remembered. Clients try to reconnect for ten minutes by default.
const RETENTION: Duration = Duration::from_secs(3600);

/// Identity of an object in a storage: device and inode number, or an equivalent.
type ObjectId = (u64, u64);

/// Files that one copy has written.
#[derive(Debug, Default)]
pub struct WrittenFiles(Mutex<HashSet<u64>>);

impl WrittenFiles {
    /// Records an object as written by this copy, by its identity and its change time. Objects over the maximum are not
    /// recorded.
    pub fn add(&self, id: ObjectId, changed: Modified) {
        let mut files = self.0.lock();
        if files.len() < MAX_FILES {
            files.insert(object_hash(id, changed));
        }
    }

    /// Returns whether this copy wrote the object and the object is unchanged.
    pub fn contains(&self, id: ObjectId, changed: Modified) -> bool {
        self.0.lock().contains(&object_hash(id, changed))
    }
}

/// Returns a hash of identity and change time. Every change of the object changes the hash.
fn object_hash(id: ObjectId, changed: Modified) -> u64 {
    let mut hash = blake3::Hasher::new();
    hash.update(&id.0.to_le_bytes()).update(&id.1.to_le_bytes());
    hash.update(&changed.seconds().to_le_bytes()).update(&changed.nanoseconds().to_le_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// Written files of all copies. The key derives from the token and the copy's id.
#[derive(Debug, Default)]
pub(crate) struct WrittenFilesByCopy(Mutex<HashMap<SessionId, (Arc<WrittenFiles>, Instant)>>);

impl WrittenFilesByCopy {
    /// Returns the files that this copy has written so far.
    pub(crate) fn of(&self, copy: SessionId) -> Arc<WrittenFiles> {
        let mut all = self.0.lock();
        let now = Instant::now();
        all.retain(|_, (written, since)| Arc::strong_count(written) > 1 || now.duration_since(*since) < RETENTION);
        if !all.contains_key(&copy) && all.len() >= MAX_COPIES {
            let oldest = all.iter().min_by_key(|(_, (_, since))| *since).map(|(copy, _)| *copy);
            if let Some(oldest) = oldest {
                all.remove(&oldest);
            }
        }
        let (written, since) = all.entry(copy).or_insert_with(|| (Arc::default(), now));
        *since = now;
        written.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_separate_and_expire() {
        let (object, changed) = ((1, 2), Modified::new(3, 4).unwrap());
        let all = WrittenFilesByCopy::default();
        let id = |n: u8| SessionId([n; 16]);
        all.of(id(1)).add(object, changed);
        assert!(all.of(id(1)).contains(object, changed) && !all.of(id(2)).contains(object, changed));
        assert!(!all.of(id(1)).contains(object, Modified::new(4, 4).unwrap()));
        (3..3 + MAX_COPIES as u8).for_each(|n| drop(all.of(id(n))));
        assert!(!all.of(id(1)).contains(object, changed));
        assert!(all.0.lock().len() <= MAX_COPIES);
    }
}
