//! The STAMP reflector (RFC 8762) of a server.

use std::net::SocketAddr;

use lfn_measure::proto::stamp::reflector::ReflectorLimits;
use lfn_measure::stamp::{ReflectorConfig, StampKey, StampReflector};

use super::{ServeOptions, ServeStartError, StampReflectorOptions};

/// Opens the socket of the reflector.
pub(super) fn bind(stamp: &StampReflectorOptions, options: &ServeOptions) -> Result<StampReflector, ServeStartError> {
    let key = stamp.key.as_deref().map(StampKey::read).transpose()?;
    let mut last = ServeStartError::NoAddress;
    for address in options.addresses() {
        let listen = SocketAddr::new(address, stamp.port);
        let config = ReflectorConfig {
            listen,
            is_stateful: stamp.is_stateful,
            key: key.clone(),
            access: options.access.clone(),
            limits: ReflectorLimits::default(),
        };
        match StampReflector::bind(config) {
            Ok(reflector) => return Ok(reflector),
            Err(source) => last = ServeStartError::StampListen { address: listen, source },
        }
    }
    Err(last)
}
