//! The sockets of the main server, from the options.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lfn_session::server::audit::AuditLog;
use lfn_session::server::tokens::file::TokenFile;
use lfn_session::server::{Server, ServerConfig, ServerEvent, is_loopback};
use lfn_session::{Rights, WriteAccess};

use super::identity::{identity_and_token, token_file_of};
use super::{ServeOptions, ServeStartError};
use crate::{emulator_env, service};

/// Binds the server to the first address that can be used. `root` is the canonical directory to serve.
pub(super) fn bind(
    options: &ServeOptions,
    root: Option<&Path>,
    on_event: impl Fn(&ServerEvent<'_>) + Send + Sync + 'static,
) -> Result<Server, ServeStartError> {
    let on_event = Arc::new(on_event);
    let mut last = None;
    for address in options.addresses() {
        let config = config(options, root, SocketAddr::new(address, options.port))?;
        let log = Arc::clone(&on_event);
        let log = move |event: &ServerEvent<'_>| log(event);
        let bound = match options.hub.clone() {
            Some(hub) => Server::bind(config, service::of_hub(hub), log),
            None => Server::bind(config, service::new(), log),
        };
        match bound {
            Ok(server) => return Ok(server),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or(ServeStartError::NoAddress, ServeStartError::Serve))
}

fn config(options: &ServeOptions, root: Option<&Path>, listen: SocketAddr) -> Result<ServerConfig, ServeStartError> {
    if options.insecure && !(is_loopback(&listen) || emulator_env::is_inside() || options.insecure_anywhere) {
        return Err(ServeStartError::InsecureOnNetwork(listen));
    }
    let (identity, saved) = identity_and_token(options)?;
    let expires = saved.expires.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let open_audit =
        |file: &PathBuf| AuditLog::open(file).map_err(|source| ServeStartError::Audit { file: file.clone(), source });
    Ok(ServerConfig {
        listen,
        identity,
        token: (!options.insecure).then_some(saved.token),
        token_expires: expires,
        token_file: token_file_of(options)?,
        rights: options.rights,
        audit: options.audit.as_ref().map(open_audit).transpose()?,
        root: root.map(Path::to_owned),
        unconfined: options.unconfined,
        allow_third_party: options.third_party,
        limits: options.limits,
        connection_limits: options.connections,
        congestion: None,
        access: options.access.clone(),
        drain: options.drain,
    })
}

/// Refuses write-only access if no directory is served.
pub(super) fn check_write_only(options: &ServeOptions, tokens: Option<&Path>) -> Result<(), ServeStartError> {
    let flag = match options.rights {
        Rights { read: false, write: WriteAccess::Yes, .. } => "--write-only",
        Rights { read: false, write: WriteAccess::CreateOnly, .. } => "--create-only",
        _ => return Ok(()),
    };
    let token_list = tokens.and_then(|path| TokenFile::read(path).ok()).unwrap_or_default();
    if options.root.is_some() || token_list.tokens.values().any(|kept| kept.root.is_some()) {
        return Ok(());
    }
    Err(ServeStartError::WriteWithoutRoot(flag))
}

/// Returns the canonical path of the directory to serve.
pub fn root_directory(root: &Path) -> Result<PathBuf, ServeStartError> {
    let wrong = |source| ServeStartError::Root { root: root.to_owned(), source };
    let canonical = root.canonicalize().map_err(wrong)?;
    std::fs::read_dir(&canonical).map_err(wrong)?;
    Ok(canonical)
}
