//! Temporary tokens for copies between two servers: a holder of a token lets another host upload in its name. A
//! temporary token is valid as long as the session that requested it.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::holder::{Delegation, TokenHolder};
use crate::Token;
use crate::identity;
use crate::wire::third_party::TokenRequest;
use crate::wire::{Refusal, RefusalCode};

/// Maximum temporary tokens at once. A clear hello carries no name, so the server tries each token.
const MAX_TEMPORARY_TOKENS: usize = 64;

/// All temporary tokens of a server.
#[derive(Debug, Default)]
pub(super) struct TemporaryTokens(Mutex<Vec<Arc<TokenHolder>>>);

/// A temporary token, revoked when this value is dropped.
#[derive(Debug)]
pub struct TemporaryToken {
    pub token: Token,
    holder: Arc<TokenHolder>,
    all: Arc<TemporaryTokens>,
}

impl TemporaryTokens {
    /// Issues a token for `request`, with the rights of `issuer`.
    pub(super) fn issue(
        self: &Arc<Self>,
        issuer: &Arc<TokenHolder>,
        request: &TokenRequest,
    ) -> Result<TemporaryToken, Refusal> {
        let new_token = identity::new_token().map_err(|error| Refusal::new(RefusalCode::Other, error.to_string()));
        let token = new_token?;
        let delegation = Delegation { issuer: issuer.clone(), request: request.clone(), copy: OnceLock::new() };
        let holder = Arc::new(TokenHolder {
            name: issuer.name.clone(),
            rights: issuer.rights,
            root: issuer.root.clone(),
            rate: issuer.rate,
            hash: token.hash(),
            rate_limiter: issuer.rate_limiter.clone(),
            expires: issuer.expires,
            delegation: Some(delegation),
        });
        let mut tokens = self.0.lock();
        if tokens.len() >= MAX_TEMPORARY_TOKENS {
            let text = format!("the server has issued {MAX_TEMPORARY_TOKENS} temporary tokens, the maximum");
            return Err(Refusal::new(RefusalCode::Full, text).hint("try again when other copies have ended"));
        }
        tokens.push(holder.clone());
        Ok(TemporaryToken { token, holder, all: self.clone() })
    }

    pub(super) fn find(&self, is: impl Fn(&TokenHolder) -> bool) -> Option<Arc<TokenHolder>> {
        self.0.lock().iter().find(|holder| is(holder)).cloned()
    }

    /// Checks whether the token was revoked.
    pub(super) fn check_valid(&self, holder: &Arc<TokenHolder>) -> Result<(), Refusal> {
        if self.0.lock().iter().any(|token| Arc::ptr_eq(token, holder)) {
            return Ok(());
        }
        Err(Refusal::new(
            RefusalCode::WrongToken,
            "the client that started this copy between two servers has disconnected",
        )
        .hint("run the same command again: it resumes"))
    }
}

impl Drop for TemporaryToken {
    fn drop(&mut self) {
        self.all.0.lock().retain(|token| !Arc::ptr_eq(token, &self.holder));
    }
}
