//! What each copy of a guest has written, for the session that follows a lost one: it is theirs to know of, and nothing
//! else is.
//!
//! Of others a server asks the client since when it writes, and looks at times. A guest could so learn of other people's
//! files; so the server itself remembers what it wrote for a copy, by inode and time of change, as long as it runs and in
//! bounded room. What it has forgotten is a name that is taken, as before.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use rustix::fs::Stat;

/// Most files that are remembered of one copy.
const MOST_FILES: usize = 1 << 18;

/// Most copies.
const MOST_COPIES: usize = 32;

/// How long a copy without a session is remembered; clients seek another connection for ten minutes unless told otherwise.
const KEPT: Duration = Duration::from_secs(3600);

/// What one copy has written.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<HashSet<u64>>);

impl Written {
    /// Notes that this is the copy's own; of too many the later ones are forgotten.
    pub(crate) fn note(&self, stat: &Stat) {
        let mut files = lock(&self.0);
        if files.len() < MOST_FILES {
            files.insert(mark(stat));
        }
    }

    /// Whether it is, and was not changed since.
    pub(crate) fn has(&self, stat: &Stat) -> bool {
        lock(&self.0).contains(&mark(stat))
    }
}

/// A file as it is now: whatever is done to it changes the time.
fn mark(stat: &Stat) -> u64 {
    let mut hash = blake3::Hasher::new();
    hash.update(&stat.st_dev.to_le_bytes()).update(&stat.st_ino.to_le_bytes());
    hash.update(&stat.st_ctime.to_le_bytes()).update(&stat.st_ctime_nsec.to_le_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// Of all copies of guests; a copy is known by its id and its token.
#[derive(Debug, Default)]
pub(super) struct AllWritten(Mutex<HashMap<SessionId, (Arc<Written>, Instant)>>);

impl AllWritten {
    /// What this copy has written so far.
    pub(super) fn of(&self, copy: SessionId) -> Arc<Written> {
        let mut all = lock(&self.0);
        let now = Instant::now();
        all.retain(|_, (written, since)| Arc::strong_count(written) > 1 || now.duration_since(*since) < KEPT);
        if !all.contains_key(&copy) && all.len() >= MOST_COPIES {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_kept_apart_and_not_for_ever() {
        let file = tempfile::tempfile().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let all = AllWritten::default();
        let id = |n: u8| SessionId([n; 16]);
        all.of(id(1)).note(&stat);
        assert!(all.of(id(1)).has(&stat) && !all.of(id(2)).has(&stat));
        let mut other = stat;
        other.st_ctime += 1;
        assert!(!all.of(id(1)).has(&other));
        (3..3 + MOST_COPIES as u8).for_each(|n| drop(all.of(id(n))));
        assert!(!all.of(id(1)).has(&stat));
        assert!(lock(&all.0).len() <= MOST_COPIES);
    }
}
