//! Whose token opens the door, and what for: the ticket's own token, and those that `lfn token` gave out.
//!
//! The file is looked at whenever somebody shows a token and several times a second besides, so a token is good or bad from
//! the moment `lfn token` has written it, and sessions of one that was revoked end. A file that cannot be read or that others
//! can read lets nobody in but the bearers of the server's own ticket.

pub mod file;
pub(crate) mod lent;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use lfn_core::session::hello::{self, ClearHello, HelloError};
use lfn_core::session::{Rights, Token, TokenHash};
use lfn_core::units::BitRate;
use lfn_core::wire::third::LendRequest;
use lfn_core::wire::{Refusal, RefusalCode, Request};

use super::Config;
use super::throttle::Throttle;
use crate::session::identity::IdentityError;
use file::TokenFile;
use lent::{Lent, Loan, Loans};

/// Whoever shows one token.
#[derive(Debug)]
pub struct Bearer {
    /// What the log calls them; none for the server's own ticket.
    pub name: Option<Arc<str>>,
    /// What they may do here.
    pub rights: Rights,
    /// Where their copies are confined to.
    pub root: Option<PathBuf>,
    /// What all their sessions together are held to.
    pub rate: Option<BitRate>,
    pub(super) hash: TokenHash,
    pub(super) throttle: Option<Arc<Throttle>>,
    expires: Option<SystemTime>,
    lent: Option<Lent>,
}

/// Everybody who may come.
#[derive(Debug)]
pub(super) struct Tokens {
    own: Arc<Bearer>,
    /// Nobody is asked for a token.
    open: bool,
    path: Option<PathBuf>,
    read: Mutex<Read>,
    lent: Arc<Loans>,
}

/// The file as it was read last.
#[derive(Debug, Default)]
struct Read {
    stamp: Option<Stamp>,
    given: Vec<Arc<Bearer>>,
    trouble: Option<String>,
}

/// By which a file is known to be the one that was read; it is replaced, never written to.
type Stamp = (u64, u64, i64, i64, u32);

impl Tokens {
    /// Reads the file, if there is to be one.
    pub(super) fn new(config: &Config) -> Result<Self, IdentityError> {
        let token = config.token.unwrap_or(Token::from_bytes([0; 16]));
        let own = Arc::new(Bearer {
            name: None,
            rights: config.rights,
            root: config.root.clone(),
            rate: None,
            hash: token.hash(),
            throttle: None,
            expires: config.token_expires,
            lent: None,
        });
        let path = config.tokens.clone();
        let tokens = Tokens { own, open: config.token.is_none(), path, read: Mutex::default(), lent: Arc::default() };
        if let Some(path) = &tokens.path {
            TokenFile::read(path)?;
            tokens.look(config);
        }
        Ok(tokens)
    }

    /// Reads the file again if it is another one than before; what is wrong with it, if that is new.
    pub(super) fn look(&self, config: &Config) -> Option<String> {
        let path = self.path.as_ref()?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(path);
        if read.stamp == stamp {
            return None;
        }
        read.stamp = stamp;
        let (given, trouble) = match TokenFile::read(path) {
            Ok(file) => (file, None),
            Err(error) => (TokenFile::default(), Some(error.to_string())),
        };
        // Who was there before keeps what their sessions share.
        let known = std::mem::take(&mut read.given);
        let bearers = given.tokens.iter().map(|(name, kept)| {
            let bearer = Bearer::new(name, kept, config);
            known.iter().find(|old| old.is_as(&bearer)).cloned().unwrap_or_else(|| Arc::new(bearer))
        });
        read.given = bearers.collect();
        read.trouble.clone_from(&trouble);
        trouble
    }

    /// Whose token it is.
    pub(super) fn known(&self, shown: Option<&Token>) -> Result<Arc<Bearer>, Refusal> {
        let bearer = shown.and_then(|token| self.find(|bearer| bearer.hash.is_of(token)));
        if self.open && bearer.as_ref().is_none_or(|bearer| bearer.lent.is_none()) {
            return Ok(self.own.clone());
        }
        let Some(bearer) = bearer else {
            if shown.is_none() {
                return Err(Refusal::new(
                    RefusalCode::WrongToken,
                    "this server wants a ticket's token, and none was shown",
                )
                .hint("leave out --insecure, and take the ticket that `lfn serve` prints there"));
            }
            return Err(Refusal::new(RefusalCode::WrongToken, "the ticket's token is not this server's")
                .hint("take the ticket that `lfn serve` prints now, or one of `lfn token add` there"));
        };
        bearer.still_good(SystemTime::now()).map(|()| bearer)
    }

    /// Whose clear hello it is.
    pub(super) fn clear_hello(&self, bytes: &[u8; hello::LENGTH]) -> Result<(ClearHello, Arc<Bearer>), Refusal> {
        self.hello(|hash| ClearHello::decode(bytes, hash))
    }

    /// Whose hello of datagrams it is.
    pub(super) fn datagram_hello(&self, bytes: &[u8]) -> Result<(ClearHello, Arc<Bearer>), Refusal> {
        self.hello(|hash| ClearHello::decode_datagram(bytes, hash))
    }

    fn hello(
        &self,
        decode: impl Fn(&TokenHash) -> Result<ClearHello, HelloError>,
    ) -> Result<(ClearHello, Arc<Bearer>), Refusal> {
        let wrong = |error: HelloError| Refusal::new(RefusalCode::WrongToken, error.to_string());
        let (hello, bearer) = match decode(&self.own.hash) {
            Ok(hello) => (hello, self.own.clone()),
            Err(error @ HelloError::Mac) => {
                let bearer = self.find(|bearer| decode(&bearer.hash).is_ok()).ok_or_else(|| wrong(error))?;
                (decode(&bearer.hash).map_err(wrong)?, bearer)
            }
            Err(error) => return Err(wrong(error)),
        };
        bearer.still_good(SystemTime::now()).map(|()| (hello, bearer))
    }

    /// Lends a token with which `by` lets somebody else do `request`.
    pub(super) fn lend(&self, by: &Arc<Bearer>, request: &LendRequest) -> Result<Loan, Refusal> {
        self.lent.lend(by, request)
    }

    fn find(&self, is: impl Fn(&Bearer) -> bool) -> Option<Arc<Bearer>> {
        if is(&self.own) {
            return Some(self.own.clone());
        }
        let given = {
            let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            read.given.iter().find(|bearer| is(bearer)).cloned()
        };
        given.or_else(|| self.lent.find(is))
    }

    /// Whether a session of theirs may go on. The server's own ticket is good for as long as its sessions take.
    pub(super) fn stands(&self, bearer: &Arc<Bearer>, now: SystemTime) -> Result<(), Refusal> {
        if let Some(lent) = &bearer.lent {
            return self.lent.has(bearer).and_then(|()| self.stands(&lent.by, now));
        }
        let Some(name) = &bearer.name else { return Ok(()) };
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if !read.given.iter().any(|given| Arc::ptr_eq(given, bearer)) {
            let text = match &read.trouble {
                None => format!("the token '{name}' was revoked or changed"),
                Some(_) => "the server cannot read its tokens".to_owned(),
            };
            return Err(Refusal::new(RefusalCode::WrongToken, text).hint("ask for another ticket"));
        }
        bearer.still_good(now)
    }
}

impl Bearer {
    fn new(name: &str, kept: &file::Kept, config: &Config) -> Self {
        Bearer {
            name: Some(name.into()),
            rights: kept.rights.and(config.rights),
            root: kept.root.clone().or_else(|| config.root.clone()),
            rate: kept.rate,
            hash: kept.hash,
            throttle: kept.rate.map(|rate| Arc::new(Throttle::new(Some(rate), None))),
            expires: kept.expires(),
            lent: None,
        }
    }

    /// Whoever is answerable: who lent the token, if it was lent.
    pub(super) fn principal(&self) -> &Bearer {
        self.lent.as_ref().map_or(self, |lent| &lent.by)
    }

    /// Whether a token that was lent is good for this; of others nothing is said.
    pub(super) fn lent_for(&self, request: &Request) -> Result<(), Refusal> {
        self.lent.as_ref().map_or(Ok(()), |lent| lent.permits(request))
    }

    /// What it was lent for, if it was.
    pub(super) fn loan(&self) -> Option<&LendRequest> {
        self.lent.as_ref().map(Lent::request)
    }

    /// Whether nothing about it has changed.
    fn is_as(&self, other: &Bearer) -> bool {
        let facts = |bearer: &Bearer| {
            (bearer.name.clone(), bearer.hash, bearer.rights, bearer.root.clone(), bearer.rate, bearer.expires)
        };
        facts(self) == facts(other)
    }

    fn still_good(&self, now: SystemTime) -> Result<(), Refusal> {
        if self.expires.is_some_and(|expires| now >= expires) {
            return Err(Refusal::new(RefusalCode::ExpiredToken, "the ticket has expired")
                .hint("ask for the server's new ticket"));
        }
        Ok(())
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.ino(), facts.size(), facts.mtime(), facts.mtime_nsec(), facts.mode()))
}
