//! Tokens that bearers had made for somebody else's upload to them: each lives no longer than the session that asked for it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lfn_core::session::{SessionId, Token};
use lfn_core::wire::copy::CopyRequest;
use lfn_core::wire::third::LendRequest;
use lfn_core::wire::{Refusal, RefusalCode, Request};

use super::Bearer;
use crate::session::identity;

/// Most of them at once: a clear stream says no name, and each is tried.
const MOST: usize = 64;

/// Whose place somebody takes, and for what.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) by: Arc<Bearer>,
    request: LendRequest,
    /// The copy it was used for first; no other may follow.
    copy: OnceLock<SessionId>,
}

/// All of a server.
#[derive(Debug, Default)]
pub(super) struct Loans(Mutex<Vec<Arc<Bearer>>>);

/// A token that is good until this is dropped.
#[derive(Debug)]
pub(crate) struct Loan {
    pub(crate) token: Token,
    bearer: Arc<Bearer>,
    all: Arc<Loans>,
}

impl Lent {
    /// What for.
    pub(super) fn request(&self) -> &LendRequest {
        &self.request
    }

    /// Whether this is the one thing that the token is good for.
    pub(super) fn permits(&self, request: &Request) -> Result<(), Refusal> {
        let forbidden = |text| Err(Refusal::new(RefusalCode::Forbidden, text));
        let Request::Copy(copy @ CopyRequest { copy: Some(id), .. }) = request else {
            return forbidden("this token was lent for an upload and is good for nothing else");
        };
        if !self.request.is_for(copy) {
            return forbidden("this token was lent for an upload of another kind or to another place");
        }
        if *self.copy.get_or_init(|| id.id) != id.id {
            return forbidden("this token was lent for one copy, and this is another");
        }
        Ok(())
    }
}

impl Loans {
    /// A token with which `request` may be done as `by` might do it.
    pub(super) fn lend(self: &Arc<Self>, by: &Arc<Bearer>, request: &LendRequest) -> Result<Loan, Refusal> {
        let made = identity::new_token().map_err(|error| Refusal::new(RefusalCode::Other, error.to_string()));
        let token = made?;
        let lent = Lent { by: by.clone(), request: request.clone(), copy: OnceLock::new() };
        let bearer = Arc::new(Bearer {
            name: by.name.clone(),
            rights: by.rights,
            root: by.root.clone(),
            rate: by.rate,
            hash: token.hash(),
            throttle: by.throttle.clone(),
            expires: by.expires,
            lent: Some(lent),
        });
        let mut loans = self.lock();
        if loans.len() >= MOST {
            let text = format!("the server has lent {MOST} tokens, and lends no more at once");
            return Err(Refusal::new(RefusalCode::Full, text).hint("try again when other copies have ended"));
        }
        loans.push(bearer.clone());
        Ok(Loan { token, bearer, all: self.clone() })
    }

    pub(super) fn find(&self, is: impl Fn(&Bearer) -> bool) -> Option<Arc<Bearer>> {
        self.lock().iter().find(|bearer| is(bearer)).cloned()
    }

    /// Whether it was not given back.
    pub(super) fn has(&self, bearer: &Arc<Bearer>) -> Result<(), Refusal> {
        if self.lock().iter().any(|lent| Arc::ptr_eq(lent, bearer)) {
            return Ok(());
        }
        Err(Refusal::new(RefusalCode::WrongToken, "whoever asked for this copy between two far ends is gone")
            .hint("the same command goes on where it stopped"))
    }

    /// No thread panics while it holds the lock, and the list is whole after every statement.
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Bearer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.all.lock().retain(|lent| !Arc::ptr_eq(lent, &self.bearer));
    }
}
