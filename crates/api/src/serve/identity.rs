//! Key and token of a server, saved in the state directory of the user or created for one run.

use std::path::PathBuf;

use etcetera::BaseStrategy;
use lfn_session::Token;
use lfn_session::identity::{self, IdentityError, ServerIdentity};
use lfn_session::server::tokens;
use lfn_sys::clock;
use serde::{Deserialize, Serialize};

use super::error::ServeStartError;
use super::options::{KeyStorage, ServeOptions};

/// Saved token of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedToken {
    pub token: Token,
    /// Expiry, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// Loads the saved key and token, or creates new ones for this run.
pub(super) fn identity_and_token(options: &ServeOptions) -> Result<(ServerIdentity, SavedToken), ServeStartError> {
    let expires = options.ticket_lifetime.map(|life| clock::since_1970().as_secs() + life.as_secs().max(1));
    let KeyStorage::Saved { new_token } = options.key else {
        return Ok((ServerIdentity::ephemeral()?, SavedToken { token: identity::new_token()?, expires }));
    };
    let state = state_of(options)?;
    let path = state.join("token.toml");
    let saved_token: Option<SavedToken> = match identity::read_secret(&path)? {
        Some(text) => Some(toml::from_str(&text).map_err(|_| ServeStartError::DamagedToken(path.clone()))?),
        None => None,
    };
    // A saved token without an expiry time is not used if a lifetime is given.
    let is_usable = |saved: &SavedToken| match saved.expires {
        Some(end) => end > clock::since_1970().as_secs(),
        None => expires.is_none(),
    };
    let token = match saved_token {
        Some(saved) if !new_token && is_usable(&saved) => saved,
        _ => {
            let saved = SavedToken { token: identity::new_token()?, expires };
            let damaged = |_| IdentityError::Damaged { path: path.clone(), kind: "token" };
            identity::write_secret(&path, &toml::to_string(&saved).map_err(damaged)?)?;
            saved
        }
    };
    Ok((ServerIdentity::load_or_create(&state)?, token))
}

/// Returns the path of the file of tokens.
pub fn token_file() -> Result<PathBuf, ServeStartError> {
    Ok(state_directory()?.join(tokens::file::FILE_NAME))
}

/// Returns the directory of the keys and tokens of this user's server.
pub fn state_directory() -> Result<PathBuf, ServeStartError> {
    let strategy = etcetera::choose_base_strategy().map_err(|_| ServeStartError::NoHomeDirectory)?;
    Ok(strategy.state_dir().unwrap_or_else(|| strategy.data_dir()).join("lfn"))
}

/// Returns the file of the additional tokens; an ephemeral server has none.
pub(super) fn token_file_of(options: &ServeOptions) -> Result<Option<PathBuf>, ServeStartError> {
    match options.key {
        KeyStorage::Ephemeral => Ok(None),
        KeyStorage::Saved { .. } => Ok(Some(state_of(options)?.join(tokens::file::FILE_NAME))),
    }
}

/// Returns the directory of the saved key and tokens of a server.
fn state_of(options: &ServeOptions) -> Result<PathBuf, ServeStartError> {
    options.state.clone().map_or_else(state_directory, Ok)
}
