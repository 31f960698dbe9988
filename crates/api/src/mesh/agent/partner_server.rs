//! The server for the tests of other agents: its tokens are those of the pairs, its STAMP reflector has the key of the mesh.

use std::collections::BTreeMap;
use std::path::Path;

use lfn_mesh::hub::client_token_name;
use lfn_mesh::sync::{AccessList, AgentServers};
use lfn_session::identity::write_secret;
use lfn_session::limits::ServerLimits;
use lfn_session::server::ServerEvent;
use lfn_session::server::tokens::file::{FILE_NAME, TokenFile};
use lfn_session::{DEFAULT_PORT, Rights, Ticket, split_host_port};

use super::options::AgentStart;
use super::shared::AgentPlan;
use crate::mesh::MeshError;
use crate::mesh::hub::token_record;
use crate::serve::{KeyStorage, RunningServer, ServeOptions, StampReflectorOptions, serve};

/// Distance of the port of the STAMP reflector from that of the tests.
const STAMP_OFFSET: u16 = 2;

/// Writes the tokens of the clients that may test this agent. Sessions of other tokens end.
pub(super) fn write_tokens(state: &Path, access: &AccessList) -> Result<(), MeshError> {
    let tokens: BTreeMap<_, _> =
        access.clients.iter().map(|client| (client_token_name(&client.host), token_record(client.token))).collect();
    TokenFile::update(&state.join(FILE_NAME), |file| file.tokens = tokens)?;
    Ok(())
}

/// Starts the server of an agent, and returns it with its address for the hub.
pub(super) fn start(
    state: &Path,
    plan: &AgentPlan,
    options: &AgentStart,
    stamp_key: &str,
) -> Result<(RunningServer, AgentServers), MeshError> {
    let address = plan.sites.host(&plan.host).and_then(|host| host.address.as_deref());
    let planned = address.and_then(|address| split_host_port(address).ok()).and_then(|(_, port)| port);
    let port = options.port.or(planned).unwrap_or(DEFAULT_PORT);
    let key = state.join("stamp-key");
    write_secret(&key, stamp_key)?;
    let stamp_port = if port == 0 { 0 } else { port.checked_add(STAMP_OFFSET).unwrap_or(0) };
    let served = ServeOptions {
        bind: options.bind,
        port,
        key: KeyStorage::Saved { new_token: false },
        state: Some(state.to_owned()),
        rights: Rights { test: true, ..Rights::default() },
        stamp: Some(StampReflectorOptions { port: stamp_port, key: Some(key), is_stateful: true }),
        ..ServeOptions::new(ServerLimits::default())
    };
    let server = serve(&served, |_: &ServerEvent<'_>| ())?;
    let document = server.document();
    let fingerprint = document.ticket.parse::<Ticket>()?.fingerprint;
    let servers = AgentServers {
        fingerprint,
        port: document.listen.port(),
        stamp_port: document.stamp.map(|address| address.port()),
    };
    Ok((server, servers))
}
