//! Reflector on a UDP socket. One thread handles one datagram after the other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_session::limits::access::Access;
use lfn_session::server::event::ReflectorTally;
use lfn_sys::clock;
use lfn_sys::message::{self, Message, Queue};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};

use super::{MAX_DATAGRAM, StampKey, arrival, clock_error_estimate, now, timestamp};
use crate::proto::stamp::Mac;
use crate::proto::stamp::reflector::{ReceivedPacket, Reflector, ReflectorLimits};

/// Settings of a reflector.
#[derive(Debug)]
pub struct ReflectorConfig {
    pub listen: SocketAddr,
    /// Count received packets, so that senders can attribute losses to a direction.
    pub is_stateful: bool,
    /// Key that packets must be authenticated with.
    pub key: Option<StampKey>,
    pub access: Access,
    pub limits: ReflectorLimits,
}

/// A STAMP reflector that listens on a UDP socket.
#[derive(Debug)]
pub struct StampReflector {
    socket: Socket,
    config: ReflectorConfig,
    tally: Arc<Mutex<ReflectorTally>>,
}

/// Maximum number of datagrams between two checks for the stop flag.
const RECEIVE_BATCH: u32 = 64;
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval at which the clock error is read.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl StampReflector {
    /// Opens the socket and listens.
    pub fn bind(config: ReflectorConfig) -> io::Result<StampReflector> {
        let socket = Socket::new(Domain::for_address(config.listen), Type::DGRAM, Some(Protocol::UDP))?;
        if config.listen.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.bind(&config.listen.into())?;
        message::enable_timestamps(&socket)?;
        message::enable_local_addresses(&socket)?;
        // Replies have the maximum hop limit (RFC 8762 §4.3).
        message::set_hop_limit(&socket, 255)?;
        Ok(StampReflector { socket, config, tally: Arc::default() })
    }

    /// Returns the local address of the socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Returns a function that reads the current counters.
    pub fn tally(&self) -> impl Fn() -> ReflectorTally + Send + Sync + use<> {
        let tally = self.tally.clone();
        move || *tally.lock()
    }

    /// Reflects packets until `stop` is set. Returns the counters.
    pub fn run(&self, stop: &AtomicBool) -> ReflectorTally {
        let port = self.local_addr().map_or(self.config.listen.port(), |local| local.port());
        let mut reflector = Reflector::new(self.config.is_stateful, port, self.config.limits);
        let hash = |bytes: &[u8]| self.config.key.as_ref().map(|key| key.hash(bytes)).unwrap_or_default();
        let mac: Option<Mac<'_>> = if self.config.key.is_some() { Some(&hash) } else { None };
        let (mut buffer, mut out) = (vec![0; MAX_DATAGRAM], Vec::with_capacity(MAX_DATAGRAM));
        let (mut clock_error, mut checked) = (clock_error_estimate(), now());
        while !stop.load(Ordering::Relaxed) {
            let _ = clock::wait_readable([self.socket.as_fd()], Some(POLL_INTERVAL));
            if now().saturating_since(checked) > CLOCK_CHECK_INTERVAL {
                (clock_error, checked) = (clock_error_estimate(), now());
            }
            for _ in 0..RECEIVE_BATCH {
                // An error reports an undelivered earlier reply. The error does not concern the next packets.
                let Ok(Some(message)) = message::receive(&self.socket, Queue::Data, &mut buffer) else { break };
                let Some(packet) = self.admit(&message, &buffer) else { continue };
                if reflector.reflect(&packet, timestamp(), clock_error, mac, now(), &mut out).is_ok() {
                    let _ = message::send(&self.socket, &out, packet.from, source(&message));
                }
            }
            *self.tally.lock() = reflector.tally();
        }
        reflector.tally()
    }

    fn admit<'a>(&self, message: &Message, buffer: &'a [u8]) -> Option<ReceivedPacket<'a>> {
        let from = message.peer.filter(|peer| self.config.access.permits(peer.ip()))?;
        let bytes = &buffer[..message.length];
        Some(ReceivedPacket { bytes, from, received: arrival(message), ttl: message.hop_limit })
    }
}

/// Returns the address from which the reply must leave: the destination of the packet, unless this is a multicast
/// group.
fn source(message: &Message) -> Option<IpAddr> {
    message.local.filter(|local| !local.is_multicast() && !local.is_unspecified())
}
