//! The server for iperf3 clients.

use std::net::SocketAddr;
use std::path::Path;
use std::{fs, io};

use lfn_measure::iperf3::rsa::PrivateKey;
use lfn_measure::iperf3::server::{Authentication, IperfServer, IperfServerConfig, IperfTimeouts};
use lfn_measure::proto::iperf3::auth::Users;
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::server::Server;

use super::{Iperf3File, Iperf3ServerOptions, Iperf3Users, ServeOptions, ServeStartError};

/// Maximum size of a file of users or a key, bytes.
const MAX_FILE: u64 = 16 << 20;

/// Binds the server for iperf3 clients. It listens on the address of the main server and shares its admission.
pub(super) fn bind(
    iperf3: &Iperf3ServerOptions,
    main_server: &Server,
    options: &ServeOptions,
) -> Result<IperfServer, ServeStartError> {
    let connections = options.connections;
    let config = IperfServerConfig {
        listen: SocketAddr::new(main_server.local_addr()?.ip(), iperf3.port),
        access: options.access.clone(),
        admission: main_server.admission(),
        users: iperf3.users.as_ref().map(authentication).transpose()?,
        json_output: iperf3.json_output,
        // Unauthenticated iperf3 clients need descriptors in addition to those of lfn clients.
        connection_limits: ConnectionLimits {
            max_unauthenticated: connections.max_unauthenticated.min(connections.max_connections / 2).max(1),
            ..connections
        },
        timeouts: IperfTimeouts::default(),
    };
    let address = config.listen;
    IperfServer::bind(config, main_server.event_logger())
        .map_err(|source| ServeStartError::Iperf3Listen { address, source })
}

fn authentication(options: &Iperf3Users) -> Result<Authentication, ServeStartError> {
    let Iperf3Users { users, key, skew, also_pkcs1 } = options;
    let text = read(users).map_err(|error| file_error(Iperf3File::Users, users, error))?;
    let list = Users::parse(&text).map_err(|error| file_error(Iperf3File::Users, users, error))?;
    if list.is_empty() {
        return Err(file_error(Iperf3File::Users, users, "no user in the file"));
    }
    let pem = read(key).map_err(|error| file_error(Iperf3File::Key, key, error))?;
    let private = PrivateKey::from_pem(&pem).map_err(|error| file_error(Iperf3File::Key, key, error))?;
    Ok(Authentication { users: list, key: private, skew: *skew, also_pkcs1: *also_pkcs1 })
}

fn read(file: &Path) -> io::Result<String> {
    if fs::metadata(file)?.len() > MAX_FILE {
        return Err(io::Error::other("larger than 16 MiB"));
    }
    fs::read_to_string(file)
}

fn file_error(file: Iperf3File, path: &Path, reason: impl ToString) -> ServeStartError {
    ServeStartError::Iperf3File { file, path: path.to_owned(), reason: reason.to_string() }
}
