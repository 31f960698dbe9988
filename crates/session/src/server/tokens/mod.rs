//! Authentication and rights: the server's own ticket, the tokens of `lfn token`, and temporary tokens.
//!
//! The server checks the token file when a client authenticates, and several times a second besides. A new token is
//! therefore valid as soon as `lfn token` has written it, and the sessions of a revoked token end. If the file cannot
//! be read, or other users can read it, only the server's own ticket is accepted.

pub mod file;
mod holder;
pub(crate) mod temporary;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::config::ServerConfig;
use crate::hello::{self, ClearHello, HelloError};
use crate::identity::IdentityError;
use crate::wire::third_party::TokenRequest;
use crate::wire::{Refusal, RefusalCode};
use crate::{Token, TokenHash};
use file::TokenFile;
pub use holder::TokenHolder;
use parking_lot::Mutex;
use temporary::{TemporaryToken, TemporaryTokens};

/// All holders of valid tokens.
#[derive(Debug)]
pub(super) struct TokenSet {
    own: Arc<TokenHolder>,
    /// Clients need no token (`--insecure`).
    accepts_anyone: bool,
    path: Option<PathBuf>,
    loaded: Mutex<LoadedFile>,
    temporary: Arc<TemporaryTokens>,
}

/// The token file as it was last read.
#[derive(Debug, Default)]
struct LoadedFile {
    stamp: Option<FileStamp>,
    holders: Vec<Arc<TokenHolder>>,
    error: Option<String>,
}

/// Inode, size, modification time (s, ns) and mode. They identify a version of the file, because the file is replaced
/// and never written in place.
type FileStamp = (u64, u64, i64, i64, u32);

impl TokenSet {
    /// Reads the token file, if one is configured.
    pub(super) fn new(config: &ServerConfig) -> Result<Self, IdentityError> {
        let token = config.token.unwrap_or(Token::from_bytes([0; 16]));
        let own = Arc::new(TokenHolder {
            name: None,
            rights: config.rights,
            root: config.root.clone(),
            rate: None,
            hash: token.hash(),
            rate_limiter: None,
            expires: config.token_expires,
            delegation: None,
        });
        let path = config.token_file.clone();
        let tokens = TokenSet {
            own,
            accepts_anyone: config.token.is_none(),
            path,
            loaded: Mutex::default(),
            temporary: Arc::default(),
        };
        if let Some(path) = &tokens.path {
            TokenFile::read(path)?;
            tokens.reload(config);
        }
        Ok(tokens)
    }

    /// Reads the file again if it changed. Returns the error in it, if the error is new.
    pub(super) fn reload(&self, config: &ServerConfig) -> Option<String> {
        let path = self.path.as_ref()?;
        let mut loaded = self.loaded.lock();
        let stamp = file_stamp(path);
        if loaded.stamp == stamp {
            return None;
        }
        loaded.stamp = stamp;
        let (file, error) = match TokenFile::read(path) {
            Ok(file) => (file, None),
            Err(error) => (TokenFile::default(), Some(error.to_string())),
        };
        // Unchanged holders keep the rate limiter that their sessions share.
        let previous: HashMap<_, _> =
            std::mem::take(&mut loaded.holders).into_iter().map(|holder| (holder.name.clone(), holder)).collect();
        let holders = file.tokens.iter().map(|(name, record)| {
            let holder = TokenHolder::new(name, record, config);
            let unchanged = previous.get(&holder.name).filter(|old| old.is_unchanged(&holder));
            unchanged.cloned().unwrap_or_else(|| Arc::new(holder))
        });
        loaded.holders = holders.collect();
        loaded.error.clone_from(&error);
        error
    }

    /// Returns the holder of the token that the client sent.
    pub(super) fn authenticate(&self, shown: Option<&Token>) -> Result<Arc<TokenHolder>, Refusal> {
        let shown_hash = shown.map(Token::hash);
        let holder = shown_hash.and_then(|hash| self.find(|holder| holder.hash.is_equal(&hash)));
        if self.accepts_anyone && holder.as_ref().is_none_or(|holder| holder.delegation.is_none()) {
            return Ok(self.own.clone());
        }
        let Some(holder) = holder else {
            if shown.is_none() {
                return Err(Refusal::new(
                    RefusalCode::WrongToken,
                    "this server needs a ticket, and the client sent none",
                )
                .hint("use the ticket that `lfn serve` prints, without --insecure"));
            }
            return Err(Refusal::new(RefusalCode::WrongToken, "this server does not know the ticket's token")
                .hint("use the ticket that `lfn serve` prints now, or create one there with `lfn token add NAME`"));
        };
        holder.check_expiry(SystemTime::now()).map(|()| holder)
    }

    /// Returns the contents and the holder of a clear hello (TCP without TLS).
    pub(super) fn authenticate_clear_hello(
        &self,
        bytes: &[u8; hello::HELLO_BYTES],
    ) -> Result<(ClearHello, Arc<TokenHolder>), Refusal> {
        self.authenticate_hello(|hash| ClearHello::decode(bytes, hash))
    }

    /// Returns the contents and the holder of a datagram hello (UDP).
    pub(super) fn authenticate_datagram_hello(&self, bytes: &[u8]) -> Result<(ClearHello, Arc<TokenHolder>), Refusal> {
        self.authenticate_hello(|hash| ClearHello::decode_datagram(bytes, hash))
    }

    fn authenticate_hello(
        &self,
        decode: impl Fn(&TokenHash) -> Result<ClearHello, HelloError>,
    ) -> Result<(ClearHello, Arc<TokenHolder>), Refusal> {
        let wrong = |error: HelloError| Refusal::new(RefusalCode::WrongToken, error.to_string());
        let (hello, holder) = match decode(&self.own.hash) {
            Ok(hello) => (hello, self.own.clone()),
            Err(error @ HelloError::Mac) => {
                let holder = self.find(|holder| decode(&holder.hash).is_ok()).ok_or_else(|| wrong(error))?;
                (decode(&holder.hash).map_err(wrong)?, holder)
            }
            Err(error) => return Err(wrong(error)),
        };
        holder.check_expiry(SystemTime::now()).map(|()| (hello, holder))
    }

    /// Issues a temporary token: another host may do `request` in the name of `issuer`.
    pub(super) fn issue_temporary(
        &self,
        issuer: &Arc<TokenHolder>,
        request: &TokenRequest,
    ) -> Result<TemporaryToken, Refusal> {
        self.temporary.issue(issuer, request)
    }

    fn find(&self, is_match: impl Fn(&TokenHolder) -> bool) -> Option<Arc<TokenHolder>> {
        if is_match(&self.own) {
            return Some(self.own.clone());
        }
        let given = {
            let loaded = self.loaded.lock();
            loaded.holders.iter().find(|holder| is_match(holder)).cloned()
        };
        given.or_else(|| self.temporary.find(is_match))
    }

    /// Checks whether a running session of the holder may continue. The server's own ticket stays valid until its
    /// sessions end.
    pub(super) fn check_valid(&self, holder: &Arc<TokenHolder>, now: SystemTime) -> Result<(), Refusal> {
        if let Some(delegation) = &holder.delegation {
            return self.temporary.check_valid(holder).and_then(|()| self.check_valid(&delegation.issuer, now));
        }
        let Some(name) = &holder.name else { return Ok(()) };
        let loaded = self.loaded.lock();
        if !loaded.holders.iter().any(|given| Arc::ptr_eq(given, holder)) {
            let text = match &loaded.error {
                None => format!("the token '{name}' was revoked or changed"),
                Some(_) => "the server cannot read its token file".to_owned(),
            };
            return Err(
                Refusal::new(RefusalCode::WrongToken, text).hint("ask the operator of the server for a new ticket")
            );
        }
        holder.check_expiry(now)
    }
}

fn file_stamp(path: &Path) -> Option<FileStamp> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.ino(), facts.size(), facts.mtime(), facts.mtime_nsec(), facts.mode()))
}
