//! A box in the wire: the path lies between two interfaces that exist, and everything that comes in at one goes out at
//! the other, whatever it is.
//!
//! Nothing is changed but that both interfaces receive what is not for them (promiscuous mode), which ends with the
//! sockets. Interfaces that the machine itself talks through would answer beside the path: said, not forbidden.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use lfn_sys::namespace::NetNamespace;
use lfn_sys::netlink::{Interface, Netlink};

use super::topology::{Cable, SideNet};
use crate::emulator::data_path::Port;
use crate::emulator::{EmulateError, system};

/// The MTU of a path between these interfaces, bytes: the smaller of theirs. Refuses what cannot be bridged.
pub fn wire_mtu(names: &[String; 2]) -> Result<u32, EmulateError> {
    let [one, other] = find(names)?;
    Ok(one.mtu.min(other.mtu))
}

/// The two sides: cables of one real interface each.
pub(super) fn build(names: &[String; 2]) -> Result<[SideNet; 2], EmulateError> {
    let interfaces = find(names)?;
    let warnings = warnings(names, &interfaces).map_err(system("look at the interfaces"))?;
    // Nobody may be listening, and the run goes on all the same.
    let _ = warnings.iter().try_for_each(|warning| writeln!(io::stderr(), "lfn: {warning}"));
    let [(one, near), (other, far)] = [(&names[0], &interfaces[0]), (&names[1], &interfaces[1])];
    Ok([side(one, near)?, side(other, far)?])
}

fn side(name: &str, interface: &Interface) -> Result<SideNet, EmulateError> {
    let forbidden = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => forbidden(name),
        _ => system("open a packet socket")(error),
    };
    let claim = claim(name, interface)?;
    let socket = Port::open(interface.index).map_err(forbidden)?;
    socket.receive_all(interface.index).map_err(system("receive what is for others"))?;
    let before = Netlink::open().and_then(|mut netlink| netlink.dropped(name));
    let before = before.map_err(system("read the interfaces' counters"))?;
    let namespace = NetNamespace::current().map_err(system("open this network namespace"))?;
    Ok(SideNet {
        namespace,
        existed: true,
        cables: vec![Cable { socket, port: name.to_owned(), inside: None, before, _claim: Some(claim) }],
    })
}

/// Two runs at one interface would both forward every packet. A name in the network namespace that the interface is in
/// goes when its holder does.
fn claim(name: &str, interface: &Interface) -> Result<UnixDatagram, EmulateError> {
    let address = SocketAddr::from_abstract_name(format!("lfn-wire-{}", interface.index));
    address.and_then(|address| UnixDatagram::bind_addr(&address)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => refuse(name, "another emulation takes its packets already", "end that one first"),
        _ => system("claim an interface")(error),
    })
}

fn find(names: &[String; 2]) -> Result<[Interface; 2], EmulateError> {
    let [one, other] = names;
    if one == other {
        return Err(refuse(one, "both ends would be the same interface", "name two interfaces"));
    }
    let mut netlink = Netlink::open().map_err(system("open a netlink socket"))?;
    let mut find = |name: &str| {
        let interface =
            netlink.interface(name).map_err(|_| refuse(name, "there is no such interface", "ip link lists them"))?;
        match interface {
            Interface { is_ethernet: false, .. } => {
                Err(refuse(name, "it has no Ethernet header", "ip link lists others"))
            }
            Interface { is_up: false, .. } => Err(refuse(name, "it is down", &format!("ip link set {name} up"))),
            interface => Ok(interface),
        }
    };
    let found = [find(one)?, find(other)?];
    match found[0].index == found[1].index {
        true => Err(refuse(one, "both ends would be the same interface", "name two interfaces")),
        false => Ok(found),
    }
}

/// What may make the path other than it is meant to be.
fn warnings(names: &[String; 2], interfaces: &[Interface; 2]) -> io::Result<Vec<String>> {
    let mut warnings = Vec::new();
    let addresses = Netlink::open()?.addresses()?;
    for (name, interface) in names.iter().zip(interfaces) {
        // A link-local IPv6 address is on every interface, and only its own neighbours talk to it.
        let own = addresses.iter().find(|assigned| {
            let is_link_local = matches!(assigned.address, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local());
            assigned.interface == interface.index && !is_link_local
        });
        if let Some(assigned) = own {
            warnings.push(format!(
                "{name} has the address {}: this machine answers there too, beside the path",
                assigned.address
            ));
        }
        if interface.master.is_some() {
            warnings.push(format!("{name} belongs to a bridge or bond, which takes packets past the path"));
        }
        if lfn_sys::ethtool::merges_received(name).unwrap_or(false) {
            warnings.push(format!("{name} merges packets beyond repair\nhint: ethtool -K {name} lro off"));
        }
    }
    let [one, other] = interfaces;
    if one.mtu != other.mtu {
        let [near, far] = names;
        warnings.push(format!("{near} has MTU {}, {far} {}: larger packets cannot pass", one.mtu, other.mtu));
    }
    Ok(warnings)
}

/// That the caller may not take packets from it.
pub(super) fn forbidden(name: &str) -> EmulateError {
    refuse(
        name,
        "only root may take packets from it",
        "run as root, in a container with --cap-add SYS_ADMIN,NET_ADMIN,NET_RAW",
    )
}

fn refuse(name: &str, reason: &str, cure: &str) -> EmulateError {
    EmulateError::Bridge { interface: name.to_owned(), reason: reason.to_owned(), cure: cure.to_owned() }
}
