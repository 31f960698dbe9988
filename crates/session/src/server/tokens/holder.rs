//! A holder of a token: its rights and limits, and the issuer and purpose of a temporary token.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use lfn_base::units::BitRate;

use super::super::config::ServerConfig;
use super::file::TokenRecord;
use crate::limits::rate_limiter::RateLimiter;
use crate::wire::copy::CopyRequest;
use crate::wire::third_party::TokenRequest;
use crate::wire::{Refusal, RefusalCode, Request};
use crate::{Rights, SessionId, TokenHash};

/// A holder of a token, with rights and limits.
#[derive(Debug)]
pub struct TokenHolder {
    /// Name in the logs; none for the server's own ticket.
    pub name: Option<Arc<str>>,
    pub rights: Rights,
    /// Directory that confines the holder's copies.
    pub root: Option<PathBuf>,
    /// Rate limit of all sessions of the holder together.
    pub rate: Option<BitRate>,
    pub(in crate::server) hash: TokenHash,
    pub(in crate::server) rate_limiter: Option<Arc<RateLimiter>>,
    pub(super) expires: Option<SystemTime>,
    pub(super) delegation: Option<Delegation>,
}

/// Issuer and purpose of a temporary token.
#[derive(Debug)]
pub(super) struct Delegation {
    pub(super) issuer: Arc<TokenHolder>,
    pub(super) request: TokenRequest,
    /// The first copy that used the token; other copies are refused.
    pub(super) copy: OnceLock<SessionId>,
}

impl TokenHolder {
    pub(super) fn new(name: &str, record: &TokenRecord, config: &ServerConfig) -> Self {
        TokenHolder {
            name: Some(name.into()),
            rights: record.rights.and(config.rights),
            root: record.root.clone().or_else(|| config.root.clone()),
            rate: record.rate,
            hash: record.hash,
            rate_limiter: record.rate.map(|rate| Arc::new(RateLimiter::new(Some(rate), None))),
            expires: record.expires(),
            delegation: None,
        }
    }

    /// Returns the responsible holder: the issuer of a temporary token, otherwise the holder itself.
    pub(in crate::server) fn principal(&self) -> &TokenHolder {
        self.delegation.as_ref().map_or(self, |delegation| &delegation.issuer)
    }

    /// Checks whether a temporary token is valid for this request. Accepts every request of other tokens.
    pub(in crate::server) fn check_delegation(&self, request: &Request) -> Result<(), Refusal> {
        self.delegation.as_ref().map_or(Ok(()), |delegation| delegation.permits(request))
    }

    /// Returns the request that a temporary token was issued for.
    pub(in crate::server) fn delegated_request(&self) -> Option<&TokenRequest> {
        self.delegation.as_ref().map(Delegation::request)
    }

    /// Returns whether all properties of the token are the same.
    pub(super) fn is_unchanged(&self, other: &TokenHolder) -> bool {
        let facts = |holder: &TokenHolder| {
            (holder.name.clone(), holder.hash, holder.rights, holder.root.clone(), holder.rate, holder.expires)
        };
        facts(self) == facts(other)
    }

    pub(super) fn check_expiry(&self, now: SystemTime) -> Result<(), Refusal> {
        if self.expires.is_some_and(|expires| now >= expires) {
            return Err(Refusal::new(RefusalCode::ExpiredToken, "the ticket has expired")
                .hint("ask the operator of the server for a new ticket"));
        }
        Ok(())
    }
}

impl Delegation {
    /// Returns the request that the token was issued for.
    fn request(&self) -> &TokenRequest {
        &self.request
    }

    /// Checks whether the token was issued for this request.
    fn permits(&self, request: &Request) -> Result<(), Refusal> {
        let forbidden = |text| Err(Refusal::new(RefusalCode::Forbidden, text));
        let Request::Copy(copy @ CopyRequest { copy: Some(id), .. }) = request else {
            return forbidden("this temporary token is valid only for one upload");
        };
        if !self.request.matches(copy) {
            return forbidden("this temporary token is valid only for an upload with other options or to another path");
        }
        if *self.copy.get_or_init(|| id.id) != id.id {
            return forbidden("this temporary token is already in use by another copy");
        }
        Ok(())
    }
}
