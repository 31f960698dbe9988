//! Locks of this folder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// No thread panics while it holds the lock, and the data is consistent after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
