//! The reflector on its socket: one thread, one datagram after the other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lfn_core::stamp::Mac;
use lfn_core::stamp::reflector::{Arrival, Limits, Reflector, Tally};
use lfn_sys::clock;
use lfn_sys::message::{self, Message, Queue};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Key, ROOM, arrival, estimate, now, stamp};
use crate::server::access::Access;

/// What a reflector is told at its start.
#[derive(Debug)]
pub struct ReflectorConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whether it counts, so that senders can tell losses of each direction apart.
    pub is_stateful: bool,
    /// Packets must carry its hash.
    pub key: Option<Key>,
    /// Whose packets are answered.
    pub access: Access,
    /// How many.
    pub limits: Limits,
}

/// A reflector that listens.
#[derive(Debug)]
pub struct Reflecting {
    socket: Socket,
    config: ReflectorConfig,
    tally: Arc<Mutex<Tally>>,
}

/// Datagrams that are answered before the reflector looks whether it is to stop.
const AT_ONCE: u32 = 64;
const LOOK_UP: Duration = Duration::from_millis(200);
/// How often the clock is asked how good it is.
const CLOCK_CHECKED: Duration = Duration::from_secs(1);

impl Reflecting {
    /// Listens.
    pub fn bind(config: ReflectorConfig) -> io::Result<Reflecting> {
        let socket = Socket::new(Domain::for_address(config.listen), Type::DGRAM, Some(Protocol::UDP))?;
        if config.listen.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.bind(&config.listen.into())?;
        message::tell_arrival(&socket)?;
        message::tell_local_address(&socket)?;
        // Answers leave with as many hops to go as they may have (RFC 8762 §4.3).
        message::set_hop_limit(&socket, 255)?;
        Ok(Reflecting { socket, config, tally: Arc::default() })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// What it has done so far, whenever that is asked.
    pub fn tally(&self) -> impl Fn() -> Tally + Send + Sync + use<> {
        let tally = self.tally.clone();
        move || *tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reflects until `stop` is set; says what it did.
    pub fn run(&self, stop: &AtomicBool) -> Tally {
        let port = self.local_addr().map_or(self.config.listen.port(), |local| local.port());
        let mut reflector = Reflector::new(self.config.is_stateful, port, self.config.limits);
        let hash = |bytes: &[u8]| self.config.key.as_ref().map(|key| key.hash(bytes)).unwrap_or_default();
        let mac: Option<Mac<'_>> = if self.config.key.is_some() { Some(&hash) } else { None };
        let (mut buffer, mut out) = (vec![0; ROOM], Vec::with_capacity(ROOM));
        let (mut clock_is, mut checked) = (estimate(), now());
        while !stop.load(Ordering::Relaxed) {
            let _ = clock::wait_readable([self.socket.as_fd()], Some(LOOK_UP));
            if now().saturating_since(checked) > CLOCK_CHECKED {
                (clock_is, checked) = (estimate(), now());
            }
            for _ in 0..AT_ONCE {
                // An error is of an answer that did not arrive somewhere: no business of anybody else's.
                let Ok(Some(message)) = message::receive(&self.socket, Queue::Data, &mut buffer) else { break };
                let Some(came) = self.admitted(&message, &buffer) else { continue };
                if reflector.reflect(&came, (stamp(), clock_is), mac, now(), &mut out).is_ok() {
                    let _ = message::send(&self.socket, &out, came.from, source(&message));
                }
            }
            *self.tally.lock().unwrap_or_else(PoisonError::into_inner) = reflector.tally();
        }
        reflector.tally()
    }

    fn admitted<'a>(&self, message: &Message, buffer: &'a [u8]) -> Option<Arrival<'a>> {
        let from = message.peer.filter(|peer| self.config.access.permits(peer.ip()))?;
        let bytes = &buffer[..message.length];
        Some(Arrival { bytes, from, received: arrival(message), ttl: message.hop_limit })
    }
}

/// The address the answer has to leave from: the one that was asked. None of a group of hosts.
fn source(message: &Message) -> Option<IpAddr> {
    message.local.filter(|local| !local.is_multicast() && !local.is_unspecified())
}
