//! Addresses of both hosts for stripes, and the search for pairs that work.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use lfn_session::dial::{self, BindAddress, ServerConnection, Target};
use lfn_session::server::ServerSession;
use lfn_session::wire::Request;
use lfn_session::wire::addresses::{AddressesReply, AddressesRequest, HostAddress, MAX_ADDRESSES};
use lfn_session::{SessionError, queue};
use lfn_sys::netlink::Netlink;

use super::stripe_error::short_text;
use super::stripe_set::Stripe;
use crate::proto::stripe_pairs::{AddressPair, candidates, select};

/// Time for each pair. A SYN that is lost is sent again after one second.
const PAIR_TIMEOUT: Duration = Duration::from_secs(4);

/// Time after which no further pair is tried.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(12);

/// Pairs that are tried at the same time.
const PARALLEL_PAIRS: usize = 16;

/// Result of the search for stripes.
#[derive(Clone, Debug, Default)]
pub struct FoundStripes {
    /// Pairs that work, each interface once.
    pub stripes: Vec<Stripe>,
    /// Pairs that do not work, with the reason.
    pub failed: Vec<String>,
}

/// Serves a session that requests the addresses of this host.
#[inline(never)]
pub fn serve_addresses(session: &mut ServerSession) -> Result<(), SessionError> {
    let over_loopback = session.peer().ip().to_canonical().is_loopback();
    // Without netlink, the answer has no address.
    let addresses = host_addresses(over_loopback).map(|(addresses, _)| addresses).unwrap_or_default();
    session.control.send(&AddressesReply { addresses })
}

/// Returns the addresses of this host that can carry a stripe, and the names of their interfaces: interfaces that are
/// up, no link-local addresses, and loopback addresses only if both hosts are one.
fn host_addresses(over_loopback: bool) -> io::Result<(Vec<HostAddress>, BTreeMap<u32, String>)> {
    let mut netlink = Netlink::open()?;
    let mut names = BTreeMap::new();
    for name in netlink.interface_names()? {
        if let Ok(interface) = netlink.interface(&name) {
            names.insert(interface.index, name);
        }
    }
    let connected = netlink.connected_interfaces()?;
    let is_usable = |address: &IpAddr, interface: u32| match address {
        address if address.is_loopback() => over_loopback,
        IpAddr::V4(address) => !over_loopback && !address.is_link_local() && connected.contains(&interface),
        IpAddr::V6(address) => !over_loopback && !address.is_unicast_link_local() && connected.contains(&interface),
    };
    let addresses = netlink.addresses()?.into_iter();
    let usable = addresses.filter(|it| it.is_lasting && is_usable(&it.address, it.interface));
    let addresses = usable.map(|it| HostAddress { interface: it.interface, address: it.address, prefix: it.prefix });
    Ok((addresses.take(MAX_ADDRESSES).collect(), names))
}

/// Requests the addresses of the server, and finds pairs of addresses that work. Takes at most 12 s and one more pair.
pub fn find_stripes(target: &Target) -> Result<FoundStripes, SessionError> {
    let connection = ServerConnection::connect(target)?;
    let peer = connection.handle().peer_address().map_err(kernel_error)?;
    let mut control =
        connection.open_control(target, dial::new_session_id()?, Request::Addresses(AddressesRequest {}))?;
    queue::wait_for_admission(&mut control, &target.queue, target.connect_timeout, None, || ())?;
    let AddressesReply { mut addresses } = control.recv(target.connect_timeout, "before its addresses")?;
    control.close();
    addresses.truncate(MAX_ADDRESSES);
    let (near, names) = host_addresses(peer.ip().to_canonical().is_loopback()).map_err(kernel_error)?;
    let deadline = Instant::now() + SEARCH_TIMEOUT;
    let (mut working, mut failed) = (Vec::new(), Vec::new());
    for pairs in candidates(&near, &addresses).chunks(PARALLEL_PAIRS) {
        // An interface with a direct pair needs no other pair.
        let kept = select(&working);
        let is_open = |pair: &&AddressPair| {
            !kept
                .iter()
                .filter(|kept| kept.is_direct())
                .any(|kept| kept.near.interface == pair.near.interface || kept.far.interface == pair.far.interface)
        };
        let pairs: Vec<_> = pairs.iter().filter(is_open).cloned().collect();
        if Instant::now() < deadline {
            try_pairs(target, pairs, &names, &mut working, &mut failed)?;
        } else {
            failed.extend(
                pairs.iter().map(|pair| format!("{}: not tried: the search took too long", name(pair, &names))),
            );
        }
    }
    let stripes = select(&working).iter().map(|pair| stripe(pair, &names)).collect();
    Ok(FoundStripes { stripes, failed })
}

fn kernel_error(source: io::Error) -> SessionError {
    SessionError::Io { peer: "the kernel", source }
}

/// Connects all pairs at once. The handshake proves that the same server answers.
fn try_pairs(
    target: &Target,
    pairs: Vec<AddressPair>,
    names: &BTreeMap<u32, String>,
    working: &mut Vec<AddressPair>,
    failed: &mut Vec<String>,
) -> Result<(), SessionError> {
    let (sender, results) = channel();
    for (number, pair) in pairs.iter().enumerate() {
        let mut target = stripe(pair, names).target(target);
        target.connect_timeout = PAIR_TIMEOUT;
        let sender = sender.clone();
        let dial = move || {
            let tried = ServerConnection::connect(&target).and_then(|connection| connection.verify(&target));
            // The receiver waits for all threads.
            let _ = sender.send((number, tried));
        };
        thread::Builder::new().name("stripe".into()).spawn(dial).map_err(kernel_error)?;
    }
    drop(sender);
    let mut results: Vec<_> = results.iter().collect();
    results.sort_by_key(|(number, _)| *number);
    for (number, tried) in results {
        match tried {
            Ok(()) => working.push(pairs[number].clone()),
            Err(error) => failed.push(format!("{}: {}", name(&pairs[number], names), short_text(&error))),
        }
    }
    Ok(())
}

/// Returns the pair as it is typed: the address and the interface of this host, and the address of the server.
fn name(pair: &AddressPair, names: &BTreeMap<u32, String>) -> String {
    let from = source(pair, names);
    let interface = from.interface.map(|interface| format!("%{interface}")).unwrap_or_default();
    format!("{}{interface}={}", pair.near.address, pair.far.address)
}

/// Returns the source of a pair. The interface decides about the path if the routing table would use another one.
fn source(pair: &AddressPair, names: &BTreeMap<u32, String>) -> BindAddress {
    let interface = names.get(&pair.near.interface).filter(|_| !pair.near.address.is_loopback());
    BindAddress { address: Some(pair.near.address), interface: interface.cloned() }
}

fn stripe(pair: &AddressPair, names: &BTreeMap<u32, String>) -> Stripe {
    let address = pair.far.address;
    // The port is that of the server.
    let host = match SocketAddr::new(address, 0) {
        SocketAddr::V4(_) => address.to_string(),
        SocketAddr::V6(_) => format!("[{address}]"),
    };
    Stripe { name: name(pair, names), from: source(pair, names), host, addresses: vec![address], port: None }
}
